"""Basic authentication with bcrypt, and the headers that every answer gets.

One bcrypt check of cost 10 takes about 70 ms, longer than everything else that a scrape does together.  So it runs in
one thread of its own, and a password that was right once is remembered.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import bcrypt
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainvitals.serve.reload import WebConfigFile
from trainvitals.steer.steering import PATH

#: Right passwords remembered, and checks that may wait for the thread.
REMEMBERED = 128
WAITING = 16
#: bcrypt itself looks at no more; newer libraries refuse what is longer.
_LONGEST_PASSWORD = 72


class BusyError(Exception):
    """Too many checks are waiting."""


class Passwords:
    """Checks passwords.  For one event loop; ``close`` ends the thread."""

    def __init__(self) -> None:
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._running: dict[bytes, asyncio.Future[bool]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="password")
        # Kept in no file and no core dump's plain text: a digest with it says nothing about a password.
        self._secret = secrets.token_bytes(32)

    async def right(self, users: Mapping[str, str], user: str, password: bytes) -> bool:
        """Tell whether ``password`` is that of ``user``.  A user who does not exist costs as much as one who does.

        Raises BusyError.
        """
        known = users.get(user)
        hashed = known or next(iter(users.values()))
        key = self._digest(user, hashed, password)
        if known and key in self._right:
            self._right.move_to_end(key)
            return True
        check = self._running.get(key)
        if check is None:
            if len(self._running) >= WAITING:
                raise BusyError
            loop = asyncio.get_running_loop()
            check = loop.run_in_executor(self._thread, _matches, password, hashed)
            self._running[key] = check
            check.add_done_callback(lambda _: self._running.pop(key, None))
        matches = await asyncio.shield(check)
        if not (matches and known):
            return False
        self._right[key] = None
        while len(self._right) > REMEMBERED:
            self._right.popitem(last=False)
        return True

    def close(self) -> None:
        """End the thread once the check that it is at is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _digest(self, user: str, hashed: str, password: bytes) -> bytes:
        parts = b"".join(hashlib.sha256(part).digest() for part in (user.encode(), hashed.encode(), password))
        return hmac.digest(self._secret, parts, "sha256")


def _matches(password: bytes, hashed: str) -> bool:
    try:
        return bcrypt.checkpw(password[:_LONGEST_PASSWORD], hashed.encode())
    except ValueError:
        # A NUL byte, which no password of bcrypt contains.
        return False


class Guard:
    """Wraps an application: asks for a password when there are users, and adds the configured headers.

    Orders have a token of their own, which comes in the same header.
    """

    def __init__(self, app: ASGIApp, file: WebConfigFile) -> None:
        self._app = app
        self._file = file
        self._passwords = Passwords()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        config = self._file.current
        answer = self._app
        if config.basic_auth_users and scope["path"] != PATH:
            answer = await self._refusal(config.basic_auth_users, Headers(scope=scope)) or answer

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in config.http_server_config.headers.items():
                    headers[name] = value
            await send(message)

        await answer(scope, receive, send_with_headers)

    async def _refusal(self, users: Mapping[str, str], headers: Headers) -> Response | None:
        credentials = _credentials(headers.get("authorization", ""))
        try:
            if credentials and await self._passwords.right(users, *credentials):
                return None
        except BusyError:
            return PlainTextResponse("Too many passwords to check.\n", 503, headers={"Retry-After": "1"})
        return PlainTextResponse(
            "Unauthorized\n", 401, headers={"WWW-Authenticate": 'Basic realm="trainvitals", charset="UTF-8"'}
        )

    def close(self) -> None:
        """End the thread of the passwords."""
        self._passwords.close()


def _credentials(header: str) -> tuple[str, bytes] | None:
    """Return user and password of an Authorization header (RFC 7617)."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None
