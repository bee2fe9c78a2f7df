"""Utilization, memory, temperatures, power and clocks of one GPU.  Units are nvml.h's, and become ours here."""

from __future__ import annotations

from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.telemetry import DeviceSample

_MEMORY_TEMPERATURE = 82
_POWER_INSTANT = 186


def utilization(gpu: Gpu, sample: DeviceSample) -> None:
    """Read how much of the last sampling period a kernel ran, and memory was read or written."""
    rates = gpu.nvml.nvmlDeviceGetUtilizationRates(gpu.handle)
    sample.set("utilization_ratio", rates.gpu / 100)
    sample.set("memory_activity_ratio", rates.memory / 100)


def memory(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the memory in use."""
    nvml = gpu.nvml
    memory = gpu.or_else(
        lambda: nvml.nvmlDeviceGetMemoryInfo(gpu.handle, version=nvml.nvmlMemory_v2),
        lambda: nvml.nvmlDeviceGetMemoryInfo(gpu.handle),
    )
    sample.set("memory_used_bytes", float(memory.used))
    sample.set("memory_total_bytes", float(memory.total))


def temperature(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the temperature of the chip."""
    nvml = gpu.nvml
    celsius = gpu.or_else(
        lambda: nvml.nvmlDeviceGetTemperatureV(gpu.handle, nvml.NVML_TEMPERATURE_GPU),
        lambda: nvml.nvmlDeviceGetTemperature(gpu.handle, nvml.NVML_TEMPERATURE_GPU),
    )
    sample.set("temperature_celsius", float(celsius), "gpu")


def memory_temperature(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the temperature of the memory."""
    sample.set("temperature_celsius", gpu.field(_MEMORY_TEMPERATURE), "memory")


def power(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the power draw; GetPowerUsage is the mean of one second on newer devices, an instant on older (nvml.h)."""
    milliwatts, kind = gpu.or_else(
        lambda: (gpu.field(_POWER_INSTANT), "instant"),
        lambda: (gpu.nvml.nvmlDeviceGetPowerUsage(gpu.handle), "default"),
    )
    sample.set("power_watts", milliwatts / 1000, kind)


def power_limit(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the limit in force."""
    sample.set("power_limit_watts", gpu.nvml.nvmlDeviceGetEnforcedPowerLimit(gpu.handle) / 1000)


def sm_clock(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the clock of the multiprocessors."""
    sample.set("clock_hertz", gpu.nvml.nvmlDeviceGetClockInfo(gpu.handle, gpu.nvml.NVML_CLOCK_SM) * 1e6, "sm")


def memory_clock(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the clock of the memory."""
    sample.set("clock_hertz", gpu.nvml.nvmlDeviceGetClockInfo(gpu.handle, gpu.nvml.NVML_CLOCK_MEM) * 1e6, "memory")
