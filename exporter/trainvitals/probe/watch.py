"""What is remembered of the data of this process, between the loaders that are watched and the files of the rank.

One per recorder, made when the first watched loader is asked for a batch.  All methods may raise: callers are made
safe by :mod:`trainvitals.probe.data`.
"""

from __future__ import annotations

import math
import sys
from _thread import get_ident  # Not threading: a trainer that has none needs none.
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainvitals import probe, rankfile
from trainvitals.probe.batches import file_of
from trainvitals.probe.recorder import Recorder
from trainvitals.rankfile import ledger
from trainvitals.rankfile.ledger import Name

_INDEX = {name: index for index, name in enumerate(rankfile.PHASES)}
#: Waiting within these stays theirs: an evaluation may take hours, waiting for data may not.
_KEPT = frozenset({_INDEX["data"], _INDEX["evaluation"], _INDEX["checkpoint"]})
_EVALUATION = _INDEX["evaluation"]

#: Of so many batches the names are kept in memory.
_REMEMBERED = 64
#: Lines of a process about batches, the steps between two of them, and the batches and bytes of names in one.
_LINES, _BETWEEN, _BATCHES, _LONGEST = 64, 50, 16, 2600
#: The first errors are told one by one, then those whose number is a power of two; all are counted.
ERRORS_TOLD = 64
#: A loss is odd beyond so many mean deviations above its moving mean of so many steps.  A rough test, for a note in
#: the events only; the detectors judge better.
_ODD, _MEMORY = 8.0, 64
#: So many records of steps are looked at after a batch.
_RECORDS = 16

#: Returns a data set, as long as it is there.
Dataset = Callable[[], Any]


class Watch:
    """Counts batches, writes the ledger, and tells of errors and of batches with an odd loss."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._state, self._phases = recorder.writer.state, recorder.phases
        #: The data file; None where there is no room for one.
        self.ledger: ledger.LedgerWriter | None = None
        self._batches: deque[tuple[int, Sequence[Name], int, Dataset]] = deque(maxlen=_REMEMBERED)
        #: Below ``no_grad`` nobody learns: waiting there is no starvation of the training, and its batches no suspects.
        self._thread = probe.thread()
        self._learns: Callable[[], bool] = getattr(sys.modules.get("torch"), "is_grad_enabled", _yes)
        self._numbers: dict[int, int] = {}
        self._seen = self._state.records
        self._loss_bit = 0
        self._mean = self._deviation = 0.0
        self._losses = 0
        self._lines = 0
        #: The step of the last line about a loss, and of the last about an event: neither keeps the other away.
        self._last_lines = {False: -_BETWEEN, True: -_BETWEEN}
        self._errors = 0
        try:
            self.ledger = ledger.LedgerWriter(ledger.path_of_data(recorder.writer.path))
        except OSError as error:
            probe.tell_once("data", "the names of samples are not recorded", error)

    # Waiting --------------------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Begin to wait for a batch; return whether :meth:`end` is to end a phase."""
        if self._state.phase in _KEPT or get_ident() != self._thread or not self._learns():
            return False  # Somebody counts already; and another thread's waiting is not the training's.
        return self._phases.begin_wait()

    def end(self) -> None:
        """Go on with what was before."""
        self._phases.end_wait()

    # Batches --------------------------------------------------------------------------------------------------------

    def take(self, names: Sequence[Name], total: int, samples: int, size: int, dataset: Dataset) -> None:
        """Count a batch and remember its names for the step that comes next."""
        book, state = self.ledger, self._state
        if names and state.phase != _EVALUATION and self._learns():
            if book is not None:
                book.add(state.count + 1, names, total)
            self._batches.append((state.count + 1, names, total, dataset))
        if book is not None:
            book.batches += 1
            book.samples += samples
            book.bytes += size
            book.write_state()
        if state.records != self._seen:
            self._look()

    def _look(self) -> None:
        """Look at the losses that were recorded since the last batch: they are read back from the rank file."""
        writer = self.recorder.writer
        newest = self._state.records
        if not self._loss_bit and "loss" in writer.names:
            self._loss_bit = 1 << writer.names.index("loss")
        for sequence in range(max(self._seen + 1, newest - _RECORDS + 1), newest + 1):
            offset = rankfile.RING_OFFSET + sequence % rankfile.RING_RECORDS * rankfile.RECORD_AREA
            _, count, step, _, mask, *values = rankfile.RECORD.unpack_from(writer.map, offset)
            self._numbers[count] = step
            if mask & self._loss_bit:
                self._judge(count, values[(mask & (self._loss_bit - 1)).bit_count()])
        self._seen = newest
        while len(self._numbers) > _REMEMBERED:
            del self._numbers[next(iter(self._numbers))]

    def _judge(self, count: int, loss: float) -> None:
        if not math.isfinite(loss):
            self.tell("loss_nonfinite", count)
            return
        away = loss - self._mean
        if self._losses >= _MEMORY and away > _ODD * self._deviation > 0.0:
            self.tell("loss_outlier", count)
            away = _ODD * self._deviation  # What is odd moves the mean a little, and a new level in the end.
        self._losses += 1
        share = 1.0 / min(self._losses, _MEMORY)
        self._mean += share * away
        self._deviation += share * (abs(away) - self._deviation)

    def tell(self, reason: str, count: int | None = None) -> None:
        """Write one line with what was in the batches of a step, and in those before it."""
        newest, is_event = self._state.count, reason == "event"
        if not self._batches or self._lines >= _LINES or newest - self._last_lines[is_event] < _BETWEEN:
            return
        self._lines, self._last_lines[is_event] = self._lines + 1, newest
        chosen = [batch for batch in reversed(self._batches) if count is None or batch[0] <= count][:_BATCHES]
        room = _LONGEST
        batches: list[dict[str, Any]] = []
        for number, names, total, dataset in chosen:
            found, used = _shortened(
                [file_of(dataset(), name) for name in names], room - 60 if batches else room * 2 // 3
            )
            if not found:
                break
            room -= used + 60
            step = self._state.step if number == newest else self._numbers.get(number)
            batches.append({"step": step, "count": number, "ids": found, "total": total})
        self.recorder.event("data", {"action": "batch", "reason": reason, "batches": batches})

    # Errors ---------------------------------------------------------------------------------------------------------

    def error(self, fields: Mapping[str, Any], counted: bool) -> None:
        """Count an error in the data and tell of it; ``counted`` says that a worker has counted it already."""
        self._errors += 1
        if self.ledger is not None and not counted:
            self.ledger.errors += 1
            self.ledger.write_state()
        if is_told(self._errors):
            self.recorder.event("data_error", {**fields, "number": self._errors})


def _yes() -> bool:
    return True


def is_told(number: int) -> bool:
    """Whether the error of this number is told and not only counted."""
    return number <= ERRORS_TOLD or number & (number - 1) == 0


def _shortened(names: Sequence[Name], room: int) -> tuple[list[Name], int]:
    """Return the names that fit into so many bytes of JSON, each once, and how many bytes they take."""
    kept: list[Name] = []
    used = 0
    for name in dict.fromkeys(names):
        # JSON writes a character outside ASCII with six.
        size = len(name) * (1 if name.isascii() else 6) + 3 if isinstance(name, str) else 21
        if used + size > room:
            break
        used += size
        kept.append(name)
    return kept, used


_watch: Watch | None = None


def current() -> Watch | None:
    """Return the watch of this process, or None where it is not recorded."""
    global _watch
    recorder = probe.recorder()
    if recorder is None:
        return None
    if _watch is None or _watch.recorder is not recorder:
        _watch = Watch(recorder)
        probe.on_event(_tell_event)
    return _watch


def _tell_event() -> None:
    watch = _watch
    if watch is not None and watch.recorder is probe.recorder():
        watch.tell("event")
