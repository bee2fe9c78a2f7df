"""The token that whoever gives orders from another machine must show: one line in a file that nobody else may read."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat

#: So many characters cannot be guessed by trying, when they are random.
LEAST, MOST = 16, 512


class TokenError(Exception):
    """A file holds no token that can be used; the text says why, in one line, and never what is in it."""


def read(path: str) -> str:
    """Return the token in a file, which is read anew each time.  Raises TokenError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise TokenError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TokenError(f"{path}: expected a regular file")
        if status.st_mode & 0o077:
            raise TokenError(f"{path}: others may read or write it, expected chmod 600")
        if status.st_uid not in {os.geteuid(), 0}:
            raise TokenError(f"{path}: it belongs to uid {status.st_uid}, expected a file of this user or of root")
        content = os.read(descriptor, MOST + 3)
    except OSError as error:
        raise TokenError(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)
    token = content.decode("latin-1").strip()
    if not (LEAST <= len(token) <= MOST and token.isascii() and token.isprintable() and " " not in token):
        raise TokenError(
            f"{path}: expected one line of {LEAST} to {MOST} letters and digits, as of `openssl rand -hex 32`"
        )
    return token


def same(token: str, shown: str) -> bool:
    """Tell whether somebody has shown this token; how long it takes says nothing about either."""
    first, second = (hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest() for text in (token, shown))
    return hmac.compare_digest(first, second)
