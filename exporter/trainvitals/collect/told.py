"""What the events of a training are called in the journal, and what is said of them there in one line."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Mapping
from typing import Any

from trainvitals import orders
from trainvitals.collect.log_errors import KIND as LOG_ERROR
from trainvitals.collect.source import Source
from trainvitals.journal import Entry
from trainvitals.metrics import LOGGED_STATES
from trainvitals.telemetry import Event

#: Kinds of events with another name there; others that the journal does not know are an ``event``.
_KINDS = {
    "checkpoint": "checkpoint",
    "evaluation": "evaluation",
    "data": "data_error",
    "data_error": "data_error",
    "exception": "error",
    "interrupted": "error",
    "order": "command",
    LOG_ERROR: "log",
}
#: What is told elsewhere: by the changes of a run, and by its attempts.
_LEFT_OUT = frozenset({"lineage", "change", "restart", "start"})
#: Results of an evaluation that are said.
_MOST_RESULTS = 4


def entry_of(event: Event, source: Source, now: float) -> Entry | None:
    """Return what the journal keeps of an event; None for what it has from elsewhere."""
    if event.kind in _LEFT_OUT or (event.kind == "order" and event.fields.get("state") == "seen"):
        return None
    kind = _KINDS.get(event.kind, "event")
    rank = event.fields.get("rank", source.identity.rank)
    return Entry(
        kind=kind,
        run=source.run,
        time=event.time if 0.0 < event.time < math.inf else now,
        rank=rank if isinstance(rank, int) else source.identity.rank,
        step=event.step if event.step >= 0 else None,
        text=_text(event),
        details={**event.fields, "kind": event.kind} if kind == "event" else dict(event.fields),
    )


def key_of(event: Event, source: Source, number: int) -> str:
    """Return what an event is known by whenever it is read again.

    In a log it is known by its number, for where the lines have no times those are other ones then.
    """
    when: Hashable = number if source.states == LOGGED_STATES else f"{event.time:.3f}"
    fields = json.dumps(event.fields, default=repr, sort_keys=True, skipkeys=True)
    content = hashlib.blake2b(f"{event.kind}\0{event.step}\0{fields}".encode("utf-8", "replace"), digest_size=8)
    return f"{source.incarnation}\0{when}\0{content.hexdigest()}"


def _text(event: Event) -> str:
    fields = event.fields
    if event.kind in {"checkpoint", "order"}:
        return _checkpoint(fields) if event.kind == "checkpoint" else _order(fields)
    if event.kind == "evaluation":
        values = fields.get("values")
        results = list(values.items())[:_MOST_RESULTS] if isinstance(values, dict) else []
        told = ", ".join(f"{name} {_number(value)}" for name, value in results)
        return " ".join(part for part in (str(fields.get("name") or ""), told) if part)
    if event.kind in {"exception", "interrupted"}:
        return ": ".join(str(fields[name]) for name in ("type", "message") if fields.get(name))
    if event.kind == LOG_ERROR:
        return f"{str(fields.get('cause', '')).replace('_', ' ')}: {fields.get('text', '')}"
    if event.kind in {"data", "data_error"}:
        named = [str(fields[name]) for name in ("reason", "error", "message", "file", "name") if fields.get(name)]
        return ": ".join(named) or event.kind.replace("_", " ")
    message = fields.get("message")
    return f"{event.kind}: {message}" if message else event.kind


def _checkpoint(fields: Mapping[str, Any]) -> str:
    done = {"save": "saved", "load": "loaded"}.get(str(fields.get("action")), str(fields.get("action") or "written"))
    if fields.get("ok") is False:
        failed = {"saved": "save", "loaded": "load"}.get(done, done)
        return f"{failed} failed: {fields.get('error', 'no reason told')}"
    seconds, path = fields.get("seconds"), fields.get("path")
    took = f" in {seconds:.3g} s" if isinstance(seconds, (int, float)) else ""
    return f"{done}{took}{f': {path}' if path else ''}"


def _order(fields: Mapping[str, Any]) -> str:
    values = fields.get("values")
    words = orders.in_words(str(fields.get("what") or "order"), values if isinstance(values, dict) else {})
    text = f": {fields['text']}" if fields.get("text") else ""
    return f"{words}, {fields.get('state')}{text} (by {fields.get('by') or 'nobody known'})"


def _number(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, (int, float)) else str(value)
