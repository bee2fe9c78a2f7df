"""The statements that write rows.  All can be written again: what is told twice is there once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from trainvitals.journal.rows import (
    KINDS,
    LONGEST_NAME,
    LONGEST_TEXT,
    Attempt,
    Entry,
    Incident,
    Run,
    digest,
    document,
    number,
    text_of,
    whole,
)

#: A statement and its values.
Row: TypeAlias = tuple[str, tuple[object, ...]]

_ENTRY = """INSERT INTO events (key, run, kind, time, node, rank, step, text, details)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO """
_RENEW = "UPDATE SET step = coalesce(excluded.step, step), text = excluded.text, details = excluded.details"
_RUN = """INSERT INTO runs (run, node, began, seen, state, step, target, framework, world_size, details)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, node) DO UPDATE SET
    began = min(began, excluded.began), seen = max(seen, excluded.seen), state = excluded.state,
    step = coalesce(excluded.step, step), target = coalesce(excluded.target, target),
    framework = CASE excluded.framework WHEN '' THEN framework ELSE excluded.framework END,
    world_size = coalesce(excluded.world_size, world_size),
    details = CASE excluded.details WHEN '{}' THEN details ELSE excluded.details END"""
_ATTEMPT = """INSERT INTO attempts
    (key, run, node, rank, attempt, began, seen, ended, state, first_step, last_step, steps, phases)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
    attempt = excluded.attempt, seen = max(seen, excluded.seen), ended = excluded.ended, state = excluded.state,
    first_step = coalesce(first_step, excluded.first_step), last_step = coalesce(excluded.last_step, last_step),
    steps = coalesce(excluded.steps, steps), phases = excluded.phases"""

#: Of an incident's columns, those that are texts, with their most letters; whole numbers; and numbers.
_TEXTS = {
    "cause": 64,
    "category": 64,
    "node": 128,
    "device": 128,
    "decision": LONGEST_TEXT,
    "evidence": 4096,
    "text": LONGEST_TEXT,
}
_WHOLE = ("attempt", "rank", "last_step", "resume_step", "steps_lost")
_NUMBERS = ("detected", "seconds_lost", "seconds_to_recover")
_COLUMNS = (*_TEXTS, *_WHOLE, *_NUMBERS, "details")


def entry(found: Entry, node: str, key: str = "", *, renew: bool = False) -> Row:
    """Return how an entry is written; ``node`` is its own where it says none.

    Raises ValueError for a kind that there is not.
    """
    if found.kind not in KINDS:
        raise ValueError(f"expected one of {', '.join(KINDS)}, found {found.kind!r}")
    run, node = text_of(found.run, LONGEST_NAME), text_of(found.node or node, 128)
    details = document(found.details)
    natural = key or f"{node}\0{found.time:.3f}\0{found.rank}\0{found.step}\0{found.text}\0{details}"
    values = (
        digest(run, found.kind, natural),
        *(run, found.kind, number(found.time) or 0.0, node, whole(found.rank), whole(found.step)),
        *(text_of(found.text), details),
    )
    return _ENTRY + (_RENEW if renew else "NOTHING"), values


def run(found: Run, node: str) -> Row:
    """Return how a run is written."""
    return _RUN, (
        *(text_of(found.run, LONGEST_NAME), text_of(found.node or node, 128)),
        *(number(found.began) or 0.0, number(found.seen) or 0.0, text_of(found.state, 32)),
        *(whole(found.step), whole(found.target), text_of(found.framework, 64), whole(found.world_size)),
        document(found.details),
    )


def attempt(found: Attempt, node: str, key: str = "") -> Row:
    """Return how an attempt is written."""
    run, node = text_of(found.run, LONGEST_NAME), text_of(found.node or node, 128)
    phases = {text_of(name, 32): round(seconds, 3) for name, seconds in list(found.phases.items())[:32]}
    return _ATTEMPT, (
        digest(run, node, found.rank, key or f"{found.began:.3f}"),
        *(run, node, whole(found.rank) or 0, whole(found.attempt) or 0),
        *(number(found.began) or 0.0, number(found.seen) or 0.0, number(found.ended), text_of(found.state, 32)),
        *(whole(found.first_step), whole(found.last_step), whole(found.steps)),
        json.dumps(phases, separators=(",", ":")),
    )


def incident_id(run: str, key: str) -> int:
    """Return the id of an incident, by what it is known by."""
    return int.from_bytes(digest(run, key)[:8], "big") >> 1


def incident(found: Incident) -> Row:
    """Return how an incident is written; one that is there stays."""
    values = {name: _value(name, getattr(found, name)) for name in _COLUMNS}
    marks = ", ".join("?" * (len(values) + 2))
    statement = f"INSERT INTO incidents (id, run, {', '.join(values)}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
    return statement, (found.id, text_of(found.run, LONGEST_NAME), *values.values())


def incident_update(incident: int, columns: Mapping[str, Any]) -> Row:
    """Return how columns of an incident are written.  Raises TypeError for one that there is not."""
    unknown = [name for name in columns if name not in _COLUMNS]
    if unknown or not columns:
        raise TypeError(f"expected some of {', '.join(_COLUMNS)}, found {', '.join(unknown) or 'none'}")
    values = [_value(name, value) for name, value in columns.items()]
    sets = ", ".join(f"{name} = ?" for name in columns)
    return f"UPDATE incidents SET {sets} WHERE id = ?", (*values, incident)  # noqa: S608


def _value(name: str, value: Any) -> object:
    if name in _TEXTS:
        return text_of(value, _TEXTS[name])
    if name in _WHOLE:
        return (whole(value) or 0) if name == "attempt" else whole(value)
    if name in _NUMBERS:
        return (number(value) or 0.0) if name == "detected" else number(value)
    return document(value)
