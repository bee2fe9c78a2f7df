"""Instances of a GPU that is split (MIG).

They are listed anew each time: a handle dies with its instance, and its number may go to another.  The series of the
board itself stay whatever the instances do.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from trainvitals.devices.nvidia.apart import apart
from trainvitals.devices.nvidia.gpu import Gpu, text
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample

_MIB = 2**20
_GIB = 2**30
#: In NVML's words a GPU has memory in eighths.
_SLICES = 8


class Instance(NamedTuple):
    """A compute instance: the unit that a process is given.  The handle is good until the next listing."""

    handle: Any
    gpu_instance: int
    compute_instance: int
    uuid: str
    profile: str


def known(gpu: Gpu) -> tuple[Instance, ...]:
    """Return the instances that the last listing found."""
    found: tuple[Instance, ...] = gpu.kept.get("mig", ())
    return found


def instances(gpu: Gpu, sample: DeviceSample) -> None:
    """List the instances and read their memory; compute instances of one GPU instance share it."""
    nvml = gpu.nvml
    gpu.kept["mig"] = ()
    enabled, _ = nvml.nvmlDeviceGetMigMode(gpu.handle)
    sample.set("mig_enabled", float(enabled == nvml.NVML_DEVICE_MIG_ENABLE))
    if enabled != nvml.NVML_DEVICE_MIG_ENABLE:
        return
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)):
        with apart(gpu, sample):
            # "Not found" is a hole: instances are destroyed in any order.
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, index)
            one = _identified(gpu, handle)
            gpu.kept["mig"] += (one,)
            _show(gpu, one, sample)


def _identified(gpu: Gpu, handle: Any) -> Instance:
    nvml = gpu.nvml
    return Instance(
        handle=handle,
        gpu_instance=nvml.nvmlDeviceGetGpuInstanceId(handle),
        compute_instance=nvml.nvmlDeviceGetComputeInstanceId(handle),
        uuid=text(nvml.nvmlDeviceGetUUID, handle),
        profile=_profile(gpu, handle),
    )


def _profile(gpu: Gpu, handle: Any) -> str:
    """Return the profile as nvidia-smi writes it: ``1g.10gb``, or ``1c.3g.40gb`` for a part of a GPU instance."""
    _, _, profile = text(gpu.nvml.nvmlDeviceGetName, handle).rpartition("MIG ")
    if profile[:1].isdigit():
        return profile
    # Older drivers leave it out of the name.
    parts = gpu.nvml.nvmlDeviceGetAttributes_v2(handle)
    board = gpu.nvml.nvmlDeviceGetMemoryInfo(gpu.handle).total
    eighths = math.ceil(parts.memorySizeMB * _MIB * _SLICES / board)
    size = f"{parts.gpuInstanceSliceCount}g.{round(eighths * math.ceil(board / _GIB) / _SLICES)}gb"
    whole = parts.computeInstanceSliceCount == parts.gpuInstanceSliceCount
    return size if whole else f"{parts.computeInstanceSliceCount}c.{size}"


def _show(gpu: Gpu, one: Instance, sample: DeviceSample) -> None:
    nvml = gpu.nvml
    labels = (str(one.gpu_instance), str(one.compute_instance))
    sample.set("mig_info", 1.0, *labels, one.uuid, one.profile)
    memory = gpu.or_else(
        lambda: nvml.nvmlDeviceGetMemoryInfo(one.handle, version=nvml.nvmlMemory_v2),
        lambda: nvml.nvmlDeviceGetMemoryInfo(one.handle),
    )
    sample.set("mig_memory_used_bytes", float(memory.used), *labels)
    sample.set("mig_memory_total_bytes", float(memory.total), *labels)


SIGNALS: tuple[Signal, ...] = (Signal(Tier.MEDIUM, instances),)
