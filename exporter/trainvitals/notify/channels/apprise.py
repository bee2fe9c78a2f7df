"""Everything that the library Apprise reaches, by one of its addresses: some 190 services.

It tells whether a message was accepted, and not why it was not; what it says of DingTalk and WeCom is not to be
trusted (docs/notify.md), for which there are channels of our own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from trainvitals.notify.channels import secret
from trainvitals.notify.channels.base import LATER, REFUSED, Answer, Note, Post, markdown

_TYPES = {"critical": "failure", "warning": "warning", "info": "info", "resolved": "success"}


@dataclass(frozen=True)
class Apprise:
    """A service by its Apprise address, which holds its secrets and so is read from a file."""

    url_file: str

    kind: ClassVar[str] = "apprise"
    limit: ClassVar[int] = 4_000
    per_minute: ClassVar[float] = 20.0

    def write(self, note: Note) -> str:
        """Return markdown, which Apprise turns into what the service knows; the title goes apart."""
        return markdown(Note("", note.level, note.blocks, note.footer))

    async def send(self, note: Note, text: str, post: Post, now: float) -> Answer:  # noqa: ARG002
        """Send it; see :class:`trainvitals.notify.channels.base.Channel`.  Raises ImportError without the library."""
        import apprise  # noqa: PLC0415  An extra of its own, of 190 modules.

        sender = apprise.Apprise()
        if not sender.add(secret.read(self.url_file)):
            return Answer(REFUSED, "address", "no address that Apprise knows")
        accepted = await asyncio.wait_for(
            sender.async_notify(
                body=text,
                title=note.title,
                notify_type=apprise.NotifyType(_TYPES.get(note.level, "info")),
                body_format=apprise.NotifyFormat.MARKDOWN,
            ),
            timeout=30.0,
        )
        return Answer() if accepted else Answer(LATER, "refused", "Apprise says no, and not why")
