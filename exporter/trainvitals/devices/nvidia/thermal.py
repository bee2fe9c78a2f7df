"""Temperatures, their limits, and fans of a GPU, in degrees Celsius and per cent.

Newer devices (Ada and later) tell how many degrees are left, and their limits are margins: a slowdown at -2 begins two
degrees beyond the margin 0.  Older ones tell temperatures.
"""

from __future__ import annotations

from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal, call, numbered
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample

#: Limit, number of the field with its margin, threshold of nvmlDeviceGetTemperatureThreshold (nvml.h).
_LIMITS = (("shutdown", 193, 0), ("slowdown", 194, 1), ("memory_max", 195, 2), ("gpu_max", 196, 3))
_MOST_FANS = 16
_BLANK = float(2**32 - 1)
_SIGN = 2**31


def _gpu(gpu: Gpu) -> float:
    nvml = gpu.nvml
    sensor = nvml.NVML_TEMPERATURE_GPU
    celsius: float = gpu.or_else(
        lambda: nvml.nvmlDeviceGetTemperatureV(gpu.handle, sensor),
        lambda: nvml.nvmlDeviceGetTemperature(gpu.handle, sensor),
    )
    # The newer call has a sign: all bits set would be a degree below zero.
    return _BLANK if celsius == -1 else celsius


def _signed(celsius: float) -> float:
    """Return a margin with its sign, also where the driver calls it an unsigned number; a blank stays one."""
    return celsius - 2 * _SIGN if _SIGN <= celsius < _BLANK else celsius


def _limit(name: str, field: int, threshold: int) -> Signal:
    def read(gpu: Gpu, sample: DeviceSample) -> None:
        if gpu.has(field):
            sample.set("temperature_margin_limit_celsius", _signed(gpu.field(field)), name)
        else:
            celsius = gpu.nvml.nvmlDeviceGetTemperatureThreshold(gpu.handle, threshold)
            sample.set("temperature_limit_celsius", float(celsius), name)

    return Signal(Tier.SLOW, read, (field,))


def _fans(gpu: Gpu, sample: DeviceSample) -> None:
    for fan in range(min(gpu.nvml.nvmlDeviceGetNumFans(gpu.handle), _MOST_FANS)):
        sample.set("fan_ratio", gpu.nvml.nvmlDeviceGetFanSpeed_v2(gpu.handle, fan) / 100, str(fan))


SIGNALS = (
    call(Tier.MEDIUM, _gpu, "temperature_celsius", "gpu"),
    numbered(Tier.MEDIUM, 82, "temperature_celsius", "memory"),
    call(
        Tier.MEDIUM,
        lambda gpu: gpu.nvml.nvmlDeviceGetMarginTemperature(gpu.handle),
        "temperature_margin_celsius",
    ),
    *(_limit(*row) for row in _LIMITS),
    Signal(Tier.SLOW, _fans),
)
