r"""Feishu's custom robots, which outside of China are called Lark's.

Source: Feishu's open platform, "custom bot usage guide": the signature is the HMAC-SHA256 of nothing under the key
"<seconds>\n<secret>", in base64, in the body; a body has 20 KB at most; 100 messages a minute and 5 a second.  A
refusal comes with status 200 (or 400) and a code.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any, ClassVar

from trainvitals.notify.channels import secret
from trainvitals.notify.channels.base import Answer, Note, Post, Request, by_code, markdown

URL = "https://open.feishu.cn/open-apis/bot/v2/hook"
_LATER = {9499: 60.0, 11232: 60.0, 11247: 60.0}
_OURS = {19021: "signature", 19001: "token", 19022: "address", 19024: "keyword", 19002: "content", 11246: "content"}
_COLORS = {"critical": "red", "warning": "orange", "info": "blue", "resolved": "green"}


@dataclass(frozen=True)
class Feishu:
    """A robot by the token at the end of its address and, where a signature is asked for, its secret."""

    token_file: str
    secret_file: str = ""
    url: str = URL

    kind: ClassVar[str] = "feishu"
    limit: ClassVar[int] = 15_000
    per_minute: ClassVar[float] = 90.0

    def write(self, note: Note) -> str:
        """Return the markdown of a card; its title stands in the card's head."""
        return markdown(Note("", note.level, note.blocks, note.footer), line="\n")

    async def send(self, note: Note, text: str, post: Post, now: float) -> Answer:
        """Send it; see :class:`trainvitals.notify.channels.base.Channel`."""
        body: dict[str, Any] = {"msg_type": "interactive", "card": _card(note, text)}
        if self.secret_file:
            moment = str(int(now))
            body = {"timestamp": moment, "sign": sign(moment, secret.read(self.secret_file)), **body}
        status, answer = await post(Request(f"{self.url}/{secret.read(self.token_file)}", body))
        return by_code(status, answer, ("code", "StatusCode"), _LATER, _OURS)


def _card(note: Note, text: str) -> dict[str, Any]:
    return {
        "config": {"wide_screen_mode": True},
        "header": {
            "template": _COLORS.get(note.level, "blue"),
            "title": {"tag": "plain_text", "content": note.title},
        },
        "elements": [{"tag": "div", "text": {"tag": "lark_md", "content": text}}],
    }


def sign(moment: str, key: str) -> str:
    """Return the signature of a time in seconds."""
    digest = hmac.new(f"{moment}\n{key}".encode(), b"", hashlib.sha256).digest()
    return base64.b64encode(digest).decode()
