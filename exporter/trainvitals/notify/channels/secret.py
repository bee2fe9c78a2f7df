"""Secrets: read from their files each time, so that they can be changed under a running notifier; never logged."""

from __future__ import annotations

import os

_LARGEST = 4096


class SecretError(ValueError):
    """A secret that cannot be read; the message names the file and says nothing of what is in it."""


def read(path: str) -> str:
    """Return what is in a file, without blanks around it.  Raises SecretError."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            text = file.read(_LARGEST).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text"
        raise SecretError(f"{path}: cannot be read: {why}") from None
    if not text or "\n" in text:
        raise SecretError(f"{path}: expected one line")
    return text
