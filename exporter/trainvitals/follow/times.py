"""When the steps of a log were, where it does not say: from the durations that it tells and the times of its file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import NamedTuple

from trainvitals.follow.base import Rows
from trainvitals.telemetry import Event, Part, Step, StepList, Steps

#: Fewer steps with the same names are as well held one by one.
_FEW = 8


class Moment(NamedTuple):
    """A step whose time is known: wall time, number, and the elapsed seconds that the log told with it."""

    time: float
    step: int
    elapsed: float | None = None


class _Block:
    """Steps with the same names, of which the first has the count ``first`` and each next one more."""

    def __init__(self, first: int, size: int, columns: dict[str, list[float]]) -> None:
        self.first, self.size, self.columns = first, size, columns

    def take(self, first: int, size: int, columns: dict[str, list[float]]) -> bool:
        """Add steps that go on where these end, if they do."""
        if first != self.first + self.size or columns.keys() != self.columns.keys():
            return False
        for name, column in columns.items():
            self.columns[name] += column
        self.size += size
        return True

    def column(self, name: str) -> Iterable[float | None]:
        return self.columns.get(name) or repeat(None, self.size)

    def steps(self, numbers: list[int], moments: list[float]) -> Part:
        return Steps(numbers, self.first, moments, self.columns)


class _Singles:
    """Steps, and late values of them, one by one."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.values: list[dict[str, float]] = []

    @property
    def size(self) -> int:
        return len(self.counts)

    def column(self, name: str) -> Iterable[float | None]:
        return [values.get(name) for values in self.values]

    def steps(self, numbers: list[int], moments: list[float]) -> Part:
        return list(map(Step, numbers, self.counts, moments, self.values))


class Taken:
    """Steps, and late values of them, as logs tell them, without times of their own.

    Their numbers and, where the log says it, wall times are each in a list: there may be millions.  Their counts and
    values are in parts.
    """

    __slots__ = ("_parts", "has_durations", "has_times", "numbers", "times")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.times: list[float | None] = []
        #: Whether any of them has a time; and step_seconds or elapsed_seconds.
        self.has_times = False
        self.has_durations = False
        self._parts: list[_Block | _Singles] = []

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, number: int, count: int, values: dict[str, float], time: float | None) -> None:
        """Add one."""
        self.numbers.append(number)
        self.times.append(time)
        part = self._parts[-1] if self._parts else None
        if not isinstance(part, _Singles):
            part = _Singles()
            self._parts.append(part)
        part.counts.append(count)
        part.values.append(values)
        self.has_times = self.has_times or time is not None
        self.has_durations = self.has_durations or "step_seconds" in values or "elapsed_seconds" in values

    def extend(self, rows: Rows, first: int) -> None:
        """Add several, of which the first has this count."""
        size, columns = len(rows), rows.columns
        if size < _FEW:
            for count, row in enumerate(rows, first):
                self.add(rows.steps[count - first], count, row.values, row.time)
            return
        self.numbers += rows.steps
        self.times += repeat(None, size) if rows.times is None else rows.times
        part = self._parts[-1] if self._parts else None
        if not isinstance(part, _Block) or not part.take(first, size, columns):
            self._parts.append(_Block(first, size, columns))
        self.has_times = self.has_times or (rows.times is not None and any(time is not None for time in rows.times))
        self.has_durations = self.has_durations or "step_seconds" in columns or "elapsed_seconds" in columns

    def column(self, name: str) -> list[float | None]:
        """Return the values of this name, None where a step has none."""
        return list(chain.from_iterable(part.column(name) for part in self._parts))

    def steps(self, moments: list[float]) -> StepList:
        """Return them with these times."""
        parts, begin = [], 0
        for part in self._parts:
            end = begin + part.size
            parts.append(part.steps(self.numbers[begin:end], moments[begin:end]))
            begin = end
        return StepList(parts)


def spread(taken: Taken, before: Moment | None, changed: float, share: float) -> list[float]:
    """Return the wall times of steps that were read at one go.

    The last one was written when the file was changed last, if nothing of the file is left unread; those before it by
    the durations that the log tells; where it tells none, all at that time.  While a part is unread (``share`` times
    as much as was read), the rest is taken to be like this part, and later parts go on from ``before``.
    Where some of them say when they were, the others follow those.
    """
    own = [moment for moment in taken.times if moment is not None] if taken.has_times else []
    if own and len(own) == len(taken):
        return own
    gaps = _gaps(taken, before)
    span = sum(gaps)
    if own:
        # Some lines say when: the others follow them.
        first = next(place for place, known in enumerate(taken.times) if known is not None)
        moment = own[0] - sum(gaps[: first + 1])
        if before is not None:
            moment = max(moment, before.time)
    elif before is not None and (share > 0.0 or span <= 0.0):
        moment = before.time if share > 0.0 else max(before.time, changed)
    else:
        moment = changed - share * span - span
        if before is not None:
            moment = max(moment, before.time)
    if not own and span <= 0.0:
        return [moment] * len(taken)
    moments = []
    for known, gap in zip(taken.times, gaps, strict=True):
        if known is not None:
            moment = known
        elif moment < changed:
            moment = min(moment + gap, changed)
        moments.append(moment)
    return moments


def with_times(told: Sequence[tuple[int, Event]], moments: Sequence[float], changed: float) -> list[Event]:
    """Return events, each of which comes with the number of the steps before it, of those with these times.

    One that does not say when happened right after the step before it.
    """
    events = []
    for place, event in told:
        if event.time > 0.0:
            events.append(event)
        elif 0 < place <= len(moments):
            events.append(replace(event, time=moments[place - 1]))
        else:
            events.append(replace(event, time=changed))
    return events


def _gaps(taken: Taken, before: Moment | None) -> list[float]:
    """Return the seconds between each step and the one before it, 0.0 where nobody knows."""
    if not taken.has_durations:
        return [0.0] * len(taken)
    step, elapsed = (None, None) if before is None else (before.step, before.elapsed)
    gaps = []
    said = zip(taken.numbers, taken.column("elapsed_seconds"), taken.column("step_seconds"), strict=True)
    for number, now, duration in said:
        if now is not None and elapsed is not None and 0.0 <= now - elapsed < 1e9:
            gap = now - elapsed
        elif duration is not None and step is not None and 0.0 <= duration < 1e9 and number > step:
            gap = duration * (number - step)
        else:
            gap = 0.0
        gaps.append(gap)
        step, elapsed = number, now if now is not None else elapsed
    return gaps
