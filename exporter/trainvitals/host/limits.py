"""What a control group may use of memory and CPU, and what that cost the processes in it.

In a container /proc/meminfo is the host's: what counts is the limit of the group.  Sources: Documentation/
admin-guide/cgroup-v2.rst (memory.max, memory.events, cpu.max, cpu.stat) and cgroup-v1/memory.rst; memory in use is
counted as the kubelet does, without file pages that the kernel gives back first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainvitals.host import files

#: Version 1 writes the largest multiple of a page for "no limit".
_UNLIMITED = 1 << 60
_MOST_LEVELS = 32


@dataclass(frozen=True)
class Usage:
    """Limits of a group and how it stands; None where there is no limit or the kernel does not tell.

    ``memory_used`` belongs to ``memory_limit`` and ``throttled_seconds`` to ``cpus``, the quota in CPUs.
    ``oom_kills`` counts processes that were killed for want of memory, since the group was made.
    """

    memory_limit: int | None = None
    memory_used: int | None = None
    oom_kills: int | None = None
    cpus: float | None = None
    throttled_seconds: float | None = None


class Limits:
    """Reads the groups below ``root``.  Raises OSError when a file is there and cannot be read."""

    def __init__(self, root: str = "/sys/fs/cgroup", opener: files.Opener = files.read_file) -> None:
        self._root = root
        self._opener = opener

    def of_container(self) -> Usage:
        """Return the limits of the container that we are in; all None on a host.

        The root of all groups has no limit, and in version 2 no file of one; what a container sees as its root is a
        group as any other.
        """
        return self.of({"": "/", "memory": "/", "cpu": "/"})

    def of(self, paths: Mapping[str, str]) -> Usage:
        """Return the tightest limits that hold for a process; ``paths`` are its groups by controller."""
        limit, used, kills = self._memory(paths)
        cpus, throttled = self._cpu(paths)
        return Usage(limit, used, kills, cpus, throttled)

    def _memory(self, paths: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
        """Return limit, use and killed processes."""
        groups = [(self._text(folder, "memory.max"), folder) for folder in self._levels("", paths.get(""))]
        limited = [(limit, folder) for text, folder in groups if (limit := files.number(text)) is not None]
        if limited:
            limit, folder = min(limited, key=lambda pair: pair[0])
            used = self._used(folder, "memory.current", "inactive_file")
            return limit, used, self._kills(folder, "memory.events")
        known = [folder for text, folder in groups if text is not None]
        if known:
            return None, None, self._kills(known[0], "memory.events")
        return self._memory_v1(list(self._levels("memory", paths.get("memory"))))

    def _memory_v1(self, folders: list[str]) -> tuple[int | None, int | None, int | None]:
        groups = [(files.number(self._text(folder, "memory.limit_in_bytes")), folder) for folder in folders]
        limited = [(limit, folder) for limit, folder in groups if limit is not None and limit < _UNLIMITED]
        if not limited:
            return None, None, None
        limit, folder = min(limited, key=lambda pair: pair[0])
        # Version 1 counts a kill where the process was, and not in the groups above.
        used = self._used(folder, "memory.usage_in_bytes", "total_inactive_file")
        return limit, used, self._kills(folders[0], "memory.oom_control")

    def _used(self, folder: str, name: str, idle: str) -> int | None:
        used = files.number(self._text(folder, name))
        return None if used is None else max(used - files.table(self._text(folder, "memory.stat")).get(idle, 0), 0)

    def _kills(self, folder: str, name: str) -> int | None:
        return files.table(self._text(folder, name)).get("oom_kill")

    def _cpu(self, paths: Mapping[str, str]) -> tuple[float | None, float | None]:
        """Return the quota in CPUs and the seconds for which it throttled the group."""
        quotas = []
        for folder in self._levels("", paths.get("")):
            quota, _, period = (self._text(folder, "cpu.max") or "").partition(" ")
            quotas.append((_cpus(quota, period), folder, "throttled_usec", 1e6))
        for folder in self._levels("cpu", paths.get("cpu")):
            cpus = _cpus(self._text(folder, "cpu.cfs_quota_us"), self._text(folder, "cpu.cfs_period_us"))
            quotas.append((cpus, folder, "throttled_time", 1e9))
        tightest = min(quotas, key=lambda entry: entry[0] or math.inf, default=None)
        if tightest is None or tightest[0] is None:
            return None, None
        cpus, folder, name, unit = tightest
        throttled = files.table(self._text(folder, "cpu.stat")).get(name)
        return cpus, None if throttled is None else throttled / unit

    def _levels(self, controller: str, path: str | None) -> Iterable[str]:
        """Yield the folders from the group of a process up to the root."""
        # "/../.." is a group outside of the namespace that we are in.
        if path is None or ".." in path.split("/"):
            return
        parts = [part for part in path.split("/") if part][:_MOST_LEVELS]
        for length in range(len(parts), -1, -1):
            yield os.path.join(self._root, controller, *parts[:length])

    def _text(self, folder: str, name: str) -> str | None:
        return files.optional(f"{folder}/{name}", self._opener)


def _cpus(quota: str | None, period: str | None) -> float | None:
    """Return a quota in CPUs; "max" and -1 are none."""
    allowed, length = files.number(quota), files.number(period)
    return allowed / length if allowed and length else None
