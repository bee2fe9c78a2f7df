"""What a channel is: how a robot wants to be asked, and what its answers mean.

A new one is one file with one class, and one row in :data:`trainvitals.notify.channels.CHANNELS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

#: A robot says "slow down" or "not now": the message is tried again.
LATER = "later"
#: It will never take this message: somebody must change something.
REFUSED = "refused"


#: All reasons that an answer may have.  Each is a series from the start: a counter that begins at 1 has no increase, so
#: that the alert would miss the one failure of a message that nobody sends again.
REASONS = (
    *("address", "content", "keyword", "robot", "signature", "token", "refused"),
    *("down", "no_answer", "throttled", "rate", "timeout", "unreachable"),
    *("library", "secret"),
)


@dataclass(frozen=True)
class Answer:
    """What became of one sending.  ``kind`` is empty when it was accepted; ``reason`` is one word for the counter.

    ``text`` is the robot's own, for the log.  For ``pause`` seconds it wants to hear nothing.
    """

    kind: str = ""
    reason: str = ""
    text: str = ""
    pause: float = 0.0


@dataclass(frozen=True)
class Note:
    """A text for one message, free of any channel.

    ``title`` is one line, ``blocks`` are alerts: a heading (empty where the title says it), pairs of label (with its
    colon) and text, and links of text and address.
    ``level`` is "critical", "warning", "info" or "resolved".
    """

    title: str
    level: str
    blocks: tuple[Block, ...] = ()
    footer: str = ""


@dataclass(frozen=True)
class Block:
    """One alert in a note."""

    heading: str
    fields: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Request:
    """What is posted: an address (which holds a secret and is never logged) and a body for JSON."""

    url: str
    body: dict[str, Any] = field(default_factory=dict)


class Channel(Protocol):
    """One robot.  Made from its settings, with the secrets read from their files at each sending.

    ``kind`` is its word in the settings.  ``limit`` is the size of the text of :meth:`write` in bytes of UTF-8, at
    most; ``per_minute`` is how many messages it takes.
    """

    kind: ClassVar[str]
    limit: ClassVar[int]
    per_minute: ClassVar[float]

    def write(self, note: Note) -> str:
        """Return the note in the robot's markup."""

    async def send(self, note: Note, text: str, post: Post, now: float) -> Answer:
        """Send it; ``now`` is wall time.  Raises OSError or ValueError when it cannot even be tried."""


class Post(Protocol):
    """Posts JSON and returns status and body; raises OSError for what did not come back."""

    async def __call__(self, request: Request) -> tuple[int, Mapping[str, Any]]:
        """Post."""


def markdown(note: Note, *, heading: str = "### ", line: str = "\n\n", strong: str = "**") -> str:
    """Return a note in the markdown that most robots share."""
    parts = [f"{heading}{note.title}"] if note.title else []
    for block in note.blocks:
        if block.heading:
            parts.append(f"{strong}{block.heading}{strong}")
        parts += [f"{name}{text}" for name, text in block.fields]
        if block.links:
            parts.append(" | ".join(f"[{text}]({address})" for text, address in block.links))
    if note.footer:
        parts.append(note.footer)
    return line.join(parts)


def by_code(
    status: int, answer: Mapping[str, Any], codes: Sequence[str], later: Mapping[int, float], ours: Mapping[int, str]
) -> Answer:
    """Return what an answer means in which a number says so, 0 being good.

    ``codes`` are the names that the number may have.  ``later`` are numbers that say "slow down", with the seconds to
    wait; ``ours`` are words for the reasons of others.  A status of 429 or 5xx is no refusal either.
    """
    found = [answer[name] for name in codes if isinstance(answer.get(name), int)]
    code = int(found[0]) if found else None
    text = str(next((answer[name] for name in ("errmsg", "msg", "StatusMessage") if answer.get(name)), ""))[:200]
    if code == 0 and status < 400:
        return Answer()
    if code is not None and code in later:
        return Answer(LATER, "throttled", f"{code} {text}", later[code])
    if status == 429:
        return Answer(LATER, "throttled", f"HTTP {status} {text}", 60.0)
    if status >= 500 or code == -1:
        return Answer(LATER, "down", f"HTTP {status} {text}")
    if code is None:
        # A proxy or a portal answered in its place: that passes, or somebody sees it in the log.
        return Answer(LATER, "no_answer", f"HTTP {status} without a code")
    return Answer(REFUSED, ours.get(code, "refused"), f"{code} {text}")
