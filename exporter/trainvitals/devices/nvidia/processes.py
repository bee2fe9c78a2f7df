"""Which processes have memory on a GPU, and on which of its instances.

Their numbers are those of the node, also in a container.  They become no labels: with the rank files they tell which
run has which device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainvitals.devices.nvidia import mig
from trainvitals.devices.nvidia.apart import apart
from trainvitals.devices.nvidia.errors import Effect, meaning
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceProcess, DeviceSample

#: The kernel gives no number above it on 64 bits (linux/threads.h, PID_MAX_LIMIT).
_HIGHEST_PID = 2**22
#: Processes of a GPU that are passed on; all are counted.
_MOST = 512
#: No instance (nvml.h), and memory that is not known: NVML_VALUE_NOT_AVAILABLE, which the binding makes None.
_NONE = 0xFFFFFFFF
_NOT_AVAILABLE = 2**64 - 1
_SUCCESS = 0
_NOT_FOUND = 6
_INSUFFICIENT_SIZE = 7

#: The newer call and the older.  One of a client of MPS is in the second list or in both.
_LISTS = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2"),
)

_Found = dict[tuple[int, tuple[str, str] | None], float | None]


def processes(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the processes; each of one instance is one entry, whichever lists it is in."""
    gpu.processes = ()
    found: _Found = {}
    try:
        _take(gpu, _listed(gpu, gpu.handle), found)
    except gpu.nvml.NVMLError as error:
        # Without the right to see the whole of a split GPU, its instances may still tell.
        if not mig.known(gpu) or meaning(error.value)[1] not in {Effect.ABSENT, Effect.FIELD}:
            raise
        for one in mig.known(gpu):
            with apart(gpu, sample):
                _take(gpu, _listed(gpu, one.handle), found, one)
    largest = sorted(found.items(), key=lambda item: (-(item[1] or 0.0), item[0][0]))[:_MOST]
    gpu.processes = tuple(DeviceProcess(pid, memory, instance) for (pid, instance), memory in largest)
    sample.set("processes", float(len({pid for pid, _ in found})))


def _listed(gpu: Gpu, handle: Any) -> list[Any]:
    compute, clients_of_mps = _LISTS
    found = _list(gpu, handle, *compute)
    try:
        return found + _list(gpu, handle, *clients_of_mps)
    except gpu.nvml.NVMLError as error:
        if meaning(error.value)[1] is not Effect.ABSENT:
            raise
        return found


def _list(gpu: Gpu, handle: Any, newer: str, older: str) -> list[Any]:
    def ask(name: str) -> list[Any]:
        try:
            return list(getattr(gpu.nvml, name)(handle))
        except gpu.nvml.NVMLError as error:
            # Some versions of the binding raise the code for success over an empty list.
            if error.value in {_SUCCESS, _NOT_FOUND}:
                return []
            raise

    def either() -> list[Any]:
        found: list[Any] = gpu.or_else(lambda: ask(newer), lambda: ask(older))
        return found

    try:
        return either()
    except gpu.nvml.NVMLError as error:
        # More processes came than the binding left room for.
        if error.value != _INSUFFICIENT_SIZE:
            raise
        return either()


def _take(gpu: Gpu, listed: Iterable[Any], found: _Found, instance: mig.Instance | None = None) -> None:
    for one in listed:
        if 0 < one.pid <= _HIGHEST_PID:
            key = (one.pid, _instance(gpu, one, instance))
            known = [memory for memory in (_memory(gpu, one.usedGpuMemory), found.get(key)) if memory is not None]
            found[key] = max(known, default=None)


def _instance(gpu: Gpu, one: Any, instance: mig.Instance | None) -> tuple[str, str] | None:
    if instance is not None:
        return str(instance.gpu_instance), str(instance.compute_instance)
    numbers = (one.gpuInstanceId, one.computeInstanceId)
    return None if _NONE in numbers or not mig.known(gpu) else (str(numbers[0]), str(numbers[1]))


def _memory(gpu: Gpu, used: int | None) -> float | None:
    """Return the memory of a process, None when it is unknown or more than the device has."""
    total = gpu.parts.get(Tier.FAST, {}).get(("memory_total_bytes",), float("inf"))
    return None if used is None or used == _NOT_AVAILABLE or used > total else float(used)


SIGNALS: tuple[Signal, ...] = (Signal(Tier.MEDIUM, processes),)
