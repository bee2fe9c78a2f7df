"""Waits for what a restart needs: space for a checkpoint, enough devices."""

from __future__ import annotations

import os
from collections.abc import Callable

#: So many times the newest checkpoint must fit; without one, so many bytes.
_ROOM, _LEAST = 1.1, 1 << 20
_MOST_FILES = 100_000


def size_of(path: str) -> int:
    """Return the bytes of a file or of all files in a folder, as far as they can be read."""
    if not os.path.isdir(path):
        return _size(path)
    total, left = 0, _MOST_FILES
    for folder, _, names in os.walk(path):
        total += sum(_size(os.path.join(folder, name)) for name in names[:left])
        left -= len(names)
        if left <= 0:
            break
    return total


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def free_bytes(folder: str) -> int:
    """Return what this user may still write into a folder, without what a quota says.  Raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def has_room(folder: str, newest: str | None, free: Callable[[str], int] = free_bytes) -> bool:
    """Whether another checkpoint like the newest fits into a folder; where that cannot be known, it may be tried."""
    try:
        return free(folder) >= (_LEAST if newest is None else _ROOM * size_of(newest))
    except OSError:
        return True


def processes_now(asked: str | None, usable: int, span: tuple[int, int] | None) -> int | None:
    """Return with how many processes per node a run can go on, None while there are too few devices.

    ``asked`` is what the command says (a number, "gpu", "auto", None), ``span`` the fewest and the most that will do.
    """
    if span is not None:
        least, most = span
    elif asked is not None and asked.isdigit():
        least = most = int(asked)
    else:
        least, most = 1, usable
    return min(usable, most) if usable >= least else None
