"""The recorder: one rank file, one events file, and the bookkeeping between the two.

Rules that every method keeps: no lock, no socket, no fsync, no wait, no thread.
An error of ours is caught by the caller, :mod:`trainvitals.probe`.
All methods are called by the training thread; a second thread may lose a record, nothing worse.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainvitals import rankfile
from trainvitals.probe import split
from trainvitals.probe.events import EventsFile, text
from trainvitals.probe.identity import device
from trainvitals.probe.phases import Phases
from trainvitals.probe.quick import CUMULATIVE, NUMBERS, QuickStep, Step
from trainvitals.probe.tensors import TensorReader

_LARGEST_STEP = 2**63 - 1
#: A name of a file has at most 255 bytes, and a run may be called in any script.
_UNSAFE_IN_FILE = re.compile(r"[^A-Za-z0-9._-]+")

#: So many sets of names get a function of their own; a loop has one or two.
_QUICK_STEPS = 16


class Recorder:
    """Writes what one rank reports.  Raises OSError from the constructor only, when the spool cannot be used."""

    def __init__(self, folder: str, identity: dict[str, Any]) -> None:
        unique = os.urandom(4).hex()
        name = _UNSAFE_IN_FILE.sub("-", f"{identity['run']}.{identity['rank']}")[:128]
        base = os.path.join(folder, f"{name}.{unique}")
        self.given = frozenset(identity)
        self.writer = rankfile.Writer(base + rankfile.RANK_SUFFIX, identity)
        self.state = self.writer.state
        self._events = EventsFile(base + rankfile.EVENTS_SUFFIX)
        self._table_full = False
        self._indexes: dict[str, int] = {}
        self._tensors: TensorReader | None = None
        self.phases = Phases(self.writer, self._write_state)
        self.closed = False
        #: Is called behind the first step, when the program has imported what it needs.
        self.after_first_step: Callable[[], None] | None = None
        #: Returns what the run is made of, as a hash.
        self.lineage: Callable[[], str] | None = None
        self._early: dict[str, Any] = {}
        self._quick: dict[tuple[str, ...], Step] = {}
        #: The function behind ``trainvitals.step``; it changes with what the steps hold.
        self.step: Step = self._learn

    def _learn(self, number: int | None, values: Mapping[str, Any]) -> None:
        """Take a step that is not like the one before, and be quick about the next one that is like it."""
        names = (*values,) if isinstance(values, Mapping) else ()
        quick = self._quick.get(names)
        if quick is not None and not self._waiting():
            numbers = self._read_host(values)
            if numbers is not values or quick is not self.step:
                self.step = quick
                quick(number, numbers)
                return
        self._slow_step(number, values)
        if quick is None and len(self._quick) < _QUICK_STEPS:
            quick = self._quick_step(names)
            if quick is not None:
                self._quick[names] = quick
        self.step = self._learn if quick is None or self._waiting() else quick

    def _read_host(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values as numbers where tensors of the host are all that stands between; else as they are."""
        torch = sys.modules.get("torch")
        if torch is None:
            return values
        numbers, found = {}, False
        try:
            for name, value in values.items():
                # A tensor of the usual class only: one that is derived from it may do anything when it is asked.
                if value.__class__ is torch.Tensor and value.is_cpu:
                    value, found = value.item(), True  # noqa: PLW2901
                if value.__class__ not in NUMBERS:
                    return values
                numbers[name] = value
        except Exception:  # More than one element, say: the slow way sorts it out.
            return values
        return numbers if found else values

    def _waiting(self) -> bool:
        """Whether values are on their way from a device: then every step asks for them."""
        return self._tensors is not None and self._tensors.waiting

    def _quick_step(self, names: tuple[str, ...]) -> Step | None:
        """Return a function for steps with just these names, or None where each needs a closer look."""
        try:
            return QuickStep(
                names,
                self._indexes,
                self.writer,
                self.phases,
                learn=self._learn,
                number=self._step_number,
                publish=self._write_state,
            ).way()
        except (KeyError, ValueError):
            return None

    def _slow_step(self, number: int | None, values: Mapping[str, Any]) -> None:
        state = self.writer.state
        now = time.monotonic()
        step = state.step = self._step_number(number)
        state.count += 1
        if state.count == 1:
            self.phases.end_init(now)
            if self._early and isinstance(values, Mapping):
                values, self._early = {**self._early, **values}, {}
            if "device_uuid" not in self.writer.identity:
                self.identify(**device(split.device_module(sys.modules.get("torch")), os.environ))
        self.phases.end_step(now)
        if self._tensors is not None:
            self._tensors.poll()
        count = state.count
        plain, skipped, _ = self._known_now(values, count, step)
        self._write(count, step, now, plain, skipped)
        if count == 1 and self.after_first_step is not None:
            self.after_first_step()

    def log(self, values: Mapping[str, Any]) -> None:
        """Add values to the last step, in a record of their own; before the first step they wait for it."""
        state = self.writer.state
        if state.count == 0:
            self._early.update(values)
            return
        plain, skipped, tensors = self._known_now(values, state.count, state.step)
        if tensors:
            self.step = self._learn  # The next step asks whether they have arrived.
        if plain:
            self._write(state.count, state.step, time.monotonic(), plain, skipped)

    def _known_now(self, values: object, count: int, step: int) -> tuple[dict[str, float], bool, bool]:
        """Return what is known of a step's values, whether it was skipped, and whether there were tensors.

        Those that are still on their way from a device are written for that step when they arrive.
        """
        plain, tensors = self._split(values)
        skipped = bool(plain.get("skipped"))
        if tensors and self._tensors is not None:
            plain.update(
                self._tensors.take(tensors, lambda late: self._write(count, step, time.monotonic(), late, skipped))
            )
        return plain, skipped, bool(tensors)

    def _step_number(self, number: Any) -> int:
        """Return a whole number of 64 bits; anything else (a tensor, say) becomes the number before plus one."""
        whole = self._whole(number)
        return min(self.writer.state.step + 1, _LARGEST_STEP) if whole is None else whole

    def _current_step(self, number: Any) -> int:
        """Return a whole number of 64 bits; anything else becomes the number of the last step."""
        whole = self._whole(number)
        return self.writer.state.step if whole is None else whole

    def _whole(self, number: Any) -> int | None:
        if (isinstance(number, float) and number.is_integer()) or (_is_numpy(number) and number.dtype.kind in "iu"):
            number = int(number)
        if isinstance(number, int) and -_LARGEST_STEP <= number <= _LARGEST_STEP:
            return number
        self.writer.state.dropped += number is not None
        return None

    def _split(self, values: object) -> tuple[dict[str, float], dict[str, Any]]:
        """Part numbers from tensors; what is neither is dropped and counted.

        Arrays of other frameworks are neither: reading one would wait for its device.
        """
        plain: dict[str, float] = {}
        tensors: dict[str, Any] = {}
        if not isinstance(values, Mapping):
            self.writer.state.dropped += 1
            return plain, tensors
        for name, value in values.items():
            try:
                if isinstance(value, (int, float)):
                    plain[name] = float(value)
                elif value is None:
                    continue
                elif self._is_tensor(value):
                    tensors[name] = value
                elif _is_numpy(value) and value.size == 1 and value.dtype.kind in "fiub":
                    plain[name] = float(value.item())
                else:
                    self.writer.state.dropped += 1
            except Exception:
                self.writer.state.dropped += 1
        return plain, tensors

    def _is_tensor(self, value: object) -> bool:
        if self._tensors is None:
            torch = sys.modules.get("torch")
            if torch is None or not isinstance(value, torch.Tensor):
                return False
            self._tensors = TensorReader(torch)
        return self._tensors.is_tensor(value)

    def _write(self, count: int, step: int, now: float, values: dict[str, float], skipped: bool) -> None:
        """Write the records of one step (or of its late values) and the state behind them."""
        state = self.writer.state
        if values.get("skipped"):
            # Stays in the record: the detectors read it.
            state.skipped += 1
        else:
            values.pop("skipped", None)
        for name in CUMULATIVE:
            amount = values.pop(name, 0.0)
            if 0.0 <= amount < float("inf"):
                setattr(state, name, getattr(state, name) + amount)
            else:
                state.dropped += 1
        loss = values.get("loss", 0.0)
        # A step that the loss scaler skips may well hold an infinity: that is its normal search for a scale.
        state.nonfinite += loss - loss != 0.0 and not skipped
        indexed = {index: value for name, value in values.items() if (index := self._index(name)) >= 0}
        ordered = sorted(indexed)
        for start in range(0, max(len(ordered), 1), rankfile.VALUES_PER_RECORD):
            part = {index: indexed[index] for index in ordered[start : start + rankfile.VALUES_PER_RECORD]}
            state.records += 1
            self.writer.write_record(state.records, count, step, now, part)
        self._write_state(now)

    def _index(self, name: str) -> int:
        """Return the place of a name in the table, adding it; -1 when the table is full or its text would be."""
        index = self._indexes.get(name)
        if index is not None:
            return index
        names = self.writer.names
        room = len(names) < rankfile.MAX_NAMES and not self._table_full
        # A long name is not cut: two that begin alike would become one curve.
        if room and isinstance(name, str) and len(name) <= rankfile.MAX_NAME_LENGTH:
            names.append(name)
            # The name first, then the record that needs it.
            if self.writer.write_text():
                self._indexes[name] = len(names) - 1
                return len(names) - 1
            names.pop()
            self._table_full = True
        self.writer.state.dropped += 1
        return -1

    def beat(self) -> None:
        """Say that the process lives."""
        self._write_state(time.monotonic())

    def _write_state(self, now: float) -> None:
        if self._tensors is not None:
            self.writer.state.dropped += self._tensors.dropped
            self._tensors.dropped = 0
        self.writer.state.heartbeat = now
        self.writer.write_state()

    # Phases ---------------------------------------------------------------------------------------------------------

    def begin_phase(self, name: str) -> None:
        """Begin a phase inside the current one; its time counts for the innermost alone, so that all add up."""
        self.phases.begin(name)

    def end_phase(self) -> None:
        """Go back to the phase around the current one."""
        self.phases.end()

    # Rare events ----------------------------------------------------------------------------------------------------

    def identify(self, **fields: Any) -> None:
        """Add to the identity what became known after the start: target steps, the device."""
        known = {name: value for name, value in fields.items() if value is not None}
        if known:
            self.writer.identity.update(known)
            self.writer.write_text()

    def evaluate(self, number: int | None, name: str, values: Mapping[str, Any]) -> None:
        """Record the results of an evaluation."""
        plain, tensors = self._split(values)
        step = self._current_step(number)

        def record(results: dict[str, float]) -> None:
            self.event("evaluation", {"step": step, "name": name, "values": results})

        if tensors and self._tensors is not None:
            plain.update(self._tensors.take(tensors, record))
            self.step = self._learn  # The next step asks whether they have arrived.
        if plain:
            record(plain)

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Record an event; one that cannot be written is counted as dropped."""
        self.writer.state.dropped += not self._events.append(kind, self._current_step(fields.get("step")), fields)
        self._write_state(time.monotonic())

    def begin_checkpoint(self, number: int | None) -> tuple[int, float]:
        """Begin to save or load; return what :meth:`end_checkpoint` wants."""
        step = self._current_step(number)
        self.begin_phase("checkpoint")
        return step, time.monotonic()

    def end_checkpoint(self, begun: tuple[int, float], path: object, action: str, error: str | None) -> None:
        """Record a save or a load; ``error`` is the name of the exception of a failed one."""
        step, since = begun
        fields: dict[str, Any] = {"step": step, "action": action, "ok": error is None}
        fields["seconds"] = time.monotonic() - since
        self.end_phase()
        if path is not None:
            fields["path"] = text(path) if isinstance(path, str) else path
        if error is not None:
            fields["error"] = error
        if self.lineage is not None:
            fields["lineage"] = self.lineage()
        self.event("checkpoint", fields)

    def finish(self, status: str) -> None:
        """Set the flag of a clean end and unlock; what is still on its way from a device is dropped."""
        if self.closed:
            return
        self.closed = True
        state = self.writer.state
        if self._tensors is not None:
            # A device that is broken is no reason to call a clean end a death.
            with contextlib.suppress(Exception):
                self._tensors.poll()
            self._tensors.discard()
        now = time.monotonic()
        self.phases.finish(now)
        state.flags |= rankfile.FLAG_FINISHED | (0 if status == "ok" else rankfile.FLAG_FAILED)
        self._write_state(now)
        self._events.close()
        self.writer.close()

    def disable(self) -> None:
        """Mark the file as switched off by errors of ours.  It stays locked: the process lives, and may end cleanly."""
        self.writer.state.flags |= rankfile.FLAG_DISABLED
        self.writer.write_state()

    def count_error(self) -> int:
        """Count one internal error in the file; return how many there were."""
        self.writer.state.errors += 1
        self.writer.write_state()
        return self.writer.state.errors


def _is_numpy(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray))
