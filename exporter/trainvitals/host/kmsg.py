r"""A follower of the kernel's log through /dev/kmsg.

Opened from the start of the buffer, so what happened since boot is read first, and without ever blocking.  The device
hands out one record per read (Linux, Documentation/ABI/testing/dev-kmsg)::

    4,1893,734210455,-;NVRM: Xid (PCI:0000:05:00): 31, ...      priority, sequence, microseconds, flags; text
     SUBSYSTEM=pci                                              lines that begin with a space continue the record

Bytes that are not printable come as ``\x0a``.  The priority holds level and facility; what user space writes into the
log always has a facility other than 0, so only facility 0 counts: nobody but the kernel can make a record here.

Time: a record has the kernel's own clock, which starts with the machine, stands still while the machine sleeps and is
not steered by NTP (some parts in a million, seconds over months).  ``boot + clock`` is therefore right to some
seconds, and too late by the length of any sleep after it; a record that arrives while we follow lies between two polls,
and that bounds its error.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

PATH = "/dev/kmsg"
#: Its number (Linux, Documentation/admin-guide/devices.txt).
_DEVICE = os.makedev(1, 11)

#: A record is at most 8 KiB (CONSOLE_EXT_LOG_MAX of the kernel, 2 KiB since 6.1).
_READ = 16_384
_LONGEST_TEXT = 4_096
_FURTHEST = 1e9
_RECORD = re.compile(rb"(\d{1,5}),(\d{1,19}),(\d{1,19}),[^;]{0,256};(.*)", re.DOTALL)
_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class Record:
    """A message of the kernel.  ``time`` is wall-clock seconds, ``level`` 0 (emergency) to 7 (debug)."""

    time: float
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the log cannot be read: a word (missing, permission or error) and what to do about it."""

    reason: str
    fix: str


class Log(Protocol):
    """What is read from: an unbuffered file."""

    def read(self, size: int, /) -> bytes | None:
        """Return what there is, None when there is nothing now.  Raises OSError."""

    def close(self) -> None:
        """Close it."""


def open_log(path: str) -> Log:
    """Open the kernel's log, or a file or pipe of the same format, without blocking.  Raises OSError.

    Containers put other devices in its place, /dev/null or a console: that is FileNotFoundError.
    """
    return open(path, "rb", buffering=0, opener=_opener)


def _opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    found = os.fstat(descriptor)
    if stat.S_ISCHR(found.st_mode) and found.st_rdev != _DEVICE:
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "this is another device", path)
    return descriptor


class KernelLog:
    """Reads the kernel's log in rounds.  Owns a descriptor between the first :meth:`poll` and :meth:`close`.

    ``limit`` is how many records one round takes; the others stay in the kernel's buffer for the next.  ``lost`` counts
    records that the kernel overwrote before they were read, ``foreign`` those of user space, ``invalid`` lines that are
    no record.  ``oldest`` is the time of the first record: nothing before it is known.  ``problem`` says why nothing
    can be read, None while all is well.
    """

    def __init__(
        self,
        path: str = PATH,
        *,
        limit: int = 4_000,
        opener: Callable[[str], Log] = open_log,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._limit = limit
        self._opener = opener
        self._clock = clock
        self._monotonic = monotonic
        self._log: Log | None = None
        self._tail = b""
        self._next: int | None = None
        self._resume = 0
        self._skipping = False
        self._followed_since: float | None = None
        self._drift = 0.0
        self.problem: Problem | None = None
        self.oldest: float | None = None
        self.lost = 0
        self.foreign = 0
        self.invalid = 0

    def poll(self) -> list[Record]:
        """Return the new records, oldest first; none when the log cannot be read.  Never blocks, never raises."""
        now = self._monotonic()
        boot = self._clock() - now
        records: list[Record] = []
        followed = False
        if self._log is None and not self._open():
            return records
        # Both what is read and how often the kernel refuses are bounded.
        attempts = work = 0
        while work < self._limit and attempts < 2 * self._limit:
            attempts += 1
            try:
                data = self._log.read(_READ) if self._log is not None else None
            except OSError as error:
                # Overwritten under us (EPIPE) or longer than our buffer (EINVAL): the sequence shows how many are lost.
                if error.errno in {errno.EPIPE, errno.EINVAL}:
                    continue
                self._fail(error)
                break
            if not data:
                followed = True
                break
            for line in self._lines(data):
                work += 1
                record = self._record(line, now, boot)
                if record is not None:
                    records.append(record)
        self._followed_since = now if followed else None
        return records

    @property
    def is_behind(self) -> bool:
        """Whether the last :meth:`poll` left records for the next one."""
        return self._log is not None and self._followed_since is None

    def check(self) -> Problem | None:
        """Return why the log cannot be read, None when it can; leaves nothing open."""
        try:
            log = self._opener(self._path)
        except OSError as error:
            return _explain(self._path, error)
        log.close()
        return None

    def close(self) -> None:
        """Close the log; the next :meth:`poll` goes on where this one ended."""
        if self._log is not None:
            self._log.close()
            self._log = None
            self._tail = b""
            self._resume = self._next or 0
            self._followed_since = None

    def _open(self) -> bool:
        try:
            self._log = self._opener(self._path)
        except OSError as error:
            self.problem = _explain(self._path, error)
            return False
        self.problem = None
        return True

    def _fail(self, error: OSError) -> None:
        self.close()
        self.problem = _explain(self._path, error)

    def _lines(self, data: bytes) -> list[bytes]:
        """Return the whole lines; a line without an end is kept, up to a bound."""
        lines = (self._tail + data).split(b"\n")
        self._tail = lines.pop()
        if self._skipping and lines:
            del lines[0]
            self._skipping = False
        if len(self._tail) > _READ or self._skipping:
            self.invalid += not self._skipping
            self._skipping = True
            self._tail = b""
        return lines

    def _record(self, line: bytes, now: float, boot: float) -> Record | None:
        if not line or line[:1] == b" ":
            return None
        match = _RECORD.match(line) if len(line) <= _READ else None
        if match is None:
            self.invalid += 1
            return None
        priority, sequence, microseconds = int(match[1]), int(match[2]), int(match[3])
        if sequence < self._resume:
            return None
        if self._next is not None and sequence > self._next:
            self.lost += sequence - self._next
        self._next = sequence + 1
        moment = boot + self._moment(microseconds / 1e6, now)
        if self.oldest is None:
            self.oldest = moment
        if priority >> 3:
            self.foreign += 1
            return None
        return Record(moment, priority & 7, _text(match[4]))

    def _moment(self, kernel: float, now: float) -> float:
        """Return the time of a record on our monotonic clock."""
        moment = kernel + self._drift
        since = self._followed_since
        # A clock that is years off is no clock that drifts.
        if since is not None and 0 < since - moment < _FURTHEST:
            self._drift += since - moment
            return since
        return min(moment, now)


def _text(raw: bytes) -> str:
    if b"\\x" in raw:
        raw = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), raw)
    return raw[:_LONGEST_TEXT].decode("utf-8", "replace")


def _explain(path: str, error: OSError) -> Problem:
    if isinstance(error, FileNotFoundError):
        return Problem("missing", f"There is no {path}; into a container, mount it from the node (device {PATH}).")
    if isinstance(error, PermissionError):
        fix = (
            f"Reading {path} needs root or the capability CAP_SYSLOG while kernel.dmesg_restrict is 1 "
            f"(systemd: AmbientCapabilities=CAP_SYSLOG); a container also needs the device {PATH} itself."
        )
        return Problem("permission", fix)
    return Problem("error", f"{path}: {error.strerror or error}")
