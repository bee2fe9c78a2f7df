"""One GPU that has been opened, and the ways in which NVML answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from trainvitals.devices.nvidia.errors import Effect, meaning
from trainvitals.devices.tiers import Schedule, Tier
from trainvitals.telemetry import DeviceProcess

#: Member of the union in a field value, by its type code (nvml.h, nvmlValueType_t).
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

Values = dict[tuple[str, ...], float]


class Identity(NamedTuple):
    """What a GPU is, for as long as its handle lives."""

    uuid: str = ""
    name: str = ""
    pci_bus_id: str = ""


class Gpu:
    """A handle, and what the readers keep between two reads of it.

    ``nvml`` is the module pynvml.  ``processes`` are those of the last reading; ``kept`` belongs to the readers, each
    under a key of its own.
    """

    def __init__(self, nvml: Any, handle: Any, index: int, identity: Identity) -> None:
        self.nvml = nvml
        self.handle = handle
        self.index = index
        self.identity = identity
        self.schedule = Schedule()
        self.parts: dict[Tier, Values] = {}
        self.processes: tuple[DeviceProcess, ...] = ()
        self.kept: dict[str, Any] = {}
        #: Called when the handle is given up, for what must be given back to the library.
        self.closers: list[Callable[[], None]] = []

    def close(self) -> None:
        """Give back what the readers took from the library; never raises."""
        for close in self.closers:
            try:
                close()
            except Exception:  # noqa: S112  # The driver may be gone, which is why we close.
                continue
        self.closers.clear()

    def or_else(self, newer: Callable[[], Any], older: Callable[[], Any]) -> Any:
        """Return what ``newer`` returns, or ``older`` where driver, device or binding does not know it."""
        try:
            return newer()
        except AttributeError:
            return older()
        except self.nvml.NVMLError as error:
            if meaning(error.value)[1] is not Effect.ABSENT:
                raise
            return older()

    def field(self, number: int, scope: int = 0) -> float:
        """Return one of NVML's numbered fields.  Raises NVMLError with the code of that field."""
        (value,) = self.fields([(number, scope)]).values()
        if isinstance(value, int):
            raise self.nvml.NVMLError(value)
        return value

    def fields(self, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], float | int]:
        """Return numbered fields by (field, scope) in one call: a float is the value, an int is the error code of it.

        Raises NVMLError when the call as a whole fails.
        """
        asked = list(wanted)
        answers = self.nvml.nvmlDeviceGetFieldValues(self.handle, asked)
        return {key: self._value(answer) for key, answer in zip(asked, answers, strict=True)}

    def _value(self, answer: Any) -> float | int:
        code = int(answer.nvmlReturn)
        if code == self.nvml.NVML_ERROR_INVALID_ARGUMENT:
            # A driver that is older than the field calls it so.
            return int(self.nvml.NVML_ERROR_NOT_SUPPORTED)
        return code or float(getattr(answer.value, _MEMBERS[answer.valueType]))
