"""Devices that do not exist, for a look at the dashboards where there are none.  Only on request, and labelled so."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from trainvitals.devices.base import Reading
from trainvitals.telemetry import DeviceSample, Fault

_GIB = 2**30


class SimulatedDevices:
    """``count`` devices whose values are smooth functions of ``clock`` (seconds) and of their index alone."""

    name = "simulated"

    def __init__(self, count: int, clock: Callable[[], float] = time.time) -> None:
        self._count = count
        self._clock = clock

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def latest(self) -> Reading:
        """Return the devices as they are now."""
        return Reading(vendor=self.name, up=True, devices=self.sample(), age=0.0)

    def faults(self) -> list[Fault]:
        """Return none."""
        return []

    def sample(self) -> list[DeviceSample]:
        """Return one sample per device."""
        now = self._clock()
        return [_device(index, now) for index in range(self._count)]


def _device(index: int, now: float) -> DeviceSample:
    # One slow wave, shifted per device: busy for most of five minutes, then a dip as in an evaluation.
    wave = 0.5 + 0.5 * math.sin(2 * math.pi * (now / 300.0 + index / 16.0))
    load = 0.55 + 0.43 * math.sqrt(wave)
    sample = DeviceSample(index=index, uuid=f"SIMULATED-{index}", vendor="simulated", name="Simulated device")
    sample.set("utilization_ratio", load)
    sample.set("memory_activity_ratio", 0.6 * load)
    sample.set("memory_used_bytes", float(int((40 + 24 * wave) * _GIB)))
    sample.set("memory_total_bytes", 80.0 * _GIB)
    sample.set("temperature_celsius", 38.0 + 32.0 * load, "gpu")
    sample.set("temperature_celsius", 45.0 + 35.0 * load, "memory")
    sample.set("power_watts", 90.0 + 560.0 * load, "instant")
    sample.set("power_limit_watts", 700.0)
    sample.set("clock_hertz", (1980 - int(200 * load)) * 1e6, "sm")
    sample.set("clock_hertz", 2619e6, "memory")
    return sample
