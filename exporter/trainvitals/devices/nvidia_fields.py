"""The values of one NVIDIA device: one reader per call of NVML.

Only calls that cost microseconds are made.  ``nvmlDeviceGetPcieThroughput`` is not among them: it samples for 20 ms
per direction (nvml.h).  Units are nvml.h's, and become ours here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainvitals.devices.nvidia_errors import Effect, meaning
from trainvitals.telemetry import DeviceSample

_MEMORY_TEMPERATURE = 82
_POWER_INSTANT = 186
#: Member of the union in a field value, by its type code.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def _or_else(nvml: Any, newer: Callable[[], Any], older: Callable[[], Any]) -> Any:
    """Return what ``newer`` returns, or ``older`` where the driver, the device or the binding does not know it."""
    try:
        return newer()
    except AttributeError:
        return older()
    except nvml.NVMLError as error:
        if meaning(error.value)[1] is not Effect.ABSENT:
            raise
        return older()


def _utilization(nvml: Any, handle: Any, sample: DeviceSample) -> None:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    sample.utilization_ratio = rates.gpu / 100
    sample.memory_activity_ratio = rates.memory / 100


def _memory(nvml: Any, handle: Any, sample: DeviceSample) -> None:
    memory = _or_else(
        nvml,
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
    )
    sample.memory_used_bytes = float(memory.used)
    sample.memory_total_bytes = float(memory.total)


def _temperature(nvml: Any, handle: Any, sample: DeviceSample) -> None:
    sample.temperatures_celsius["gpu"] = float(
        _or_else(
            nvml,
            lambda: nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU),
            lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        )
    )


def _memory_temperature(nvml: Any, handle: Any, sample: DeviceSample) -> None:
    sample.temperatures_celsius["memory"] = _field_value(nvml, handle, _MEMORY_TEMPERATURE)


def _power(nvml: Any, handle: Any, sample: DeviceSample) -> None:
    # GetPowerUsage is the mean of one second on newer devices and an instant on older ones (nvml.h).
    milliwatts, kind = _or_else(
        nvml,
        lambda: (_field_value(nvml, handle, _POWER_INSTANT), "instant"),
        lambda: (nvml.nvmlDeviceGetPowerUsage(handle), "default"),
    )
    sample.power_watts = milliwatts / 1000
    sample.power_kind = kind


def _power_limit(nvml: Any, handle: Any, sample: DeviceSample) -> None:
    sample.power_limit_watts = nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000


def _sm_clock(nvml: Any, handle: Any, sample: DeviceSample) -> None:
    sample.clocks_hertz["sm"] = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6


def _memory_clock(nvml: Any, handle: Any, sample: DeviceSample) -> None:
    sample.clocks_hertz["memory"] = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6


#: One reader per value or pair of values: what fails costs only its own.
FIELDS: tuple[Callable[[Any, Any, DeviceSample], None], ...] = (
    _utilization,
    _memory,
    _temperature,
    _memory_temperature,
    _power,
    _power_limit,
    _sm_clock,
    _memory_clock,
)


def _field_value(nvml: Any, handle: Any, field: int) -> float:
    """Return one of NVML's numbered fields.  Raises NVMLError with the code of that field."""
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
    if value.nvmlReturn:
        # A driver that is older than the field calls it an invalid argument.
        unknown = value.nvmlReturn == nvml.NVML_ERROR_INVALID_ARGUMENT
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED if unknown else value.nvmlReturn)
    return float(getattr(value.value, _MEMBERS[value.valueType]))
