r"""DingTalk's custom robots.

Source: DingTalk's open platform, "custom robot access" and "security settings": the signature is the HMAC-SHA256 of
"<milliseconds>\n<secret>" under the secret, in base64, in the address; a body has 20,000 bytes at most; 20 messages a
minute, and who sends more is blocked for ten minutes.  A refusal comes with status 200 and an errcode.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote, urlencode

from trainvitals.notify.channels import secret
from trainvitals.notify.channels.base import Answer, Note, Post, Request, by_code, markdown

URL = "https://oapi.dingtalk.com/robot/send"
#: "send too fast", and two older numbers of the same.
_LATER = {130101: 600.0, 130102: 600.0, 410100: 60.0}
_OURS = {310000: "signature", 300001: "token", 400101: "token", 400013: "robot", 400014: "robot", 430104: "content"}


@dataclass(frozen=True)
class DingTalk:
    """A robot by its access token and, where "additional signature" is chosen, its secret."""

    token_file: str
    secret_file: str = ""
    url: str = URL

    kind: ClassVar[str] = "dingtalk"
    limit: ClassVar[int] = 18_000
    per_minute: ClassVar[float] = 18.0

    def write(self, note: Note) -> str:
        """Return markdown; a single line end would be lost."""
        return markdown(note)

    async def send(self, note: Note, text: str, post: Post, now: float) -> Answer:
        """Send it; see :class:`trainvitals.notify.channels.base.Channel`."""
        query = {"access_token": secret.read(self.token_file)}
        if self.secret_file:
            moment = str(round(now * 1000))
            query |= {"timestamp": moment, "sign": sign(moment, secret.read(self.secret_file))}
        body = {"msgtype": "markdown", "markdown": {"title": note.title, "text": text}}
        status, answer = await post(Request(f"{self.url}?{urlencode(query, quote_via=quote)}", body))
        return by_code(status, answer, ("errcode",), _LATER, _OURS)


def sign(moment: str, key: str) -> str:
    """Return the signature of a time in milliseconds."""
    digest = hmac.new(key.encode(), f"{moment}\n{key}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()
