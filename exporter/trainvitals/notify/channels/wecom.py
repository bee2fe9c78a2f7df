"""WeCom's group robots.

Source: WeCom's developer center, "group robot configuration": the key in the address is the only secret; markdown of
4,096 bytes at most; 20 messages a minute.  A refusal comes with status 200 and an errcode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote, urlencode

from trainvitals.notify.channels import secret
from trainvitals.notify.channels.base import Answer, Note, Post, Request, by_code, markdown

URL = "https://qyapi.weixin.qq.com/cgi-bin/webhook/send"
_LATER = {45009: 60.0, 45033: 10.0}
_OURS = {93000: "token", 93004: "robot", 40058: "content", 44004: "content", 45002: "content"}
_COLORS = {"critical": "warning", "warning": "warning", "resolved": "info", "info": "comment"}


@dataclass(frozen=True)
class WeCom:
    """A robot by the key in its address."""

    key_file: str
    url: str = URL

    kind: ClassVar[str] = "wecom"
    limit: ClassVar[int] = 4_000
    per_minute: ClassVar[float] = 18.0

    def write(self, note: Note) -> str:
        """Return markdown, with the title in the color of the level."""
        color = _COLORS.get(note.level, "comment")
        title = f'<font color="{color}">{note.title}</font>' if note.title else ""
        return markdown(Note(title, note.level, note.blocks, note.footer), line="\n")

    async def send(self, note: Note, text: str, post: Post, now: float) -> Answer:  # noqa: ARG002
        """Send it; see :class:`trainvitals.notify.channels.base.Channel`."""
        query = urlencode({"key": secret.read(self.key_file)}, quote_via=quote)
        body = {"msgtype": "markdown", "markdown": {"content": text}}
        status, answer = await post(Request(f"{self.url}?{query}", body))
        return by_code(status, answer, ("errcode",), _LATER, _OURS)
