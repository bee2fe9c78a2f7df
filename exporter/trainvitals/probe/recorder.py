"""The recorder: one rank file, one events file, and the bookkeeping between the two.

Rules that every method keeps: no lock, no socket, no fsync, no wait, no thread.
An error of ours is caught by the caller, :mod:`trainvitals.probe`.
All methods are called by the training thread; a second thread may lose a record, nothing worse.
"""

from __future__ import annotations

import contextlib
import gc
import math
import operator
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from trainvitals import rankfile
from trainvitals.probe import split
from trainvitals.probe.events import EventsFile, text
from trainvitals.probe.identity import device
from trainvitals.probe.tensors import TensorReader

_PHASE_INDEX = {name: index for index, name in enumerate(rankfile.PHASES)}
#: Values that are added up over the run and not drawn as a curve.
_CUMULATIVE = ("samples", "tokens")
#: Names that are no values of a record.
_SPECIAL = (*_CUMULATIVE, "skipped")
_INIT, _TRAIN = _PHASE_INDEX["init"], _PHASE_INDEX["train"]
_LARGEST_STEP = 2**63 - 1
#: A name of a file has at most 255 bytes, and a run may be called in any script.
_UNSAFE_IN_FILE = re.compile(r"[^A-Za-z0-9._-]+")

_NUMBERS = frozenset({float, int, bool})
#: So many sets of names get a function of their own; a loop has one or two.
_QUICK_STEPS = 16
#: Frameworks whose tensors the garbage collector may not know.
_UNTRACKED = ("mindspore", "paddle")

#: Takes the number of a step and its values.
Step = Callable[[int | None, Mapping[str, Any]], None]


class Recorder:
    """Writes what one rank reports.  Raises OSError from the constructor only, when the spool cannot be used."""

    def __init__(self, folder: str, identity: dict[str, Any]) -> None:
        unique = os.urandom(4).hex()
        name = _UNSAFE_IN_FILE.sub("-", f"{identity['run']}.{identity['rank']}")[:128]
        base = os.path.join(folder, f"{name}.{unique}")
        self.given = frozenset(identity)
        self.writer = rankfile.Writer(base + rankfile.RANK_SUFFIX, identity)
        self._events = EventsFile(base + rankfile.EVENTS_SUFFIX)
        self._table_full = False
        self._indexes: dict[str, int] = {}
        self._tensors: TensorReader | None = None
        self._shares: split.Split | None = None
        self._phases: list[int] = []
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
                if value.__class__ not in _NUMBERS:
                    return values
                numbers[name] = value
        except Exception:  # More than one element, say: the slow way sorts it out.
            return values
        return numbers if found else values

    def _waiting(self) -> bool:
        """Whether values are on their way from a device: then every step asks for them."""
        return self._tensors is not None and self._tensors.waiting

    def _quick_step(self, names: tuple[str, ...]) -> Step | None:
        """Return a function for steps with just these names, or None where each needs a closer look.

        The usual step repeats the names of the step before and holds numbers only.
        That case is one closure without attribute look-ups: less than three times the bare write.
        What is unusual in it (a tensor, a loss that is not finite, another name) goes to :meth:`_learn` before
        anything is written.
        """
        plain = [name for name in names if name not in _SPECIAL]
        if not 0 < len(plain) <= rankfile.VALUES_PER_RECORD or not set(plain) <= self._indexes.keys():
            return None
        plain.sort(key=self._indexes.__getitem__)
        mask = sum(1 << self._indexes[name] for name in plain)
        special = [name for name in names if name in _SPECIAL]
        width = len(names)
        # Only the loss has to be finite; without one, any value may stand for it.
        judged = "loss" if "loss" in plain else plain[0]
        pick, pack = _getter(plain), rankfile.RECORDS[len(plain)].pack
        seal, crc32, monotonic = rankfile.SEALED.pack_into, zlib.crc32, time.monotonic
        area, offset, slots = rankfile.RECORD_AREA, rankfile.RING_OFFSET, rankfile.RING_RECORDS
        is_tracked, only_numbers = _tracking(), _NUMBERS.issuperset
        state, memory, learn, write_state = self.writer.state, self.writer.map, self._learn, self._write_state
        end_step = None if self._shares is None else self._end_step

        def step(number: int | None, values: Mapping[str, Any]) -> None:
            try:
                if number.__class__ is not int:
                    number = state.step + 1 if number is None else self._step_number(number)
                # Arithmetic on a tensor would run on its device, and on all ranks where it is a sharded one.
                # A dict that the garbage collector ignores holds no such thing, and asking it is the cheapest test.
                atoms = not is_tracked(values) or only_numbers(map(type, values.values()))
                if atoms and len(values) == width:
                    if special:
                        samples, tokens = _amounts(values, special)
                    loss = values[judged]
                    if loss - loss == 0.0:
                        now, record, count = monotonic(), state.records + 1, state.count + 1
                        body = pack(record, count, number, now, mask, *pick(values))
                        seal(memory, record % slots * area + offset, body, crc32(body))
                        state.records, state.count, state.step = record, count, number
                        if special:
                            state.samples += samples
                            state.tokens += tokens
                        if end_step is not None:
                            end_step(now)
                        if special or end_step is not None:
                            write_state(now)
                        return
            except Exception:  # noqa: S110  Another name, a value that is no number: the slow way sorts it out.
                pass
            learn(number, values)

        return step

    def _slow_step(self, number: int | None, values: Mapping[str, Any]) -> None:
        state = self.writer.state
        now = time.monotonic()
        step = state.step = self._step_number(number)
        state.count += 1
        if state.count == 1:
            self._end_init(now)
            self._begin_split()
            if self._early and isinstance(values, Mapping):
                values, self._early = {**self._early, **values}, {}
            if "device_uuid" not in self.writer.identity:
                self.identify(**device(split.device_module(sys.modules.get("torch")), os.environ))
        if self._shares is not None:
            self._end_step(now)
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
        for name in _CUMULATIVE:
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

    def _write_state(self, now: float) -> None:
        if self._tensors is not None:
            self.writer.state.dropped += self._tensors.dropped
            self._tensors.dropped = 0
        self.writer.state.heartbeat = now
        self.writer.write_state()

    # Phases ---------------------------------------------------------------------------------------------------------

    def _enter(self, phase: int, now: float) -> None:
        state = self.writer.state
        state.phase_seconds[state.phase] += max(0.0, now - state.phase_since)
        state.phase, state.phase_since = phase, now
        if self._shares is not None:
            self._shares.enter(phase)

    def _end_init(self, now: float) -> None:
        """The first step ends the start, also where it is reported from within a phase."""
        self._phases = [_TRAIN if phase == _INIT else phase for phase in self._phases]
        if self.writer.state.phase == _INIT:
            self._enter(_TRAIN, now)

    def _begin_split(self) -> None:
        """With the first step, when the program has found its device: see :mod:`trainvitals.probe.split`."""
        module = split.device_module(sys.modules.get("torch"))
        if module is not None or split.exposed_communication is not None:
            spans = None if module is None else split.Spans(module)
            self._shares = split.Split(self.writer.state, spans)

    def _end_step(self, now: float) -> None:
        """Close the books of a step."""
        state = self.writer.state
        state.phase_seconds[state.phase] += max(0.0, now - state.phase_since)
        state.phase_since = now
        if self._shares is not None:
            self._shares.end_step(state.phase)

    def begin_phase(self, name: str) -> None:
        """Begin a phase inside the current one; its time counts for the innermost alone, so that all add up."""
        now = time.monotonic()
        phase = _PHASE_INDEX.get(name, 0) if isinstance(name, str) else 0
        self._phases.append(self.writer.state.phase)
        self._enter(phase, now)
        self._write_state(now)

    def end_phase(self) -> None:
        """Go back to the phase around the current one."""
        now = time.monotonic()
        self._enter(self._phases.pop() if self._phases else _TRAIN, now)
        self._write_state(now)

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
        self._enter(_PHASE_INDEX["other"], now)
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


def _getter(names: list[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return ``itemgetter(*names)``, which alone would not give a tuple for one name."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    (name,) = names
    return lambda values: (values[name],)


def _tracking() -> Callable[[object], bool]:
    """Return the test for a dict that may hold tensors; with some frameworks the garbage collector cannot tell."""
    return gc.is_tracked if sys.modules.keys().isdisjoint(_UNTRACKED) else lambda _: True


def _amounts(values: Mapping[str, Any], names: list[str]) -> tuple[float, float]:
    """Return samples and tokens of a usual step; raises KeyError or ValueError for one that is not."""
    samples = float(values["samples"]) if "samples" in names else 0.0
    tokens = float(values["tokens"]) if "tokens" in names else 0.0
    skipped = values["skipped"] if "skipped" in names else False
    if 0.0 <= samples < math.inf and 0.0 <= tokens < math.inf and not skipped:
        return samples, tokens
    raise ValueError


def _is_numpy(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray))
