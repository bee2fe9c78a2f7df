"""What the rows of the journal hold, and how what anybody wrote becomes one: cut, cleaned, and with a natural key."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: What an entry can be.  ``phase`` to ``event`` are told by a training, ``finding`` and ``over`` by the detectors,
#: ``device`` and ``kernel`` by the node, ``note`` and ``command`` by people.
KINDS = (
    "phase",
    "checkpoint",
    "evaluation",
    "change",
    "restart",
    "data_error",
    "error",
    "log",
    "event",
    "finding",
    "over",
    "device",
    "kernel",
    "note",
    "command",
)
#: Letters of a run's name, of a text, and of the JSON of details.
LONGEST_NAME, LONGEST_TEXT, LONGEST_DETAILS = 256, 600, 16_000
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that happened.  ``run`` is empty where it belongs to the node; None is what is not known.

    ``time`` is in seconds since the epoch, ``details`` is what JSON can hold.
    """

    kind: str
    run: str
    time: float
    node: str = ""
    rank: int | None = None
    step: int | None = None
    text: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run: when it was first and last seen, and how far it came."""

    run: str
    node: str = ""
    began: float
    seen: float
    state: str = ""
    step: int | None = None
    target: int | None = None
    framework: str = ""
    world_size: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One process of a rank, from its start to its end (None while it lives); ``phases`` are its seconds in each."""

    run: str
    node: str
    rank: int
    attempt: int
    began: float
    seen: float
    ended: float | None = None
    state: str = ""
    first_step: int | None = None
    last_step: int | None = None
    steps: int | None = None
    phases: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An interruption of a run; what is not known yet is None.

    ``seconds_lost`` is work that is done again; ``seconds_to_recover`` lie between the last step before it and the
    first step after it, whatever step that is.
    """

    id: int
    run: str
    attempt: int
    cause: str
    category: str = ""
    node: str = ""
    device: str = ""
    rank: int | None = None
    detected: float
    last_step: int | None = None
    resume_step: int | None = None
    steps_lost: int | None = None
    seconds_lost: float | None = None
    seconds_to_recover: float | None = None
    decision: str = ""
    evidence: str = ""
    text: str = ""
    details: dict[str, Any] = field(default_factory=dict)


def digest(*parts: object) -> bytes:
    """Return the natural key of a row: 16 bytes that are the same for the same parts."""
    text = "\0".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def text_of(value: object, longest: int = LONGEST_TEXT) -> str:
    """Return a text as a row can hold it: so many letters, without what is none."""
    return str(value)[:longest].replace("\0", " ").encode("utf-8", "replace").decode()


def whole(value: int | None) -> int | None:
    """Return a number that SQLite can hold, or None."""
    return None if value is None or not -_LARGEST <= value <= _LARGEST else int(value)


def number(value: float | None) -> float | None:
    """Return a number that is one, or None."""
    return None if value is None or not math.isfinite(value) else float(value)


def document(details: Mapping[str, Any] | None) -> str:
    """Return details as JSON; what JSON does not know is told as Python does, and what is too long is left out."""
    if not details:
        return "{}"
    text = json.dumps(dict(details), default=repr, separators=(",", ":"), skipkeys=True)
    if len(text) > LONGEST_DETAILS:
        short = {str(name): value for name, value in details.items() if isinstance(value, (int, float, bool))}
        text = json.dumps({**dict(list(short.items())[:64]), "cut": True}, separators=(",", ":"))
    return text


def details_of(text: object) -> dict[str, Any]:
    """Return what :func:`document` wrote; nothing where it is damaged."""
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
