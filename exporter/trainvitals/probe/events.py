"""The events file beside the rank file: one line of JSON for each rare event."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from trainvitals import rankfile

_LONGEST_TEXT = 256


class EventsFile:
    """Appends events to ``path``, which is made by the first one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._size = 0
        self._torn = False

    def append(self, kind: object, step: int, fields: Mapping[str, Any]) -> bool:
        """Append one line: a single write, so that lines of two threads do not mix; return whether it is there.

        A full spool, a line that is too long or that cannot be written as JSON: the event is lost, the run is not.
        """
        try:
            document = {**fields, "time": round(time.time(), 3), "kind": text(kind), "step": step}
            line = json.dumps(document, default=text, separators=(",", ":")).encode() + b"\n"
            if len(line) > rankfile.LONGEST_EVENT or self._size + len(line) >= rankfile.EVENTS_LIMIT:
                return False
            return self._write(line)
        except Exception:
            return False

    def _write(self, line: bytes) -> bool:
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o644)
        # A full spool may have taken half a line; what follows must not become a part of it.
        data = b"\n" + line if self._torn else line
        written = os.write(self._descriptor, data)
        self._size += written
        self._torn = written < len(data)
        return not self._torn

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def text(value: object) -> str:
    """Return a short text of what JSON does not know; of a tensor only its type, for its text waits for a device."""
    if isinstance(value, (str, os.PathLike)):
        return str(os.fspath(value))[:_LONGEST_TEXT]
    kind = type(value)
    if hasattr(kind, "__dlpack__") or hasattr(kind, "__torch_function__"):
        return f"<{kind.__name__}>"
    return str(value)[:_LONGEST_TEXT]
