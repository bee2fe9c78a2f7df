"""Small files of the kernel: read whole and bounded; what is not there is told apart from what failed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

#: The kernel was built or started without it, or does not let us: not there, as far as we are concerned.
#: A kernel with ``psi=0`` has /proc/pressure and answers EOPNOTSUPP; sysfs says EINVAL or ENODEV for "no such thing".
_ABSENT = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EOPNOTSUPP,
        errno.ENODEV,
        errno.EINVAL,
        errno.EACCES,
        errno.EPERM,
        errno.ESRCH,
    }
)

#: A file of sysfs holds one page at most.
_PAGE = 4096

#: Takes a path and returns the contents of a file; raises OSError.
Opener = Callable[[str], bytes]


def read_once(path: str) -> bytes:
    """Return what one read of a file gives, a page at most: a file of sysfs.  Raises OSError.

    A second read would ask again, and behind some files is a command to the firmware of a device.
    """
    descriptor = _open(path)
    try:
        return os.read(descriptor, _PAGE)
    finally:
        os.close(descriptor)


def read_file(path: str, limit: int = 65536) -> bytes:
    """Return at most ``limit`` bytes of a file.  Raises OSError."""
    descriptor = _open(path)
    try:
        # The kernel hands out a page at a time.
        parts: list[bytes] = []
        room = limit
        while room > 0 and (part := os.read(descriptor, room)):
            parts.append(part)
            room -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    # Without O_NONBLOCK, opening a pipe in the place of a file would wait for somebody who writes into it.
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def is_absent(error: OSError) -> bool:
    """Whether an error says that there is no such thing here."""
    return error.errno in _ABSENT


def optional(path: str, opener: Opener = read_file) -> str | None:
    """Return the text of a file, or None where the kernel has none.  Raises OSError for all else."""
    try:
        return opener(path).decode("ascii", "replace")
    except OSError as error:
        if is_absent(error):
            return None
        raise


def number(text: str | None) -> int | None:
    """Return a whole number that is not negative; None for any other text."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def table(text: str | None) -> dict[str, int]:
    """Return the lines ``name number`` of a text; other lines are left out."""
    found: dict[str, int] = {}
    for line in (text or "").splitlines():
        name, _, value = line.partition(" ")
        counted = number(value)
        if counted is not None:
            found[name] = counted
    return found
