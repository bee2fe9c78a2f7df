"""The life of one log file: it grows, is renamed and begun anew, copied and truncated, or written again.

Nothing is lost and nothing comes twice: where a file was renamed or copied away, the rest of it is found in its folder.
A file is known by its inode, and by what stands at its begin and right before the place up to which it was read.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

from trainvitals.follow.beside import between, find
from trainvitals.follow.opened import MARK, Left, Opened, Position, digest

#: Bytes that are read at once.
BLOCK = 1 << 20
#: A file that is written again and again while it is read is left alone until the next poll.
_MOST_CHANGES = 4


class Begin:
    """Stands between blocks: what follows does not go on where the block before it ended.

    Another file took the place of the one that was read, or it was emptied, or written again.
    """


class Tail:
    """Reads one file as it grows.  ``start`` is where to go on; None: at the begin.

    A file that is compressed by gzip is read as the text in it, and offsets are those of the text.
    """

    def __init__(self, path: str, start: Position | None = None) -> None:
        self.path = path
        self._start = start
        self._file: Opened | None = None
        self._next: deque[Opened] = deque()
        #: What was read before the present file, if it is known.
        self._left = None if start is None else start.left
        self._offset = 0 if start is None else start.offset
        self._before = b""
        self._head = b""
        self._signature: tuple[int, ...] | None = None
        self._replaced = False
        self._begins = False
        #: Whether nothing can have come and gone before the block that is read next.
        self._is_sure = False
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
        return self._start if self._file is None else self._place(self._file)

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
                if not self._next and not self._is_sure and self._came_between():
                    break
                self._is_sure = False
                limit -= len(block)
                self._offset += len(block)
                self._before = (self._before + block if len(block) < MARK else block)[-MARK:]
                if len(self._head) < MARK:
                    self._head = (self._head + block)[:MARK]
                yield block
            else:
                if limit <= 0 or not self._next:
                    return
                begins = self._switch()
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
            here = Opened(self.path)
            self._next.extend([*between(self.path, self._leaving(self._file), here), here])
        else:
            self._replaced = True
        return False

    def _follows(self, file: Opened) -> bool:
        """Whether what was read, or seen at the begin before anything was read, is in the file still."""
        return file.follows(self._offset, self._before) if self._offset else file.begins()

    def _begin_again(self) -> bool:
        """The file was emptied or written again, in place.  What was added before that may be in a copy."""
        here = self._file
        assert here is not None  # noqa: S101  Its caller asked.
        if self._came_between():
            return False
        if self._offset:
            gone = self._place(here)
        else:
            # Nothing was read before it was emptied; its begin was seen.
            mark = digest(here.begin)
            gone = Position(here.device, here.inode, len(here.begin), mark, mark, self._left)
        rest = find(self.path, gone, copy=True)
        if rest is None:
            here.see_begin()
            self._left = None
            self._take(here, 0)
            return True
        self._file = rest
        self._queue(rest, gone, here)
        return False

    def _came_between(self) -> bool:
        """Whether the file was copied and emptied before more was read of it than its begin: go on in the copies.

        From the few bytes that were read of it, or none, it cannot be known again.
        """
        here, left = self._file, self._left
        if here is None or left is None or self._offset >= MARK:
            return False
        found = between(self.path, left, here)
        while found and not found[0].copies(self._place(here)):
            found.pop(0)
        if not found:
            return False
        self._file, *more = found
        self._next.extend([*more, here])
        return True

    def _reopen(self) -> bool:
        """Open the file anew, where the last one ended."""
        if self._start is not None and _signature(self.path) == self._signature:
            return False
        here = Opened(self.path)
        self.changed = here.changed
        start = self._start
        if start is None or here.is_at(start):
            self._take(here, 0 if start is None else start.offset)
            return False
        rest = find(self.path, start, copy=False) or find(self.path, start, copy=True)
        if rest is None:
            self._left = None
            self._take(here, 0)
            return start.offset > 0
        self._take(rest, start.offset)
        self._queue(rest, start, here)
        return False

    def _queue(self, rest: Opened, position: Position, here: Opened) -> None:
        """Put behind the rest of a file what came after it."""
        left = Left(rest.device, rest.inode, *position[2:5], rest.changed_ns)
        self._next.extend([*between(self.path, left, here), here])

    def _switch(self) -> bool:
        """Go on in the next file; return whether it begins there."""
        file, old = self._next[0], self._file
        assert old is not None  # noqa: S101  Its caller read it.
        file.refresh()
        self.changed = max(self.changed, file.changed)
        # What was read is a copy of it, and it was not emptied yet: it would come twice.
        is_original = len(self._next) == 1 and self._offset > 0 and file.copies(self._place(old))
        if not is_original and old.read(1, self._offset):
            return False  # The copy was not whole when its end was read.
        self._is_sure = is_original
        if self._offset and not is_original:
            old.refresh()
            self._left = self._leaving(old)
        self._next.popleft()
        old.close()
        if not is_original:
            # What it began with when it was opened may be what was read in a copy.
            file.see_begin()
        self._take(file, self._offset if is_original else 0)
        return not is_original

    def _place(self, file: Opened) -> Position:
        """Return up to where this file was read."""
        marks = digest(self._head), digest(self._before)
        return Position(file.device, file.inode, self._offset, *marks, left=self._left)

    def _leaving(self, file: Opened) -> Left:
        """Return what to know a file by that was read."""
        return Left(*self._place(file)[:5], file.changed_ns)

    def _take(self, file: Opened, offset: int) -> None:
        """Go on in a file at its begin, or at the place that it was found by."""
        self._file, self._offset = file, offset
        self._head, self._before = file.found if offset else (b"", b"")


def _signature(path: str) -> tuple[int, ...]:
    status = os.stat(path)
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
