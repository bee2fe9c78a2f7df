"""Memory of a GPU, in bytes.  Absent where it is the memory of the host (unified memory)."""

from __future__ import annotations

from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample


def _memory(gpu: Gpu, sample: DeviceSample) -> None:
    nvml = gpu.nvml
    # The version is that of the structure; the older call counts what the driver keeps for itself as used.
    memory = gpu.or_else(
        lambda: nvml.nvmlDeviceGetMemoryInfo(gpu.handle, version=nvml.nvmlMemory_v2),
        lambda: nvml.nvmlDeviceGetMemoryInfo(gpu.handle),
    )
    sample.set("memory_used_bytes", float(memory.used))
    sample.set("memory_total_bytes", float(memory.total))
    if hasattr(memory, "reserved"):
        sample.set("memory_reserved_bytes", float(memory.reserved))


SIGNALS = (Signal(Tier.FAST, _memory),)
