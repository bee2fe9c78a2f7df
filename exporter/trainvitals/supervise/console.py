"""What an attempt says: its output goes to files, is copied from there, searched for errors, and its end kept.

Files and no pipes: the end of a supervisor must not be the end of a training that writes a line, and one that reads
slowly must not hold it up.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections import deque
from collections.abc import Callable

from trainvitals.supervise.launch import Outputs
from trainvitals.telemetry import Event

#: Finds errors in a block of whole lines.
Scan = Callable[[bytes], "list[tuple[int, Event]]"]

_CHUNK = 1 << 16
#: At a time, so that a flood of output does not keep the supervisor from its other work.
_MOST_AT_ONCE = 64 * _CHUNK
#: What has been copied is given back to the disk in pieces of so many bytes.
_PIECE = 4 << 20
#: Lines that evidence keeps, and the longest of them.
_LAST_LINES, _LONGEST_LINE = 400, 2000
#: fallocate(2): keep the size, punch a hole.
_PUNCH = 0x01 | 0x02
_MOST_EVENTS = 500


class _Stream:
    """One growing file, from ``offset`` on; copied to the descriptor ``target``."""

    def __init__(self, path: str, target: int, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self._target: int | None = target
        self._tail = b""
        self._given_back = offset

    def pump(self) -> bytes:
        """Copy what is new, and return its whole lines."""
        new = b""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                while len(new) < _MOST_AT_ONCE and (data := os.pread(descriptor, _CHUNK, self.offset)):
                    self.offset += len(data)
                    new += data
                    self._copy(data)
                if self.offset - self._given_back >= _PIECE:
                    self._give_back(descriptor)
            finally:
                os.close(descriptor)
        whole, end, rest = (self._tail + new).rpartition(b"\n")
        # A line without end (a progress bar) is cut.
        self._tail = rest[-_LONGEST_LINE:]
        return whole + end

    def _copy(self, data: bytes) -> None:
        try:
            while data and self._target is not None:
                data = data[os.write(self._target, data) :]
        except OSError:  # Whoever read it is gone; the training goes on.
            self._target = None

    def _give_back(self, descriptor: int) -> None:
        """Free the blocks of what was copied; where the file system cannot, the file keeps them."""
        self._given_back = self.offset
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None, use_errno=True)
            libc.fallocate(descriptor, _PUNCH, ctypes.c_int64(0), ctypes.c_int64(self.offset))


class Console:
    """The output of one attempt.  ``offsets`` are where a supervisor before this one had got to."""

    def __init__(
        self,
        outputs: Outputs,
        *,
        scan: Scan | None = None,
        targets: tuple[int, int] = (1, 2),
        offsets: tuple[int, int] = (0, 0),
    ) -> None:
        self._streams = [_Stream(outputs.out, targets[0], offsets[0])]
        if outputs.err != outputs.out:
            self._streams.append(_Stream(outputs.err, targets[1], offsets[1]))
        self._scan = scan
        self.lines: deque[bytes] = deque(maxlen=_LAST_LINES)
        self.events: deque[Event] = deque(maxlen=_MOST_EVENTS)

    def pump(self) -> None:
        """Copy and search what is new."""
        for stream in self._streams:
            block = stream.pump()
            if not block:
                continue
            self.lines.extend(line[:_LONGEST_LINE] for line in block.split(b"\n")[-_LAST_LINES - 1 : -1])
            if self._scan is not None:
                # An error in reading errors must not end the supervision.
                with contextlib.suppress(Exception):
                    self.events.extend(event for _, event in self._scan(_clean(block)))

    @property
    def offsets(self) -> tuple[int, int]:
        """How far the files have been copied."""
        return self._streams[0].offset, self._streams[-1].offset

    def remove(self) -> None:
        """Remove the files of an attempt that is over."""
        for stream in self._streams:
            with contextlib.suppress(OSError):
                os.unlink(stream.path)


def _clean(block: bytes) -> bytes:
    """Return a block without what terminals read: a progress bar returns to its begin."""
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\0", b" ")


def same_place(one: int, other: int) -> bool:
    """Whether two descriptors lead to the same file or terminal: then the order of lines between them counts."""
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
