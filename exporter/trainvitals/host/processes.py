"""What single processes use, from /proc/PID/stat; see proc(5).

The command line is never read: the kernel makes the reader wait for the memory of a process, and that of one that
hangs in a driver may never come.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Protocol

from trainvitals.host import files

#: States of the dead: a zombie that its parent has not asked for, and one that is going away.
_DEAD = frozenset("ZXx")
#: So many processes are looked through for children; of more, none is.
_MOST_PROCESSES = 65536
_FEWEST_FIELDS = 45


#: The inode of the first namespace of process ids: PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h.
_FIRST_NAMESPACE = 0xEFFFFFFC


def sees_the_host(proc: str = "/proc") -> bool:
    """Whether this process counts processes as the node does; a container does only where it is told to.

    Drivers name processes by the numbers of the node.
    """
    try:
        return os.stat(f"{proc}/self/ns/pid").st_ino == _FIRST_NAMESPACE
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Process:
    """One process as it is now.

    ``started`` is in seconds of CLOCK_BOOTTIME; with ``pid`` it names a process for ever.  ``image`` is where its
    program lies in memory: a forked child has its parent's until it runs another program.  None where we may not know.
    ``is_blocked`` is true while its main thread waits for a disk, a network file system or a driver.
    """

    pid: int
    parent: int
    name: bytes
    is_blocked: bool
    started: float
    cpu_seconds: float
    resident_bytes: int
    threads: int
    major_faults: int
    image: tuple[bytes, ...] | None


class Processes(Protocol):
    """What the exporter asks of a table of processes."""

    def read(self, pid: int) -> Process | None:
        """Return a process; None when it is gone, dead or cannot be read."""

    def pids(self) -> set[int]:
        """Return all processes; empty when there are too many to look through.  Raises OSError."""

    def descriptors_ratio(self, pid: int) -> float | None:
        """Return the open descriptors of a process over its limit, where the kernel tells."""


class ProcessTable:
    """Reads ``proc``.  ``ticks`` is the length of a second in the units of the kernel, ``page`` that of a page."""

    def __init__(
        self,
        proc: str = "/proc",
        *,
        ticks: int | None = None,
        page: int | None = None,
        opener: files.Opener = files.read_file,
    ) -> None:
        self._proc = proc
        self._ticks = ticks or os.sysconf("SC_CLK_TCK")
        self._page = page or os.sysconf("SC_PAGE_SIZE")
        self._opener = opener

    def read(self, pid: int) -> Process | None:
        """Return a process; None when it is gone, dead or cannot be read."""
        try:
            data = self._opener(f"{self._proc}/{pid}/stat")
            return self._parse(pid, data)
        except (OSError, ValueError, IndexError):
            return None

    def pids(self) -> set[int]:
        """Return all processes; empty when there are too many to look through.  Raises OSError."""
        found = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        return found if len(found) <= _MOST_PROCESSES else set()

    def descriptors_ratio(self, pid: int) -> float | None:
        """Return the open descriptors of a process over its limit, where the kernel tells.

        Linux 6.2 and newer give their number as the size of the folder; counting them would cost a list of all.
        """
        with contextlib.suppress(OSError, ValueError, IndexError):
            count = os.stat(f"{self._proc}/{pid}/fd").st_size
            limits = self._opener(f"{self._proc}/{pid}/limits")
            # The value that holds comes before the highest that the process may set; "unlimited" is no number.
            limit = int(limits.split(b"Max open files", 1)[1].split(None, 1)[0])
            if count > 0 and limit > 0:
                # A limit may be lowered below what is open already.
                return min(count / limit, 1.0)
        return None

    def _parse(self, pid: int, data: bytes) -> Process | None:
        # The name may hold spaces and parentheses; the last one ends it.
        head, _, tail = data.rpartition(b")")
        name = head.partition(b"(")[2]
        # Numbered as in proc(5), where the state is field 3.
        fields = [b"", b"", b"", *tail.split()]
        state = fields[3].decode("ascii", "replace")
        if len(fields) < _FEWEST_FIELDS or state in _DEAD:
            return None
        code, stack = fields[26], fields[28]
        return Process(
            pid=pid,
            parent=int(fields[4]),
            name=name,
            is_blocked=state == "D",
            started=int(fields[22]) / self._ticks,
            cpu_seconds=(int(fields[14]) + int(fields[15])) / self._ticks,
            resident_bytes=max(int(fields[24]), 0) * self._page,
            threads=int(fields[20]),
            major_faults=int(fields[12]),
            # Zeros stand for "not yours to know".
            image=None if stack == b"0" else (code, stack),
        )
