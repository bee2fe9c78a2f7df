"""When the steps of a log were, where it does not say: from the durations that it tells and the times of its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

#: A step, or late values of one, as a log tells it: its number, its count, its values (of which step_seconds and
#: elapsed_seconds are used here) and, where the log says it, wall time.  Plain, because there may be millions.
Entry: TypeAlias = tuple[int, int, dict[str, float], float | None]


class Moment(NamedTuple):
    """A step whose time is known: wall time, number, and the elapsed seconds that the log told with it."""

    time: float
    step: int
    elapsed: float | None = None


def spread(entries: Sequence[Entry], before: Moment | None, changed: float, share: float) -> list[float]:
    """Return the wall times of steps that were read at one go.

    The last one was written when the file was changed last, if nothing of the file is left unread; those before it by
    the durations that the log tells; where it tells none, all at that time.  While a part is unread (``share`` times
    as much as was read), the rest is taken to be like this part, and later parts go on from ``before``.
    Where some of them say when they were, the others follow those.
    """
    own = [moment for _, _, _, moment in entries if moment is not None]
    if len(own) == len(entries):
        return own
    gaps = _gaps(entries, before)
    span = sum(gaps)
    if own:
        # Some lines say when: the others follow them.
        first = next(place for place, entry in enumerate(entries) if entry[3] is not None)
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
        return [moment] * len(entries)
    moments = []
    for (_, _, _, known), gap in zip(entries, gaps, strict=True):
        moment = known if known is not None else min(moment + gap, max(changed, moment))
        moments.append(moment)
    return moments


def _gaps(entries: Sequence[Entry], before: Moment | None) -> list[float]:
    """Return the seconds between each step and the one before it, 0.0 where nobody knows."""
    if not any("step_seconds" in values or "elapsed_seconds" in values for _, _, values, _ in entries):
        return [0.0] * len(entries)
    step, elapsed = (None, None) if before is None else (before.step, before.elapsed)
    gaps = []
    for number, _, values, _ in entries:
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
