"""When the steps of a log were, where it does not say: from the durations that it tells and the times of its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Timed(Protocol):
    """A step with its own time, or none."""

    @property
    def step(self) -> int:
        """Its number."""

    @property
    def values(self) -> dict[str, float]:
        """Its values; step_seconds and elapsed_seconds are used."""

    @property
    def time(self) -> float | None:
        """Wall time, where the log says it."""


class Moment(NamedTuple):
    """A step whose time is known: wall time, number, and the elapsed seconds that the log told with it."""

    time: float
    step: int
    elapsed: float | None = None


def spread(entries: Sequence[Timed], before: Moment | None, changed: float, share: float) -> list[float]:
    """Return the wall times of steps that were read at one go.

    The last one was written when the file was changed last, if nothing of the file is left unread; those before it by
    the durations that the log tells; where it tells none, all at that time.  While a part is unread (``share`` times
    as much as was read), the rest is taken to be like this part, and later parts go on from ``before``.
    """
    own = [entry.time for entry in entries]
    if None not in own:
        return [moment for moment in own if moment is not None]
    gaps = _gaps(entries, before)
    span = sum(gaps)
    if before is not None and (share > 0.0 or span <= 0.0):
        moment = before.time
        if span <= 0.0 and share <= 0.0:
            moment = max(moment, changed)
    else:
        moment = changed - share * span - span
        if before is not None:
            moment = max(moment, before.time)
    moments = []
    for entry, gap in zip(entries, gaps, strict=True):
        moment = entry.time if entry.time is not None else min(moment + gap, max(changed, moment))
        moments.append(moment)
    return moments


def _gaps(entries: Sequence[Timed], before: Moment | None) -> list[float]:
    """Return the seconds between each step and the one before it, 0.0 where nobody knows."""
    step, elapsed = (None, None) if before is None else (before.step, before.elapsed)
    gaps = []
    for entry in entries:
        now, duration = entry.values.get("elapsed_seconds"), entry.values.get("step_seconds")
        if now is not None and elapsed is not None and 0.0 <= now - elapsed < 1e9:
            gap = now - elapsed
        elif duration is not None and step is not None and 0.0 <= duration < 1e9 and entry.step > step:
            gap = duration * (entry.step - step)
        else:
            gap = 0.0
        gaps.append(gap)
        step, elapsed = entry.step, now if now is not None else elapsed
    return gaps
