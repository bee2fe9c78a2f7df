"""Readings of the node through psutil, for what a training run competes for: CPU and memory."""

from __future__ import annotations

from typing import Any

import psutil

#: The kernel lets the time of waiting fall a little (proc(5)); a fall by more seconds is a new start.
_STEP_BACK = 60.0


class Host:
    """Reads this node.  Each method is one source and raises OSError or psutil.Error when it cannot be read.

    ``library`` is psutil.
    """

    def __init__(self, library: Any = psutil) -> None:
        self._psutil = library
        self._cpu: dict[str, float] = {}

    def cpu_seconds(self) -> dict[str, float]:
        """Return CPU time by mode, summed over all CPUs; none falls, or a rate would take it for a restart."""
        times: dict[str, float] = self._psutil.cpu_times()._asdict()
        for mode, seconds in times.items():
            # The kernel counts the time of guests in user and nice already.
            if not mode.startswith("guest"):
                known = self._cpu.get(mode, 0.0)
                self._cpu[mode] = known if known - _STEP_BACK < seconds < known else seconds
        return dict(self._cpu)

    def cpus(self) -> int | None:
        """Return the number of logical CPUs."""
        count: int | None = self._psutil.cpu_count(logical=True)
        return count

    def load1(self) -> float:
        """Return the load average over one minute."""
        return float(self._psutil.getloadavg()[0])

    def memory(self) -> tuple[int, int]:
        """Return total and available memory in bytes."""
        memory = self._psutil.virtual_memory()
        return memory.total, memory.available

    def swap_used(self) -> int:
        """Return the bytes of swap in use."""
        used: int = self._psutil.swap_memory().used
        return used

    def boot_timestamp(self) -> float:
        """Return when the node booted, in seconds since the epoch."""
        return float(self._psutil.boot_time())
