"""The fabric of NVSwitches: whether a GPU has joined it, and whether it is well.

The structures are our own: those of nvidia-ml-py 12.560 have a UUID of 80 bytes where nvml.h has 16, and it has none
of version 3.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

from trainvitals.devices.nvidia.errors import Effect, meaning
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample


class FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_t of nvml.h."""

    _fields_ = (
        ("uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_int),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


class FabricInfo2(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t of nvml.h."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_int),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
        ("health", ctypes.c_uint),
    )


class FabricInfo3(ctypes.Structure):
    """nvmlGpuFabricInfo_v3_t of nvml.h."""

    _fields_ = (*FabricInfo2._fields_, ("summary", ctypes.c_ubyte))


#: States (nvml.h, NVML_GPU_FABRIC_STATE_*); 0 is "has no fabric".
_STATES: Mapping[int, str] = {1: "not_started", 2: "in_progress", 3: "completed"}
_COMPLETED = 3


class _Aspect(NamedTuple):
    """Bits of the health mask, and which of their values is well; 0 is "not told" (nvml.h)."""

    shift: int
    width: int
    well: int


_ASPECTS: Mapping[str, _Aspect] = {
    "degraded_bandwidth": _Aspect(0, 2, 2),
    "route_recovery": _Aspect(2, 2, 2),
    "route_unhealthy": _Aspect(4, 2, 2),
    "access_timeout_recovery": _Aspect(6, 2, 2),
    "incorrect_configuration": _Aspect(8, 4, 1),
    "partition_missing": _Aspect(12, 2, 1),
    "manager_disconnected": _Aspect(14, 2, 1),
}
_SUMMARY_HEALTHY = 1


def fabric(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the state of the fabric; a GPU that has none has no series."""
    info = _info(gpu)
    if info.state not in _STATES:
        return
    for number, state in _STATES.items():
        sample.set("fabric_state", float(info.state == number), state)
    # Until it is completed the status says nothing (nvml.h).
    sample.set("fabric_failed", float(info.state == _COMPLETED and info.status != 0))
    health = _health(info)
    if health:
        sample.set("fabric_unhealthy", float(not all(health.values())))
    for name, well in health.items():
        if not well:
            sample.set("fabric_unhealthy_info", 1.0, name)


def _health(info: Any) -> dict[str, bool]:
    """Return whether each aspect is well that the driver tells."""
    mask = getattr(info, "health", 0)
    told = {name: mask >> aspect.shift & ((1 << aspect.width) - 1) for name, aspect in _ASPECTS.items()}
    health = {name: value == _ASPECTS[name].well for name, value in told.items() if value}
    if summary := getattr(info, "summary", 0):
        health["summary"] = summary == _SUMMARY_HEALTHY
    return health


def _info(gpu: Gpu) -> Any:
    """Return the newest structure that the driver fills.  Raises NVMLError."""
    nvml = gpu.nvml
    for version, kind in ((3, FabricInfo3), (2, FabricInfo2)):
        info = kind(version=ctypes.sizeof(kind) | version << 24)
        try:
            nvml.nvmlDeviceGetGpuFabricInfoV(gpu.handle, ctypes.byref(info))
        except nvml.NVMLError as error:
            # A driver calls a version that it does not know by either name.
            if error.value != nvml.NVML_ERROR_INVALID_ARGUMENT and meaning(error.value)[1] is not Effect.ABSENT:
                raise
        else:
            return info
    oldest = FabricInfo()
    nvml.nvmlDeviceGetGpuFabricInfo(gpu.handle, ctypes.byref(oldest))
    return oldest


SIGNALS: tuple[Signal, ...] = (Signal(Tier.SLOW, fabric),)
