"""Files of /sys, read so that one that cannot be read costs itself and nothing else."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from trainvitals.host import files

#: What a register says that cannot be read.
_ALL_ONES = 2**64 - 1

#: How long a counter is left alone after it was refused, in seconds.  Behind it is a command to the firmware, and the
#: driver writes a line to the kernel's log for each that fails (leptonai/gpud#1167).
REFUSED = 3600.0
#: The same for a counter that could be read before: the device may only be resetting.
REFUSED_ONCE = 60.0
_REFUSALS = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.EIO, errno.EREMOTEIO})
_MOST_REFUSED = 10_000


class Sysfs:
    """Reads below ``root``; not thread-safe.

    ``read`` returns the bytes of a file or raises OSError, ``clock`` is monotonic, in seconds.
    """

    def __init__(
        self,
        root: str = "/sys",
        read: files.Opener = files.read_once,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = root.rstrip("/") + "/"
        self._read = read
        self._clock = clock
        self._refused: dict[str, float] = {}
        self._answered: set[str] = set()

    def listing(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none when it is not there.  Raises OSError when it cannot be read."""
        try:
            return sorted(os.listdir(self._prefix + path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none when it cannot be read."""
        try:
            return self.listing(path)
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Say whether there is such a file, folder or link."""
        return os.path.lexists(self._prefix + path)

    def target(self, path: str) -> str:
        """Return the last name of what a link leads to; empty when there is no link."""
        try:
            return os.path.basename(os.readlink(self._prefix + path))
        except OSError:
            return ""

    def text(self, path: str) -> str | None:
        """Return a file's text without white space around it; None when it cannot be read or is empty."""
        try:
            content = self._read(self._prefix + path)
        except OSError:
            return None
        return content.decode(errors="replace").strip() or None

    def number(self, path: str) -> int | None:
        """Return the number in a file, 0 to 2**64 - 2; None for anything else, such as "N/A (no PMA)"."""
        return _number(self.text(path))

    def counter(self, path: str) -> int | None:
        """Return the number in a file like :meth:`number`, and leave a file alone for a while that was refused."""
        until = self._refused.get(path)
        if until is not None:
            if self._clock() < until:
                return None
            del self._refused[path]
        try:
            content = self._read(self._prefix + path)
        except OSError as error:
            if error.errno in _REFUSALS:
                self._refuse(path)
            return None
        self._answered.add(path)
        return _number(content.decode(errors="replace"))

    def _refuse(self, path: str) -> None:
        if len(self._refused) >= _MOST_REFUSED:  # Devices that come and go under ever new names.
            self._refused.clear()
            self._answered.clear()
        self._refused[path] = self._clock() + (REFUSED_ONCE if path in self._answered else REFUSED)
        self._answered.discard(path)


def _number(text: str | None) -> int | None:
    value = files.number(text)
    return value if value is not None and value < _ALL_ONES else None
