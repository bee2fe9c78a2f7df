"""The time line of a run: rows in order, what several ranks tell once; since when it goes wrong, what came before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainvitals.history.books import Story
from trainvitals.history.lives import Life, interruptions, is_wanted, lives
from trainvitals.journal import Entry, Incident

#: What can be the cause of a finding; symptoms are not.
SUSPECTS = ("change", "restart", "data_error", "error", "log", "device", "kernel", "note", "command")
MOST_SUSPECTS = 3
#: Seconds within which the same words of several ranks are one row.
_TOGETHER = 60.0
#: Seconds by which the times of steps are known: a cause at the step of a finding may seem to come after it.
_KNOWN_TO = 60.0
_BAD = ("died", "failed")


@dataclass(frozen=True)
class Row:
    """One row: ``ranks`` are those that told it, ``details`` what is known besides."""

    time: float
    kind: str
    text: str
    step: int | None = None
    ranks: tuple[int, ...] = ()
    node: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What goes wrong, since when, and what came before.

    ``onset`` is the first finding that is still on, or how the run ended if that was bad; ``others`` are on as well,
    and ``over`` are the last findings that are not on any more, and interruptions, where nothing is.
    """

    onset: Row | None
    others: tuple[Row, ...]
    over: tuple[Row, ...]
    before: tuple[Row, ...]
    rows: tuple[Row, ...]
    state: str


def tell(story: Story) -> Answer:
    """Return the time line of a run, and what it says."""
    found = lives(story.attempts)
    incidents = interruptions(found, story.incidents)
    # The lives tell of the restarts that they saw.
    entries = [one for one in story.entries if one.kind != "restart" or not _is_seen(one, found)]
    rows = [*map(_row, (*entries, *story.nodes)), *map(_incident, incidents), *_ends(found)]
    rows = list(merged(sorted(rows, key=lambda row: row.time)))
    active, over = _findings(story.entries)
    state = max(story.runs, key=lambda one: one.seen).state if story.runs else ""
    active.sort(key=lambda row: row.time)
    onset = active[0] if active else None
    if onset is None and state in _BAD:
        onset = next((row for row in reversed(rows) if row.kind in {"incident", "end"}), None)
    over = sorted([*over, *(row for row in rows if row.kind == "incident")], key=lambda row: row.time)
    suspects = [row for row in rows if row.kind in SUSPECTS]
    anchor = onset or (over[-1] if over else None)
    before = () if anchor is None else tuple(row for row in suspects if _is_before(row, anchor))[-MOST_SUSPECTS:]
    last = () if onset is not None else tuple(over[-MOST_SUSPECTS:])
    return Answer(onset, tuple(active[1:]), last, before[::-1], tuple(rows), state)


def merged(rows: Iterable[Row]) -> Iterable[Row]:
    """Put the same words of several ranks, at one step and about one time, into one row."""
    found: list[Row] = []
    last: dict[tuple[object, ...], int] = {}
    for row in rows:
        key = (row.kind, row.step, row.node, row.text)
        place = last.get(key)
        if place is not None and row.time - found[place].time <= _TOGETHER and set(row.ranks) - set(found[place].ranks):
            ranks = tuple(sorted({*found[place].ranks, *row.ranks}))
            found[place] = replace(found[place], ranks=ranks)
        else:
            last[key] = len(found)
            found.append(row)
    return found


def since(rows: Sequence[Row], *, step: int | None = None, time: float | None = None) -> list[Row]:
    """Return the rows from a step or a time on; a row without a step belongs to the time of those around it."""
    if time is not None:
        return [row for row in rows if row.time >= time]
    if step is None:
        return list(rows)
    first = next((row.time for row in rows if row.step is not None and row.step >= step), None)
    if first is None:
        return []
    return [row for row in rows if (row.step >= step if row.step is not None else row.time >= first)]


def _row(entry: Entry) -> Row:
    ranks = () if entry.rank is None else (entry.rank,)
    return Row(entry.time, entry.kind, entry.text, entry.step, ranks, entry.node, entry.details)


def _incident(found: Incident) -> Row:
    parts = [found.cause.replace("_", " "), f"({found.category})" if found.category else ""]
    where = [f"device {found.device}" if found.device else "", f"on {found.node}" if found.node else ""]
    lost = f"{found.steps_lost} steps lost" if found.steps_lost is not None else ""
    told = " ".join(part for part in (*parts, *where) if part)
    text = "; ".join(part for part in (told, lost, found.decision, found.text) if part)
    ranks = () if found.rank is None else (found.rank,)
    kind = "command" if is_wanted(found) else "incident"
    return Row(found.detected, kind, text, found.last_step, ranks, found.node, dict(found.details))


def _ends(found: Sequence[Life]) -> Iterable[Row]:
    for place, life in enumerate(found):
        nodes = ", ".join(sorted({one.node for one in life.processes})[:3])
        count = len({one.rank for one in life.processes})
        began = f"attempt {life.attempt} began on {nodes}, {count} rank{'s' * (count > 1)} seen"
        yield Row(life.began, "restart" if place else "start", began, life.first_step)
        states = {one.state for one in life.processes}
        if place == len(found) - 1 and "running" not in states:
            state = next((state for state in _BAD if state in states), max(states))
            broken = () if life.broken is None else (life.broken.rank,)
            yield Row(life.ended, "end", f"attempt {life.attempt} {state}", life.last_step, broken)


def _is_seen(restart: Entry, found: Sequence[Life]) -> bool:
    return any(abs(life.began - restart.time) <= 2 * _TOGETHER for life in found[1:])


def _findings(entries: Sequence[Entry]) -> tuple[list[Row], list[Row]]:
    """Return the findings that are on, and those that are over, in the order in which they ended."""
    active: dict[object, Row] = {}
    over: list[Row] = []
    for entry in entries:
        signal = entry.details.get("signal")
        if entry.kind == "finding":
            # The same signal since another step is a new finding, but the first still says when it began.
            active.setdefault(signal, _row(entry))
        elif entry.kind == "over" and signal in active:
            over.append(active.pop(signal))
    return list(active.values()), over


def _is_before(row: Row, anchor: Row) -> bool:
    # Steps come again after a restart, and an interruption has a time of its own.
    by_step = anchor.kind == "finding" and row.kind != "restart"
    if by_step and row.step is not None and anchor.step is not None:
        return row.step <= anchor.step and row.time <= anchor.time + _KNOWN_TO
    return row.time <= anchor.time + (0.0 if row.kind == "restart" else 1.0)
