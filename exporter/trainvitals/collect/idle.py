"""Devices that somebody has and nobody uses: for how long each has done no work.

A device is had by a live rank that computes on it, by a Slurm job that was given it, or by a process that holds memory
on it.  It is idle as long as its driver says that no kernel ran in 95 % of the time, at each look; so one that works
now and then is not.  A collective operation that waits keeps its device busy: that is a stall, and another alert's.
Devices that tell no such share (split ones, some vendors) are not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trainvitals.collect.base import Sink
from trainvitals.telemetry import DeviceSample

#: Idle is less than this share of the time; a desktop or a monitor on a device takes a percent or two.
BUSY = 0.05
#: A process holds a device with so many bytes: the context of CUDA alone takes 300 MB and more.
HELD_BYTES = 128e6


class IdleDevices:
    """Remembers since when each device has been idle in somebody's hands."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def add(self, sink: Sink, now: float, devices: Iterable[DeviceSample], had: Collection[str]) -> None:
        """Add the seconds of each device that somebody has; ``had`` are the UUIDs of those of ranks and jobs."""
        since: dict[str, float] = {}
        for device in devices:
            share = device.values.get(("utilization_ratio",))
            if not device.up or share is None or device.uuid in since or not _is_had(device, had):
                continue
            # A clock that was set back makes nothing older.
            begun = min(self._since.get(device.uuid, now), now) if share < BUSY else now
            since[device.uuid] = begun
            sink.add("trainvitals_device_idle_seconds", now - begun, str(device.index), device.uuid)
        self._since = since


def _is_had(device: DeviceSample, had: Collection[str]) -> bool:
    return device.uuid in had or any((process.memory_bytes or 0.0) >= HELD_BYTES for process in device.processes)
