"""The events file beside a rank file: JSON lines, of which each may be anything."""

from __future__ import annotations

import json
import os
import stat

from trainvitals import rankfile
from trainvitals.telemetry import Event

_CHUNK = 1 << 16
#: So many lines are taken at a poll; the rest waits for the next.
_LINES = 4096
#: Seconds since the epoch; a time beyond is no time of ours.
LATEST_TIME = 1e11


def path_of(path: str) -> str:
    """Return the name of the events file that belongs to a rank file."""
    return path.removesuffix(rankfile.RANK_SUFFIX) + rankfile.EVENTS_SUFFIX


def read_lines(path: str, offset: int, owner: int) -> tuple[list[bytes], int]:
    """Return the complete lines behind ``offset`` and where they end.

    A writer of ours stops at EVENTS_LIMIT bytes, and so does this.
    Raises OSError for what is not a regular file of ``owner``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
            raise PermissionError(path)
        lines: list[bytes] = []
        while offset < rankfile.EVENTS_LIMIT and len(lines) < _LINES:
            data = os.pread(descriptor, _CHUNK, offset)
            end = data.rfind(b"\n") + 1
            if not end and len(data) == _CHUNK:
                end = len(data)  # One line that fills the chunk is no line of ours.
            if not end:
                break
            found = data[:end].removesuffix(b"\n").split(b"\n", _LINES)
            if len(found) > _LINES:
                end -= len(found.pop()) + 1
            offset += end
            lines += found
        return lines, offset
    finally:
        os.close(descriptor)


def parse(line: bytes) -> Event | None:
    """Return the event of a line, or None when it is no line of the probe."""
    if len(line) > rankfile.LONGEST_EVENT or not line.startswith(b"{"):
        return None
    try:
        document = json.loads(line)
        moment, kind, step = document.pop("time"), document.pop("kind"), document.pop("step", -1)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(kind, str) or not isinstance(moment, float) or not 0.0 <= moment < LATEST_TIME:
        return None
    if not isinstance(step, int) or not -(2**63) <= step < 2**63:
        return None
    return Event(moment, kind, step, document)
