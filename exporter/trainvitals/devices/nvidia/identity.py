"""What identifies a GPU beyond its UUID."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainvitals.devices.nvidia.apart import apart
from trainvitals.devices.nvidia.gpu import Gpu, text
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample

_MOST_MINOR = 1 << 20


def _serial(nvml: Any, handle: Any) -> str:
    return text(nvml.nvmlDeviceGetSerial, handle)


def _board(nvml: Any, handle: Any) -> str:
    return text(nvml.nvmlDeviceGetBoardPartNumber, handle)


def _firmware(nvml: Any, handle: Any) -> str:
    return text(nvml.nvmlDeviceGetVbiosVersion, handle)


def _minor(nvml: Any, handle: Any) -> str:
    number = nvml.nvmlDeviceGetMinorNumber(handle)
    # The kernel has 20 bits for it (<linux/kdev_t.h>).
    return str(number) if number < _MOST_MINOR else ""


def _compute_capability(nvml: Any, handle: Any) -> str:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{major}.{minor}"


#: In the order of the labels of device_hardware_info.
_PARTS: tuple[Callable[[Any, Any], str], ...] = (_serial, _board, _firmware, _minor, _compute_capability)


def _hardware(gpu: Gpu, sample: DeviceSample) -> None:
    """Read what a GPU has not told yet; it stays the same for as long as the handle lives."""
    told: dict[int, str] = gpu.kept.setdefault("hardware", {})
    for place, part in enumerate(_PARTS):
        if place not in told:
            with apart(gpu, sample):
                told[place] = part(gpu.nvml, gpu.handle)
    parts = [told.get(place, "") for place in range(len(_PARTS))]
    if any(parts):
        sample.set("hardware_info", 1.0, *parts)


SIGNALS = (Signal(Tier.SLOW, _hardware),)
