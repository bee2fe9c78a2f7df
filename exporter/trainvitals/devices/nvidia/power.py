"""Power, its limits, and energy of a GPU.  NVML counts in mW and mJ."""

from __future__ import annotations

from trainvitals.devices.blanks import scaled
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal, call, numbered
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample

_MILLI = 1e-3
_AVERAGE = 185
_INSTANT = 186


def _default(gpu: Gpu, sample: DeviceSample) -> None:
    """Read what the driver chooses, where it does not say which: a mean of 1 s since Ampere but GA100 (nvml.h)."""
    if not (gpu.has(_AVERAGE) or gpu.has(_INSTANT)):
        sample.set("power_watts", scaled(gpu.nvml.nvmlDeviceGetPowerUsage(gpu.handle), _MILLI), "default")


def _bounds(gpu: Gpu, sample: DeviceSample) -> None:
    lowest, highest = gpu.nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu.handle)
    sample.set("power_limit_bound_watts", scaled(lowest, _MILLI), "min")
    sample.set("power_limit_bound_watts", scaled(highest, _MILLI), "max")


SIGNALS = (
    numbered(Tier.FAST, _AVERAGE, "power_watts", "average", unit=_MILLI),
    numbered(Tier.FAST, _INSTANT, "power_watts", "instant", unit=_MILLI),
    Signal(Tier.FAST, _default, (_AVERAGE, _INSTANT)),
    call(Tier.FAST, lambda gpu: gpu.nvml.nvmlDeviceGetEnforcedPowerLimit(gpu.handle), "power_limit_watts", unit=_MILLI),
    # Since the driver was loaded: a reload is a reset of the counter, as Prometheus knows it.
    numbered(
        Tier.MEDIUM,
        83,
        "energy_joules_total",
        unit=_MILLI,
        older=lambda gpu: gpu.nvml.nvmlDeviceGetTotalEnergyConsumption(gpu.handle),
    ),
    Signal(Tier.SLOW, _bounds),
    call(
        Tier.SLOW,
        lambda gpu: gpu.nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu.handle),
        "power_limit_bound_watts",
        "default",
        unit=_MILLI,
    ),
)
