"""NVIDIA devices through NVML (nvidia-ml-py).

Only calls that cost microseconds are made.  ``nvmlDeviceGetPcieThroughput`` is not among them: it samples for 20 ms
and direction (nvml.h).  The meaning of codes and units is nvml.h's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from trainvitals.devices.base import NoLibraryError, SourceDownError, Vendor
from trainvitals.telemetry import DeviceSample


class Effect(Enum):
    """What a return code of NVML costs."""

    ABSENT = "this device has no such value: no series, no complaint"
    FIELD = "this value is missing this time, and that is counted"
    DEVICE = "the device does not answer"
    DRIVER = "the driver does not answer: connect again later"
    PROCESS = "the driver was replaced under the loaded library: only a new process can help"


#: NVML's return codes: the word for the label ``reason``, and what follows.  Others are ``code_<n>``, a missing value.
ERRORS: dict[int, tuple[str, Effect]] = {
    1: ("uninitialized", Effect.DRIVER),
    2: ("invalid_argument", Effect.FIELD),
    3: ("not_supported", Effect.ABSENT),
    4: ("no_permission", Effect.FIELD),
    6: ("not_found", Effect.ABSENT),
    9: ("driver_not_loaded", Effect.DRIVER),
    10: ("timeout", Effect.FIELD),
    13: ("function_not_found", Effect.ABSENT),
    14: ("corrupted_inforom", Effect.FIELD),
    15: ("gpu_is_lost", Effect.DEVICE),
    16: ("reset_required", Effect.DEVICE),
    17: ("blocked_by_operating_system", Effect.DEVICE),
    18: ("lib_rm_version_mismatch", Effect.PROCESS),
    20: ("out_of_memory", Effect.FIELD),
    21: ("no_data", Effect.ABSENT),
    25: ("argument_version_mismatch", Effect.ABSENT),
    26: ("deprecated", Effect.ABSENT),
    27: ("not_ready", Effect.ABSENT),
    28: ("gpu_not_found", Effect.DEVICE),
    999: ("unknown", Effect.FIELD),
}
_LIBRARY_NOT_FOUND = 12

_MEMORY_TEMPERATURE = 82
_POWER_INSTANT = 186
#: Member of the union in a field value, by its type code.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def create() -> Vendor:
    """Return a reader.  Raises NoLibraryError when nvidia-ml-py is missing or another package has taken its name."""
    try:
        import pynvml  # noqa: PLC0415  # Only the child may load it.
    except ImportError:
        raise NoLibraryError("nvidia-ml-py is not installed") from None
    if not hasattr(pynvml, "nvmlMemory_v2"):
        raise NoLibraryError("the installed module pynvml is not that of nvidia-ml-py 12.560 or newer")
    return Nvidia(pynvml)


class _Identity(NamedTuple):
    uuid: str = ""
    name: str = ""
    pci_bus_id: str = ""


class Nvidia:
    """Reads all GPUs through ``nvml``, which is the module pynvml."""

    name = "nvidia"

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._open = False
        self._driver_version = ""
        self._handles: dict[int, Any] = {}
        self._identities: dict[int, _Identity] = {}

    def open(self) -> None:
        """Initialise NVML, which does not touch a GPU yet.  Raises NoLibraryError or SourceDownError."""
        try:
            # Without the flag a driver that has lost its last GPU would be a driver that does not answer.
            self._nvml.nvmlInitWithFlags(self._nvml.NVML_INIT_FLAG_NO_GPUS)
            self._open = True
            self._driver_version = self._text(self._nvml.nvmlSystemGetDriverVersion)
        except self._nvml.NVMLError as error:
            if error.value == _LIBRARY_NOT_FOUND:
                raise NoLibraryError("libnvidia-ml.so.1 was not found") from None
            raise _source_down(error) from None

    def close(self) -> None:
        """Shut NVML down; handles do not survive it."""
        self._handles.clear()
        self._identities.clear()
        if self._open:
            self._open = False
            # It fails when the driver is gone, which is why we close.
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def sample(self) -> list[DeviceSample]:
        """Read every GPU that NVML counts, those without an answer included.  Raises SourceDownError."""
        try:
            count = self._nvml.nvmlDeviceGetCount()
            if count != len(self._identities):
                # Indices have moved.
                self._handles.clear()
                self._identities = {index: _Identity() for index in range(count)}
            return [self._device(index) for index in range(count)]
        except self._nvml.NVMLError as error:
            raise _source_down(error) from None

    def _device(self, index: int) -> DeviceSample:
        """Read one GPU.  Raises NVMLError only when the driver as a whole is gone."""
        failed: dict[str, int] = {}
        try:
            if index not in self._handles:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                self._identities[index] = self._identify(handle)
                self._handles[index] = handle
            return self._read(self._handles[index], self._blank(index), failed)
        except self._nvml.NVMLError as error:
            reason, effect = _meaning(error.value)
            if effect in {Effect.DRIVER, Effect.PROCESS}:
                raise
            # After a reset the same GPU has a new handle.
            self._handles.pop(index, None)
            down = self._blank(index)
            down.up = False
            down.failed = {**failed, reason: failed.get(reason, 0) + 1}
            return down

    def _blank(self, index: int) -> DeviceSample:
        identity = self._identities[index]
        return DeviceSample(
            index=index,
            vendor=self.name,
            driver_version=self._driver_version,
            uuid=identity.uuid,
            name=identity.name,
            pci_bus_id=identity.pci_bus_id,
        )

    def _identify(self, handle: Any) -> _Identity:
        uuid = self._text(self._nvml.nvmlDeviceGetUUID, handle)
        name = self._text(self._nvml.nvmlDeviceGetName, handle)
        return _Identity(uuid, name, self._text(self._pci_bus_id, handle))

    def _pci_bus_id(self, handle: Any) -> str:
        # As the kernel writes it; NVML's own text has eight digits of domain.
        pci = self._nvml.nvmlDeviceGetPciInfo(handle)
        return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"

    def _text(self, call: Callable[..., str], *args: Any) -> str:
        try:
            return call(*args)
        except UnicodeDecodeError as error:
            # A damaged InfoROM returns bytes that are no UTF-8.
            return error.object.decode(errors="replace")
        except self._nvml.NVMLError as error:
            self._unless_minor(error)
            return ""

    def _unless_minor(self, error: Any) -> tuple[str, Effect]:
        """Return what an error means when it costs one value; raise it again when it costs more."""
        reason, effect = _meaning(error.value)
        if effect in {Effect.ABSENT, Effect.FIELD}:
            return reason, effect
        raise error

    def _read(self, handle: Any, sample: DeviceSample, failed: dict[str, int]) -> DeviceSample:
        answered = False
        for read in _FIELDS:
            try:
                read(self._nvml, handle, sample)
                answered = True
            except self._nvml.NVMLError as error:
                reason, effect = self._unless_minor(error)
                if effect is Effect.ABSENT:
                    answered = True
                else:
                    failed[reason] = failed.get(reason, 0) + 1
        sample.failed = failed
        sample.up = answered
        return sample


def _source_down(error: Any) -> SourceDownError:
    reason, effect = _meaning(error.value)
    return SourceDownError(reason, stale=effect is Effect.PROCESS)


def _meaning(code: int) -> tuple[str, Effect]:
    return ERRORS.get(code, (f"code_{code}", Effect.FIELD))


def _or_else(nvml: Any, newer: Callable[[], Any], older: Callable[[], Any]) -> Any:
    """Return what ``newer`` returns, or ``older`` where the driver, the device or the binding does not know it."""
    try:
        return newer()
    except AttributeError:
        return older()
    except nvml.NVMLError as error:
        if _meaning(error.value)[1] is not Effect.ABSENT:
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
_FIELDS: tuple[Callable[[Any, Any, DeviceSample], None], ...] = (
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
