"""What the disks of this node have done since it booted.

Source of the format: the kernel's Documentation/admin-guide/iostats.rst (``/proc/diskstats``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

#: The unit of the kernel's counters of sectors, whatever the sectors of a disk are.
_SECTOR = 512
_MOST_BYTES = 1 << 20
#: Drives for discs that can be taken out: they have a device as disks have, and mostly nothing in them.
_NO_DISK = re.compile(r"(sr|fd)\d+")
#: One of the ways to an NVMe disk; nvme0c1n2 is one to nvme0n2.
_WAY = re.compile(r"(nvme\d+)c\d+(n\d+)")
_NUMBER = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Disk:
    """Counters of one physical disk; the kernel counts times in milliseconds and lets them overflow at 2**32."""

    name: str
    reads: int
    read_bytes: int
    read_seconds: float
    writes: int
    written_bytes: int
    write_seconds: float
    #: Time in which at least one request was under way.
    busy_seconds: float


class Disks:
    """Reads the disks below ``proc`` and ``sysfs``, at most ``limit``."""

    def __init__(self, *, proc: str = "/proc", sysfs: str = "/sys", limit: int = 64) -> None:
        self._path = os.path.join(proc, "diskstats")
        self._block = os.path.join(sysfs, "block")
        self._limit = limit

    def read(self) -> list[Disk]:
        """Return the physical disks by name, nvme2n1 before nvme10n1.  Raises OSError.

        Partitions, RAID, volumes of LVM and the ways to a disk that has several would count the same bytes again; a
        line that cannot be understood costs itself.
        """
        with open(self._path, "rb") as file:
            lines = file.read(_MOST_BYTES).decode("utf-8", "replace").split("\n")[:-1]
        found = {disk.name: disk for line in lines if (disk := _disk(line.split())) and self._is_physical(disk.name)}
        names = sorted(found.keys() - _counted_twice(found), key=_natural)
        return [found[name] for name in names[: self._limit]]

    def _is_physical(self, name: str) -> bool:
        # Only a disk has a device behind it; sysfs writes a slash in a name as an exclamation mark.
        entry = name.replace("/", "!")
        if _NO_DISK.fullmatch(name) or entry in {".", ".."}:
            return False
        return os.path.exists(os.path.join(self._block, entry, "device"))


def _counted_twice(disks: Mapping[str, Disk]) -> set[str]:
    """Return the ways to an NVMe disk that counts itself; a disk that does not, as before Linux 6.2, for its ways."""
    found = set()
    for name in disks:
        way = _WAY.fullmatch(name)
        disk = disks.get(way[1] + way[2]) if way else None
        if disk is not None:
            found.add(name if disk.reads or disk.writes else disk.name)
    return found


def _disk(fields: list[str]) -> Disk | None:
    if len(fields) < 13 or not all(field.isascii() and field.isdigit() for field in fields[3:13]):
        return None
    reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, _, busy_ms = map(int, fields[3:13])
    return Disk(
        name=fields[2],
        reads=reads,
        read_bytes=sectors_read * _SECTOR,
        read_seconds=read_ms / 1000,
        writes=writes,
        written_bytes=sectors_written * _SECTOR,
        write_seconds=write_ms / 1000,
        busy_seconds=busy_ms / 1000,
    )


def _natural(name: str) -> list[tuple[int, str]]:
    parts = _NUMBER.split(name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
