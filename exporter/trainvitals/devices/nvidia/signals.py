"""The table of what is read of one GPU: tier and reader.  A new signal is one function and one row.

A reader gets the GPU and the sample that it fills, with the families of :mod:`trainvitals.metrics.devices`.  It may
raise whatever the binding raises: that costs its own values only, unless the error says that the device or the driver
is gone.  Only calls that cost microseconds belong here: ``nvmlDeviceGetPcieThroughput`` samples for 20 ms (nvml.h).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainvitals.devices.nvidia import basic
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample


class Signal(NamedTuple):
    """One reader and how often it is called."""

    tier: Tier
    read: Callable[[Gpu, DeviceSample], None]


SIGNALS: tuple[Signal, ...] = (
    Signal(Tier.FAST, basic.utilization),
    Signal(Tier.FAST, basic.memory),
    Signal(Tier.FAST, basic.temperature),
    Signal(Tier.FAST, basic.memory_temperature),
    Signal(Tier.FAST, basic.power),
    Signal(Tier.FAST, basic.power_limit),
    Signal(Tier.FAST, basic.sm_clock),
    Signal(Tier.FAST, basic.memory_clock),
)
