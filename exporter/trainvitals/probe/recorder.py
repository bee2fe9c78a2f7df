"""The recorder: one rank file, one events file, and the bookkeeping between the two.

Rules that every method keeps: no lock, no socket, no fsync, no wait, no thread; an error of ours never leaves
:class:`Guard`.  All methods are called by the training thread; a second thread may lose a record, nothing worse.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainvitals import rankfile
from trainvitals.probe.tensors import TensorReader

#: The events of one rank may take this much of the spool; later ones are counted and dropped.
EVENTS_LIMIT = 1 << 20
_LONGEST_EVENT = 4096

_PHASE_INDEX = {name: index for index, name in enumerate(rankfile.PHASES)}
#: Values that are added up over the run and not drawn as a curve.
_CUMULATIVE = ("samples", "tokens")
_TRAIN = _PHASE_INDEX["train"]


class Recorder:
    """Writes what one rank reports.  Raises OSError from the constructor only, when the spool cannot be used."""

    def __init__(self, folder: str, identity: dict[str, Any]) -> None:
        unique = os.urandom(4).hex()
        base = os.path.join(folder, f"{identity['run']}.{identity['rank']}.{unique}")
        self.writer = rankfile.Writer(base + rankfile.RANK_SUFFIX, identity)
        self._events_path = base + rankfile.EVENTS_SUFFIX
        self._events: int | None = None
        self._events_size = 0
        self._indexes: dict[str, int] = {}
        self._sequence = itertools.count(1)
        self._tensors: TensorReader | None = None
        self._phases: list[int] = []
        self.closed = False
        self.step = self._build_step()

    def _build_step(self) -> Callable[[int | None, Mapping[str, Any]], None]:
        """Return the function behind ``trainvitals.step``.

        The usual step repeats the names of the step before and holds nothing but finite floats.
        That case is one closure without attribute look-ups: it costs two to three times the bare write.
        ``sum`` is the cheapest test there is: its result is a plain float only if every value is a plain number, and
        that float is finite only if every value is.  Everything else takes :meth:`_slow_step`.
        """
        pack, crc32, pack_crc = rankfile.RECORD.pack, zlib.crc32, rankfile._CRC.pack
        area, offset, slots = rankfile.RECORD_AREA, rankfile.RING_OFFSET, rankfile.RING_RECORDS
        written = rankfile.RECORD.size + 4
        state, memory = self.writer.state, self.writer.map
        next_sequence, monotonic = self._sequence.__next__, time.monotonic
        known_names: list[str] = []
        mask = 0
        padding: tuple[float, ...] = ()

        def step(number: int | None, values: Mapping[str, Any]) -> None:
            nonlocal known_names, mask, padding
            try:
                numbers = values.values()
                total = sum(numbers)
                if (
                    [*values] == known_names
                    and total.__class__ is float
                    and total - total == 0.0
                    and number.__class__ is int
                    and self._tensors is None
                ):
                    sequence = next_sequence()
                    body = pack(sequence, state.count + 1, number, monotonic(), mask, *numbers, *padding)
                    start = offset + sequence % slots * area
                    memory[start : start + written] = body + pack_crc(crc32(body))
                    state.count += 1
                    state.step = number  # type: ignore[assignment]
                    return
            except (TypeError, OverflowError, struct.error):
                pass  # Something that is no number, or a number that does not fit: the slow way sorts it out.
            self._slow_step(number, values)
            names = [*values]
            if self._is_plain(names):
                known_names = names
                mask = sum(1 << self._indexes[name] for name in names)
                padding = (0.0,) * (rankfile.VALUES_PER_RECORD - len(names))

        return step

    def _is_plain(self, names: list[str]) -> bool:
        """Whether steps with these names may take the fast way: in table order, in one record, none cumulative."""
        indexes = [self._indexes.get(name, -1) for name in names]
        return (
            0 < len(names) <= rankfile.VALUES_PER_RECORD
            and min(indexes) >= 0
            and indexes == sorted(indexes)
            and not any(name in _CUMULATIVE for name in names)
        )

    def _slow_step(self, number: int | None, values: Mapping[str, Any]) -> None:
        state = self.writer.state
        now = time.monotonic()
        step = state.step = self._step_number(number)
        state.count += 1
        if state.phase == _PHASE_INDEX["init"]:
            self._enter(_TRAIN, now)
        if self._tensors is not None:
            self._tensors.poll()
        count = state.count
        plain, tensors = self._split(values)
        skipped = bool(plain.pop("skipped", False))
        state.skipped += skipped
        if tensors and self._tensors is not None:
            plain.update(
                self._tensors.take(tensors, lambda late: self._write(count, step, time.monotonic(), late, skipped))
            )
        self._write(count, step, now, plain, skipped)

    def _step_number(self, number: Any) -> int:
        """Return a whole number of 64 bits; anything else (a tensor, say) becomes the number before plus one."""
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, int) and -(2**63) <= number < 2**63:
            return number
        if number is not None:
            self.writer.state.dropped += 1
        return self.writer.state.step + 1

    def _split(self, values: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
        """Part numbers from tensors; what is neither is dropped and counted."""
        plain: dict[str, float] = {}
        tensors: dict[str, Any] = {}
        for name, value in values.items():
            try:
                if isinstance(value, (int, float)):
                    plain[name] = float(value)
                elif value is None:
                    continue
                elif self._is_tensor(value):
                    tensors[name] = value
                elif getattr(value, "size", 0) == 1 and hasattr(value, "item"):  # a NumPy scalar or array of one
                    plain[name] = float(value.item())
                else:
                    self.writer.state.dropped += 1
            except (TypeError, ValueError, OverflowError):
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
            state.records = next(self._sequence)
            self.writer.write_record(state.records, count, step, now, part)
        self._write_state(now)

    def _index(self, name: str) -> int:
        """Return the place of a name in the table, adding it; -1 when the table is full."""
        index = self._indexes.get(name)
        if index is not None:
            return index
        if not isinstance(name, str) or len(self.writer.names) >= rankfile.MAX_NAMES:
            self.writer.state.dropped += 1
            return -1
        self._indexes[name] = index = len(self.writer.names)
        self.writer.names.append(name[: rankfile.MAX_NAME_LENGTH])
        # The name first, then the record that needs it.
        self.writer.write_text()
        return index

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

    def begin_phase(self, name: str) -> None:
        """Begin a phase inside the current one; its time counts for the innermost alone, so that all add up."""
        now = time.monotonic()
        self._phases.append(self.writer.state.phase)
        self._enter(_PHASE_INDEX.get(name, 0), now)
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
        step = self.writer.state.step if number is None else self._step_number(number)

        def record(results: dict[str, float]) -> None:
            self.event("evaluation", {"step": step, "name": name, "values": results})

        if tensors and self._tensors is not None:
            plain.update(self._tensors.take(tensors, record))
        if plain:
            record(plain)

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Append one line to the events file: a single write, so that lines of two threads do not mix."""
        document = {"time": round(time.time(), 3), "kind": kind, "step": self.writer.state.step, **fields}
        line = json.dumps(document, default=str, separators=(",", ":")).encode() + b"\n"
        if len(line) > _LONGEST_EVENT or self._events_size + len(line) > EVENTS_LIMIT:
            self.writer.state.dropped += 1
            return
        if self._events is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._events = os.open(self._events_path, flags, 0o644)
        try:
            self._events_size += os.write(self._events, line)
        except OSError:
            # A full spool: the event is lost, the run is not.
            self.writer.state.dropped += 1

    @contextlib.contextmanager
    def checkpoint(self, number: int | None, path: object, kind: str) -> Iterator[None]:
        """Time a save or a load; the exception of a failed one is recorded and goes on its way."""
        step = self.writer.state.step if number is None else self._step_number(number)
        begun = time.monotonic()
        self.begin_phase("checkpoint")
        error: str | None = None
        try:
            yield
        except BaseException as failure:
            error = type(failure).__name__
            raise
        finally:
            self.end_phase()
            fields = {"step": step, "action": kind, "ok": error is None, "seconds": time.monotonic() - begun}
            if path is not None:
                fields["path"] = os.fspath(path) if isinstance(path, (str, os.PathLike)) else str(path)
            if error is not None:
                fields["error"] = error
            self.event("checkpoint", fields)

    def finish(self, status: str) -> None:
        """Set the flag of a clean end and unlock; what is still on its way from a device is dropped."""
        if self.closed:
            return
        self.closed = True
        state = self.writer.state
        if self._tensors is not None:
            self._tensors.poll()
            self._tensors.discard()
        now = time.monotonic()
        self._enter(_PHASE_INDEX["other"], now)
        state.flags |= rankfile.FLAG_FINISHED | (0 if status == "ok" else rankfile.FLAG_FAILED)
        self._write_state(now)
        self._close()

    def disable(self) -> None:
        """Mark the file as switched off by errors of ours and stop writing."""
        self.closed = True
        self.writer.state.flags |= rankfile.FLAG_DISABLED
        self.writer.write_state()

    def count_error(self) -> int:
        """Count one internal error in the file; return how many there were."""
        self.writer.state.errors += 1
        self.writer.write_state()
        return self.writer.state.errors

    def _close(self) -> None:
        if self._events is not None:
            os.close(self._events)
            self._events = None
        self.writer.close()
