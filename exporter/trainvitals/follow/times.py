"""When the steps of a log were, where it does not say: from the durations that it tells and the times of its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

from trainvitals.telemetry import Event, Step


class Moment(NamedTuple):
    """A step whose time is known: wall time, number, and the elapsed seconds that the log told with it."""

    time: float
    step: int
    elapsed: float | None = None


class Taken:
    """Steps, and late values of them, as logs tell them, without times of their own.

    Their numbers, counts, values (of which step_seconds and elapsed_seconds are used here) and, where the log says
    it, wall times, each in a list: there may be millions.
    """

    __slots__ = ("counts", "has_durations", "numbers", "times", "values")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.counts: list[int] = []
        self.values: list[dict[str, float]] = []
        self.times: list[float | None] = []
        #: Whether any of them has step_seconds or elapsed_seconds.
        self.has_durations = False

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, number: int, count: int, values: dict[str, float], time: float | None) -> None:
        """Add one."""
        self.numbers.append(number)
        self.counts.append(count)
        self.values.append(values)
        self.times.append(time)
        self.has_durations = self.has_durations or "step_seconds" in values or "elapsed_seconds" in values

    def extend(
        self, numbers: list[int], first: int, values: list[dict[str, float]], times: Sequence[float | None] | None
    ) -> None:
        """Add several with the same names, of which the first has this count."""
        self.numbers += numbers
        self.counts += range(first, first + len(numbers))
        self.values += values
        self.times += repeat(None, len(numbers)) if times is None else times
        self.has_durations = self.has_durations or "step_seconds" in values[0] or "elapsed_seconds" in values[0]

    def steps(self, moments: Sequence[float]) -> list[Step]:
        """Return them with these times."""
        return list(map(Step, self.numbers, self.counts, moments, self.values))


def spread(taken: Taken, before: Moment | None, changed: float, share: float) -> list[float]:
    """Return the wall times of steps that were read at one go.

    The last one was written when the file was changed last, if nothing of the file is left unread; those before it by
    the durations that the log tells; where it tells none, all at that time.  While a part is unread (``share`` times
    as much as was read), the rest is taken to be like this part, and later parts go on from ``before``.
    Where some of them say when they were, the others follow those.
    """
    own = [moment for moment in taken.times if moment is not None]
    if len(own) == len(taken):
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
    for number, values in zip(taken.numbers, taken.values, strict=True):
        now, duration = values.get("elapsed_seconds"), values.get("step_seconds")
        if now is not None and elapsed is not None and 0.0 <= now - elapsed < 1e9:
            gap = now - elapsed
        elif duration is not None and step is not None and 0.0 <= duration < 1e9 and number > step:
            gap = duration * (number - step)
        else:
            gap = 0.0
        gaps.append(gap)
        step, elapsed = number, now if now is not None else elapsed
    return gaps
