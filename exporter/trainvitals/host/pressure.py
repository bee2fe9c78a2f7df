"""Pressure: for how long tasks waited for CPU, memory or disks, and what was killed for want of memory.

Sources: Documentation/accounting/psi.rst and the counters of /proc/vmstat.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.host import files

RESOURCES = ("cpu", "memory", "io", "irq")


@dataclass(frozen=True)
class Stall:
    """Seconds since boot in which some tasks, and in which all tasks, waited for a resource; None: not told."""

    some: float | None
    full: float | None


@dataclass(frozen=True)
class Shortage:
    """Events since boot: processes killed for want of memory, and pages that had to be read from a disk."""

    oom_kills: int | None
    major_faults: int | None


class Pressure:
    """Reads what the kernel says about shortages.  Methods raise OSError when a file is there and cannot be read."""

    def __init__(self, proc: str = "/proc", opener: files.Opener = files.read_file) -> None:
        self._proc = proc
        self._opener = opener

    def stalls(self) -> dict[str, Stall]:
        """Return the stalls by resource, without those that this kernel does not know."""
        found = {}
        for resource in RESOURCES:
            text = files.optional(f"{self._proc}/pressure/{resource}", self._opener)
            totals = _totals(text or "")
            if resource == "cpu":
                # Not defined for a whole machine: the kernel writes zeros since 5.13.
                totals.pop("full", None)
            if totals:
                found[resource] = Stall(totals.get("some"), totals.get("full"))
        return found

    def shortage(self) -> Shortage:
        """Return what happened for want of memory."""
        counters = files.table(files.optional(f"{self._proc}/vmstat", self._opener))
        return Shortage(counters.get("oom_kill"), counters.get("pgmajfault"))


def _totals(text: str) -> dict[str, float]:
    """Return the totals in seconds of lines such as ``some avg10=0.50 avg60=0.60 avg300=0.37 total=5733827``."""
    totals = {}
    for line in text.splitlines():
        kind, *pairs = line.split()[:8] or [""]
        for pair in pairs:
            name, _, value = pair.partition("=")
            microseconds = files.number(value)
            if name == "total" and microseconds is not None and kind in ("some", "full"):
                totals[kind] = microseconds / 1e6
    return totals
