"""The events file beside the rank file: one line of JSON for each rare event."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from typing import Any

from trainvitals import rankfile

_LONGEST_TEXT = 256
#: Kinds that a damaged data set could fill the file with; they leave half of it to the others.
_COPIOUS = frozenset({"data", "data_error"})


class EventsFile:
    """Appends events to ``path``, which is made by the first one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._torn = False

    def append(self, kind: object, step: int, fields: Mapping[str, Any]) -> bool:
        """Append one line: a single write, so that lines of two threads do not mix; return whether it is there.

        A full spool, a line that is too long or that cannot be written as JSON: the event is lost, the run is not.
        """
        try:
            line = _line(kind, step, fields)
            return len(line) <= rankfile.LONGEST_EVENT and self._write(line, _limit(kind))
        except Exception:
            return False

    def _write(self, line: bytes, limit: int) -> bool:
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o644)
        # Workers that load data append to it as well.
        if os.fstat(self._descriptor).st_size + len(line) >= limit:
            return False
        # A full spool may have taken half a line; what follows must not become a part of it.
        data = b"\n" + line if self._torn else line
        self._torn = os.write(self._descriptor, data) < len(data)
        return not self._torn

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def append_from_worker(path: str, kind: str, fields: Mapping[str, Any]) -> bool:
    """Append one line to the events of another process of this user, which has begun them; return whether it is there.

    Raises OSError, also for what is no regular file of ours.
    """
    line = _line(kind, -1, {**fields, "worker_pid": os.getpid()})
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(path)
        fits = len(line) <= rankfile.LONGEST_EVENT and status.st_size + len(line) < _limit(kind)
        return fits and os.write(descriptor, line) == len(line)
    finally:
        os.close(descriptor)


def _line(kind: object, step: int, fields: Mapping[str, Any]) -> bytes:
    document = {**fields, "time": round(time.time(), 3), "kind": text(kind), "step": step}
    return json.dumps(document, default=text, separators=(",", ":")).encode() + b"\n"


def _limit(kind: object) -> int:
    return rankfile.EVENTS_LIMIT // 2 if kind in _COPIOUS else rankfile.EVENTS_LIMIT


def text(value: object) -> str:
    """Return a short text of what JSON does not know; of a tensor only its type, for its text waits for a device."""
    if isinstance(value, (str, os.PathLike)):
        return str(os.fspath(value))[:_LONGEST_TEXT]
    kind = type(value)
    if hasattr(kind, "__dlpack__") or hasattr(kind, "__torch_function__"):
        return f"<{kind.__name__}>"
    return str(value)[:_LONGEST_TEXT]
