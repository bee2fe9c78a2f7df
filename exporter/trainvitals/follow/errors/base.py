"""What a row of the table of errors is, and how rows are ranked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum
from re import Pattern


class Level(IntEnum):
    """How much an error explains; the lower, the nearer to the root of a cascade."""

    #: Starts cascades and needs no other explanation: a full memory, a full disk, a damaged file.
    ROOT = 1
    #: Names who is to blame, but not why: a process that was killed, ranks that did not join a collective.
    BLAMED = 2
    #: Tells that something went wrong: an exception, a timeout, a stop from outside.  The first one counts.
    SYMPTOM = 3
    #: Follows something else: a launcher that reports a child, an actor that died.  Better than nothing.
    CASCADE = 4
    #: Harmless by itself, or an echo that explains nothing.  Never a root cause.
    NOTICE = 5


@dataclass(frozen=True, slots=True)
class Cause:
    """One row: a line with one of ``needles`` in it that ``pattern`` is found in tells this cause.

    Groups of ``pattern`` are the details of an event; see :data:`trainvitals.follow.errors.reader.DETAILS`.
    """

    name: str
    category: str
    level: Level
    needles: tuple[str, ...]
    pattern: Pattern[str] = field(repr=False)
    sample: str
    meaning: str
    action: str


Row = tuple[str, str, Level, tuple[str, ...], str, str, str, str]


def causes(*rows: Row) -> tuple[Cause, ...]:
    """Return the rows with their patterns compiled."""
    return tuple(
        Cause(name, category, level, needles, re.compile(pattern), sample, meaning, action)
        for name, category, level, needles, pattern, sample, meaning, action in rows
    )
