"""Readings of the node through psutil, for what a training run competes for: CPU and memory."""

from __future__ import annotations

from typing import Any

import psutil


class Host:
    """Reads this node.  Each method is one source and raises OSError or psutil.Error when it cannot be read.

    ``library`` is psutil.
    """

    def __init__(self, library: Any = psutil) -> None:
        self._psutil = library

    def cpu_seconds(self) -> dict[str, float]:
        """Return CPU time by mode, summed over all CPUs."""
        times: dict[str, float] = self._psutil.cpu_times()._asdict()
        # The kernel counts the time of guests in user and nice already.
        return {mode: seconds for mode, seconds in times.items() if not mode.startswith("guest")}

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
