"""Where every log was read up to, over restarts of the exporter: one small file of JSON, replaced as a whole."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

_VERSION = 1
#: A larger file is none of ours: a log takes a few hundred bytes.
_LARGEST = 1 << 24


class Positions:
    """The file at ``path``, or nothing that lasts when it is empty."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._saved = ""
        #: What was wrong with the file when it was loaded, or when it was last saved; empty: nothing.
        self.problem = ""

    def load(self) -> dict[str, Any]:
        """Return what was saved last; nothing when there is no file or it is damaged, which :attr:`problem` tells."""
        if not self._path:
            return {}
        try:
            with open(self._path, encoding="utf-8") as file:
                text = file.read(_LARGEST + 1)
            document = json.loads(text)
            if len(text) > _LARGEST or document["version"] != _VERSION or not isinstance(document["state"], dict):
                raise ValueError("not of this version")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            self.problem = f"{self._path}: {error}"
            return {}
        state: dict[str, Any] = document["state"]
        return state

    def save(self, state: Mapping[str, Any]) -> bool:
        """Replace the file, if there is anything new; return whether it could be done."""
        if not self._path:
            return True
        text = json.dumps({"version": _VERSION, "state": state}, separators=(",", ":"))
        if text == self._saved:
            return True
        try:
            replace_file(self._path, text.encode())
        except OSError as error:
            self.problem = f"{self._path}: {error}"
            return False
        self._saved, self.problem = text, ""
        return True


def replace_file(path: str, data: bytes) -> None:
    """Put a new file in the place of what is there, as a whole or not at all.  Raises OSError."""
    new = f"{path}.{os.getpid()}.new"
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
