"""CPUs that ran slower because they were too hot.

Source: the folder ``thermal_throttle`` of a CPU in sysfs, written by the kernel's therm_throt driver for Intel CPUs.
The threads of a core share its counters, and the cores of a package those of the package: each is counted once.
The frequency of now is not read: the kernel asks every CPU for it and interrupts what it does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from trainvitals.host import files

#: More CPUs than any machine has.
_MOST_CPUS = 8192


@dataclass(frozen=True)
class Throttling:
    """How often and for how many seconds cores or packages were slowed down, summed; None: not told."""

    events: int | None
    seconds: float | None


class CpuThrottle:
    """Reads the counters of all CPUs.  ``sysfs`` is where the kernel's device tree is mounted."""

    def __init__(self, sysfs: str = "/sys") -> None:
        self._cpus = os.path.join(sysfs, "devices/system/cpu")
        self._known: frozenset[str] = frozenset()
        #: Folders of CPUs that speak for a core, and for a package.
        self._speakers: dict[str, list[str]] = {}

    def read(self) -> dict[str, Throttling]:
        """Return the counters of ``core`` and ``package``; empty where the CPUs have none.  Raises OSError."""
        try:
            names = frozenset(name for name in os.listdir(self._cpus) if name[:3] == "cpu" and name[3:].isdigit())
        except FileNotFoundError:
            return {}
        if names != self._known:
            # A CPU that went off or came on: somebody else may speak for its core now.
            self._speakers = self._choose(sorted(names, key=lambda name: int(name[3:]))[:_MOST_CPUS])
            self._known = names
        return {scope: self._sum(scope, cpus) for scope, cpus in self._speakers.items() if cpus}

    def _choose(self, names: list[str]) -> dict[str, list[str]]:
        speakers: dict[str, list[str]] = {"core": [], "package": []}
        seen: set[tuple[str, ...]] = set()
        for name in names:
            cpu = os.path.join(self._cpus, name)
            if not os.path.isdir(os.path.join(cpu, "thermal_throttle")):
                continue
            package = (files.optional(os.path.join(cpu, "topology/physical_package_id")) or "").strip()
            core = (files.optional(os.path.join(cpu, "topology/core_id")) or name).strip()
            for scope, key in (("package", (package,)), ("core", (package, core))):
                if key not in seen:
                    seen.add(key)
                    speakers[scope].append(cpu)
        return speakers

    def _sum(self, scope: str, cpus: list[str]) -> Throttling:
        events = [_counter(cpu, f"{scope}_throttle_count") for cpu in cpus]
        milliseconds = [_counter(cpu, f"{scope}_throttle_total_time_ms") for cpu in cpus]
        total = _total(milliseconds)
        return Throttling(_total(events), None if total is None else total / 1e3)


def _counter(cpu: str, name: str) -> int | None:
    return files.number(files.optional(f"{cpu}/thermal_throttle/{name}"))


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
