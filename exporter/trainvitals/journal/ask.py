"""Questions to a journal.  ``Ask`` runs SQL and returns all rows, whoever opened the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, TypeAlias, TypeVar

from trainvitals.journal.rows import Attempt, Entry, Incident, Run, details_of

Ask: TypeAlias = Callable[[str, Sequence[object]], Sequence[tuple[Any, ...]]]
Row = TypeVar("Row", Run, Attempt, Entry, Incident)

_TABLES = {Run: "runs", Attempt: "attempts", Entry: "events", Incident: "incidents"}


def runs(ask: Ask) -> list[Run]:
    """Return the runs, the one that was seen last first; one for each node that has ranks of it."""
    return _select(ask, Run, "ORDER BY seen DESC")


def names(ask: Ask) -> list[str]:
    """Return the names of all runs that anything is known of."""
    found = {str(row[0]) for row in ask("SELECT run FROM runs UNION SELECT run FROM incidents", ())}
    # From name to name by the index: there are many events, and few names.
    name: object = ""
    while (name := ask("SELECT min(run) FROM events WHERE run > ?", (name,))[0][0]) is not None:
        found.add(str(name))
    return sorted(found - {""})


def attempts(ask: Ask, run: str) -> list[Attempt]:
    """Return the processes of a run in the order of their start."""
    return _select(ask, Attempt, "WHERE run = ? ORDER BY began, rank", run)


def events(
    ask: Ask,
    run: str | None,
    *,
    kinds: Collection[str] = (),
    since: float | None = None,
    until: float | None = None,
    since_step: int | None = None,
    last: int | None = None,
) -> list[Entry]:
    """Return entries of a run ("": of the node, None: of all) in the order of their times.

    ``since`` and ``until`` are times, both included; with ``last`` only so many, the newest.
    """
    conditions: list[tuple[str, object]] = [
        ("run = ?", run),
        ("time >= ?", since),
        ("time <= ?", until),
        ("step >= ?", since_step),
    ]
    given = [(condition, value) for condition, value in conditions if value is not None]
    where = ["1", *(condition for condition, _ in given)]
    if kinds:
        where.append(f"kind IN ({', '.join('?' * len(kinds))})")
    values = (*(value for _, value in given), *kinds, -1 if last is None else last)
    return _select(ask, Entry, f"WHERE {' AND '.join(where)} ORDER BY time DESC, id DESC LIMIT ?", *values)[::-1]


def incidents(ask: Ask, run: str | None = None, *, since: float | None = None) -> list[Incident]:
    """Return the interruptions of a run, or of all, in the order in which they were detected."""
    rest = "WHERE (?1 IS NULL OR run = ?1) AND (?2 IS NULL OR detected >= ?2) ORDER BY detected, id"
    return _select(ask, Incident, rest, run, since)


class Total(NamedTuple):
    """The interruptions of a run by one cause: how many, what they cost as far as is known, and when the last was."""

    run: str
    cause: str
    times: int
    steps_lost: int | None
    seconds_lost: float | None
    seconds_to_recover: float | None
    last: float


def totals(ask: Ask, most: int) -> list[Total]:
    """Return the interruptions of each run by cause, those with the newest first, at most so many."""
    rows = ask(
        "SELECT run, cause, count(*), sum(steps_lost), sum(seconds_lost), sum(seconds_to_recover), max(detected)"
        " FROM incidents GROUP BY run, cause ORDER BY max(detected) DESC LIMIT ?",
        (most,),
    )
    return [Total(*row) for row in rows]


def _select(ask: Ask, row: type[Row], rest: str, *values: object) -> list[Row]:
    columns = {field.name: str(field.type) for field in fields(row)}
    make: Callable[..., Row] = row
    found = []
    for values_of_row in ask(f"SELECT {', '.join(columns)} FROM {_TABLES[row]} {rest}", values):  # noqa: S608  our names
        try:
            read = map(_read, columns.values(), values_of_row)
            found.append(make(**dict(zip(columns, read, strict=True))))
        except ValueError:
            # SQLite keeps whatever is put into a column, and anybody may have: a row that makes no sense costs itself.
            continue
    return found


def _read(kind: str, value: object) -> object:
    """Return a value as the annotation of its field says.  Raises ValueError where it is none of that."""
    if value is None and kind.endswith("None"):
        return None
    if kind.startswith("str"):
        return value if isinstance(value, str) else str(value)
    if kind.startswith("dict"):
        known = details_of(value)
        return {name: number for name, number in known.items() if _is_number(number)} if "float" in kind else known
    if not _is_number(value) or (kind.startswith("int") and not isinstance(value, int)):
        raise ValueError(kind)
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
