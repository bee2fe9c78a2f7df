"""Which of many events began it all."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

from trainvitals.follow.errors.base import Level
from trainvitals.telemetry import Event

#: An error after which so many steps were made did not end the run; other ranks make some before they notice.
_SURVIVED = 10


def root_cause(events: Iterable[Event], newest_step: int = -1) -> Event | None:
    """Return the event that explains the others best, None where none of them is the end of anything.

    What the run survived is passed over; ``newest_step`` is its last one, where that is known.  Of the other events of
    the kind ``log_error`` those win that need no other explanation (:class:`Level`), and of these the earliest: by
    time where both have one, else in the order in which they come.  The event has one field more, ``reason``: why
    this one, and what is beside it.
    """
    known = [event for event in events if event.kind == "log_error" and event.fields.get("level", 9) < Level.NOTICE]
    newest = max([newest_step, *(event.step for event in known[-1:])])
    known = [event for event in known if event.step < 0 or newest - event.step <= _SURVIVED]
    if not known:
        return None
    level = min(event.fields["level"] for event in known)
    equals = [event for event in known if event.fields["level"] == level]
    first = equals[0]
    for event in equals[1:]:
        if event.time and first.time and event.time < first.time:
            first = event
    first = _same_with_rank(first, equals)
    return dataclasses.replace(first, fields={**first.fields, "reason": _reason(first, equals, known)})


def _same_with_rank(first: Event, equals: list[Event]) -> Event:
    """Return what tells of the same process with its rank, if anything does: launchers tell of it twice."""
    pid = first.fields.get("pid")
    if pid is not None and "rank" not in first.fields:
        for event in equals:
            if (
                event.fields.get("pid") == pid
                and "rank" in event.fields
                and event.fields["cause"] == first.fields["cause"]
            ):
                return event
    return first


_WHY = {
    Level.ROOT: "needs no other explanation",
    Level.BLAMED: "names who failed, but not why",
    Level.SYMPTOM: "is the first sign; what caused it is not in this log",
    Level.CASCADE: "is all that this log tells; the reason stands elsewhere",
}


def _reason(first: Event, equals: list[Event], known: list[Event]) -> str:
    words = [_WHY[Level(first.fields["level"])]]
    if len(equals) > 1:
        words.append(f"the earliest of {len(equals)}")
    others = Counter(event.fields["cause"] for event in known if event is not first)
    if others:
        words.append("beside it " + ", ".join(f"{cause} ({count})" for cause, count in others.most_common(5)))
    return "; ".join(words)
