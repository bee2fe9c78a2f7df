"""How much of the last sampling period, 1/6 to 1 s (nvml.h), a GPU had work.  Not told while it is split (MIG)."""

from __future__ import annotations

from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample


def _utilization(gpu: Gpu, sample: DeviceSample) -> None:
    rates = gpu.nvml.nvmlDeviceGetUtilizationRates(gpu.handle)
    sample.set("utilization_ratio", rates.gpu / 100)
    sample.set("memory_activity_ratio", rates.memory / 100)


SIGNALS = (Signal(Tier.FAST, _utilization),)
