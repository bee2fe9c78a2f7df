"""One open log file, plain or compressed, and by what a place in it is known again."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
from collections.abc import Sequence
from io import BufferedReader
from typing import Any, NamedTuple

#: Bytes at the begin of a file, and before the place up to which it was read, by which it is known again.
MARK = 64
#: An archive is searched for a place so far in, at most.
_DEEPEST = 1 << 30
_GZIP = b"\x1f\x8b\x08"


class Left(NamedTuple):
    """The file that was read before the present one, up to where, by what to know it, and when it was last changed."""

    device: int
    inode: int
    offset: int
    head: str
    tail: str
    changed_ns: int


class Position(NamedTuple):
    """Up to where a file was read, and by what to know it again.  The marks are digests: a log may hold secrets."""

    device: int
    inode: int
    offset: int
    head: str
    tail: str
    left: Left | None = None

    @classmethod
    def of(cls, saved: Sequence[Any]) -> Position:
        """Return one from what JSON knows of it.  Raises TypeError for what is none."""
        position = cls(*saved)
        return position if position.left is None else position._replace(left=Left(*position.left))


class Opened:
    """An open regular file, or the text of a compressed one.  Raises OSError."""

    def __init__(self, path: str) -> None:
        #: What :meth:`copies` found at the begin and before the place, when it looked last.
        self.found = b"", b""
        self._archive: gzip.GzipFile | None = None
        self._raw: BufferedReader | None = None
        self._descriptor = -1
        # A pipe would block, and a device do worse.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            self.refresh()
            self.see_begin()
            if self.begin.startswith(_GZIP):
                self._raw = os.fdopen(os.dup(self._descriptor), "rb")
                self._archive = gzip.GzipFile(fileobj=self._raw)
        except BaseException:
            self.close()
            raise

    @property
    def is_archive(self) -> bool:
        """Whether it is compressed."""
        return self._archive is not None

    def __del__(self) -> None:
        self.close()

    def refresh(self) -> None:
        """Ask again how large it is."""
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("no regular file")
        self.device, self.inode = status.st_dev, status.st_ino
        self.size, self.changed, self.changed_ns = status.st_size, status.st_mtime, status.st_mtime_ns

    def read(self, size: int, offset: int) -> bytes:
        """Return at most ``size`` bytes at a place; fewer only at the end."""
        if self._archive is None:
            return os.pread(self._descriptor, size, offset)
        if self._archive.tell() != offset:
            self._archive.seek(offset)
        data = self._archive.read(size)
        if not data:
            self.size = offset
        return data

    def see_begin(self) -> None:
        """Remember the first bytes there are."""
        self.begin = os.pread(self._descriptor, MARK, 0)

    def begins(self) -> bool:
        """Whether it begins as it did."""
        seen = self.begin
        self.see_begin()
        if self.begin.startswith(seen):
            return True
        self.begin = seen
        return False

    def follows(self, offset: int, before: bytes) -> bool:
        """Whether these bytes stand before a place, still."""
        if self._archive is not None:
            return True
        return self.read(len(before), offset - len(before)) == before

    def is_at(self, position: Position) -> bool:
        """Whether it is the file that a position speaks of, and goes at least so far."""
        return (self.device, self.inode) == (position.device, position.inode) and self.copies(position)

    def copies(self, position: Position | Left) -> bool:
        """Whether it says what was read up to a position, whichever file that was."""
        if self.size < position.offset if self._archive is None else position.offset > _DEEPEST:
            return False
        size = min(MARK, position.offset)
        self.found = self.read(size, 0), self.read(size, position.offset - size)
        return (digest(self.found[0]), digest(self.found[1])) == (position.head, position.tail)

    def close(self) -> None:
        """Close it; once is enough."""
        for file in (self._archive, self._raw):
            if file is not None:
                file.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def digest(data: bytes) -> str:
    """Return what a mark is known by."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()
