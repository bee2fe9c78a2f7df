"""The life of one log file: it grows, is renamed and begun anew, copied and truncated, or written again.

Nothing is lost and nothing comes twice: where a file was renamed or copied away, the rest of it is found in its folder.
A file is known by its inode, and by what stands at its begin and right before the place up to which it was read.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import stat
import zlib
from collections import deque
from collections.abc import Iterator
from io import BufferedReader
from typing import NamedTuple

#: Bytes that are read at once.
BLOCK = 1 << 20
#: Bytes at the begin of a file, and before the place up to which it was read, by which it is known again.
_MARK = 64
#: So many files beside a log are looked at when the rest of it is missing, and so far into an archive.
_MAX_SIBLINGS = 64
_DEEPEST = 1 << 30
#: A file that is written again and again while it is read is left alone until the next poll.
_MOST_CHANGES = 4
_GZIP = b"\x1f\x8b\x08"
#: How logrotate and others call what they put away: train.log.1, train.log-20260302, train.log.2.gz.
_ROTATED = re.compile(r"[.\-_](?:\d{1,14}|\d{4}-\d\d-\d\d(?:[T_\-.][\d:\-]{1,15})?)(?:\.gz)?")


class Begin:
    """Stands between blocks: what follows does not go on where the block before it ended.

    Another file took the place of the one that was read, or it was emptied, or written again.
    """


class Position(NamedTuple):
    """Up to where a file was read, and by what to know it again.  The marks are digests: a log may hold secrets."""

    device: int
    inode: int
    offset: int
    head: str
    tail: str


class Tail:
    """Reads one file as it grows.  ``start`` is where to go on; None: at the begin.

    A file that is compressed by gzip is read as the text in it, and offsets are those of the text.
    """

    def __init__(self, path: str, start: Position | None = None) -> None:
        self.path = path
        self._start = start
        self._file: _Open | None = None
        self._next: deque[_Open] = deque()
        self._offset = 0 if start is None else start.offset
        self._before = b""
        self._head = b""
        self._signature: tuple[int, ...] | None = None
        self._replaced = False
        self._begins = False
        #: When the file was last changed.
        self.changed = 0.0

    @property
    def offset(self) -> int:
        """Up to where the present file was read."""
        return self._offset

    @property
    def unread(self) -> int:
        """Bytes that were there at the last poll and are not read yet; of an archive, its size until it is read."""
        files = [self._file, *self._next]
        return max(0, sum(file.size for file in files if file is not None) - self._offset)

    def position(self) -> Position | None:
        """Return where to go on after a restart; None before anything was read."""
        file = self._file
        if file is None:
            return self._start
        marks = _digest(self._head), _digest(self._before)
        return Position(file.device, file.inode, self._offset, *marks)

    def read(self, limit: int, *, final: bool = False) -> Iterator[bytes | Begin]:
        """Yield what is new, in blocks, of at most ``limit`` bytes in all.

        With ``final``, nobody writes any more: a file that was renamed gets nothing added.
        Raises OSError for what cannot be read or is no regular file, EOFError and zlib.error for a damaged archive.
        """
        begins = self._look(final) or self._begins
        self._begins = False
        changes = 0
        while self._file is not None:
            if begins:
                yield Begin()
            begins = False
            while limit > 0 and (block := self._file.read(min(BLOCK, limit), self._offset)):
                # Emptied and written again since it was looked at, it would be read in the middle.
                if not self._next and not self._follows(self._file):
                    changes += 1
                    begins = self._begin_again()
                    break
                limit -= len(block)
                self._offset += len(block)
                self._before = (self._before + block if len(block) < _MARK else block)[-_MARK:]
                if len(self._head) < _MARK:
                    self._head = (self._head + block)[:_MARK]
                yield block
            else:
                if limit <= 0 or not self._next:
                    return
                begins = self._switch(self._next.popleft())
                if not self._next and not self._follows(self._file):
                    self._begin_again()
            if changes > _MOST_CHANGES:
                self._begins = begins
                return

    def read_head(self, size: int) -> bytes:
        """Return the begin of the file that is read now, whatever was read of it."""
        return b"" if self._file is None else self._file.read(size, 0)

    def again(self, size: int) -> Iterator[bytes]:
        """Yield what was read, in blocks: of the last so many bytes, what stands from the begin of a line on.

        :meth:`read` goes on where it would have gone on.
        """
        end = self._offset
        # A line begins there if one ends right before.
        place = max(0, end - size - 1)
        is_cut = end > size
        while self._file is not None and place < end:
            block = self._file.read(min(BLOCK, end - place), place)
            if not self._follows(self._file):
                # Emptied a moment ago.  What was read stands in a copy, or nowhere.
                if self._begin_again():
                    self._begins = True
                    return
                continue
            if not block:
                return
            place += len(block)
            if is_cut:
                begin = block.find(b"\n") + 1
                is_cut, block = not begin, block[begin:] if begin else b""
            if block:
                yield block

    def open(self) -> bool:
        """Open the file; return whether it is the one that ``start`` speaks of.  Raises as :meth:`read`."""
        if self._file is None:
            self._begins = self._look(final=False)
        return self._file is not None and not self._begins

    def close(self) -> None:
        """Give the descriptor back; what was read stays known."""
        file = self._file
        if file is not None:
            self._start = self.position()
            is_read = self._offset >= file.size and not self._next
            for later in self._next:
                later.close()
            self._next.clear()
            self._signature = (file.device, file.inode, file.size, file.changed_ns) if is_read else None
            file.close()
            self._file = None

    # What became of it ----------------------------------------------------------------------------------------------

    def _look(self, final: bool) -> bool:
        """See what became of the file, so that ``_file`` and ``_next`` are what is to be read; whether it begins."""
        if self._next:
            return False  # There is enough to read.
        if self._file is None:
            return self._reopen()
        self._file.refresh()
        self.changed = self._file.changed
        if not self._follows(self._file):
            return self._begin_again()
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return False
        if (status.st_dev, status.st_ino) == (self._file.device, self._file.inode):
            self._replaced = False
        elif self._replaced or final:
            # Its program had a poll's time to write the last of it there.
            self._replaced = False
            here = _Open(self.path)
            self._next.extend([*self._between(self._file, here), here])
        else:
            self._replaced = True
        return False

    def _follows(self, file: _Open) -> bool:
        """Whether what was read, or seen at the begin before anything was read, is in the file still."""
        return file.follows(self._offset, self._before) if self._offset else file.begins()

    def _begin_again(self) -> bool:
        """The file was emptied or written again, in place.  What was added before that may be in a copy."""
        here = self._file
        assert here is not None  # noqa: S101  Its caller asked.
        if self._offset:
            gone = Position(here.device, here.inode, self._offset, _digest(self._head), _digest(self._before))
        else:
            # Nothing was read before it was emptied; its begin was seen.
            gone = Position(here.device, here.inode, len(here.begin), _digest(here.begin), _digest(here.begin))
        rest = self._find(gone, copy=True)
        here.see_begin()
        if rest is None:
            self._take(here, 0)
            return True
        self._file = rest
        self._next.extend([*self._between(rest, here), here])
        return False

    def _reopen(self) -> bool:
        """Open the file anew, where the last one ended."""
        if self._start is not None and _signature(self.path) == self._signature:
            return False
        here = _Open(self.path)
        self.changed = here.changed
        start = self._start
        if start is None or here.is_at(start):
            self._take(here, 0 if start is None else start.offset)
            return False
        rest = self._find(start, copy=False) or self._find(start, copy=True)
        if rest is None:
            self._take(here, 0)
            return start.offset > 0
        self._take(rest, start.offset)
        self._next.extend([*self._between(rest, here), here])
        return False

    def _switch(self, file: _Open) -> bool:
        """Go on in the next file; return whether it begins there."""
        is_original = self._is_copy_of(file)
        if self._file is not None and self._file is not file:
            self._file.close()
        self._take(file, self._offset if is_original else 0)
        self.changed = max(self.changed, file.changed)
        return not is_original

    def _is_copy_of(self, file: _Open) -> bool:
        """Whether what was read is a copy of the next file, which was not emptied yet: it would come twice."""
        here = self.position()
        if here is None or not here.offset:
            return False
        file.refresh()
        return file.is_at(here._replace(device=file.device, inode=file.inode))

    def _take(self, file: _Open, offset: int) -> None:
        """Go on in a file at its begin, or at the place that it was found by."""
        self._file, self._offset = file, offset
        self._head, self._before = file.found if offset else (b"", b"")

    def _find(self, gone: Position, *, copy: bool) -> _Open | None:
        """Return the file beside this one that goes on behind a position: by its inode, or as a copy of it."""
        if not gone.offset and copy:
            return None
        for path in self._siblings():
            with contextlib.suppress(OSError, EOFError, zlib.error):
                file = _Open(path)
                is_it = copy or (file.device, file.inode) == (gone.device, gone.inode)
                if is_it and file.is_at(gone._replace(device=file.device, inode=file.inode)):
                    return file
                file.close()
        return None

    def _between(self, old: _Open, here: _Open) -> list[_Open]:
        """Return the files that came and went between an old one and the present one, oldest first."""
        found = []
        name = os.path.basename(self.path)
        for path in self._siblings():
            if not _ROTATED.fullmatch(os.path.basename(path)[len(name) :]):
                continue
            with contextlib.suppress(OSError):
                file = _Open(path)
                if file.changed_ns > old.changed_ns and file.inode not in {old.inode, here.inode}:
                    found.append(file)
                else:
                    file.close()
        return sorted(found, key=lambda file: file.changed_ns)

    def _siblings(self) -> list[str]:
        """Return the files whose names begin with that of this one, the newest first."""
        folder, name = os.path.split(self.path)
        stem = name.split(".")[0]
        found = []
        with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                if entry.name.startswith(stem) and entry.name != name:
                    with contextlib.suppress(OSError):
                        found.append((entry.stat().st_mtime_ns, os.path.join(folder, entry.name)))
        return [path for _, path in sorted(found, reverse=True)[:_MAX_SIBLINGS]]


class _Open:
    """An open regular file, or the text of a compressed one.  Raises OSError."""

    def __init__(self, path: str) -> None:
        # A pipe would block, and a device do worse.
        #: What :meth:`is_at` found at the begin and before the place, when it looked last.
        self.found = b"", b""
        self._archive: gzip.GzipFile | None = None
        self._raw: BufferedReader | None = None
        self._descriptor = -1
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
        self.begin = os.pread(self._descriptor, _MARK, 0)

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
        """Whether it is the file that a position speaks of, or a copy, and goes at least so far."""
        if self._archive is None and self.size < position.offset:
            return False
        if position.offset > _DEEPEST and self._archive is not None:
            return False
        if (self.device, self.inode) != (position.device, position.inode):
            return False
        size = min(_MARK, position.offset)
        self.found = self.read(size, 0), self.read(size, position.offset - size)
        return (_digest(self.found[0]), _digest(self.found[1])) == (position.head, position.tail)

    def close(self) -> None:
        """Close it; once is enough."""
        for file in (self._archive, self._raw):
            if file is not None:
                file.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _signature(path: str) -> tuple[int, ...]:
    status = os.stat(path)
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
