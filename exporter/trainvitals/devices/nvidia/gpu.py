"""One GPU that has been opened, and the ways in which NVML answers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from trainvitals.devices.nvidia.errors import Effect, meaning
from trainvitals.devices.nvidia.fields import Fields
from trainvitals.devices.tiers import Schedule, Tier
from trainvitals.telemetry import DeviceProcess

Values = dict[tuple[str, ...], float]


def text(call: Callable[..., str], *arguments: Any) -> str:
    """Return the text that a function of pynvml returns; bytes that are none, from a damaged InfoROM, are replaced."""
    try:
        return call(*arguments)
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


class Identity(NamedTuple):
    """What a GPU is, for as long as its handle lives."""

    uuid: str = ""
    name: str = ""
    pci_bus_id: str = ""


class Gpu:
    """A handle, and what the readers keep between two reads of it.

    ``nvml`` is the module pynvml.  ``processes`` are those of the last reading; ``kept`` belongs to the readers, each
    under a key of its own; ``absent`` are the signals that this device does not have.
    """

    def __init__(self, nvml: Any, handle: Any, index: int, identity: Identity) -> None:
        self.nvml = nvml
        self.handle = handle
        self.index = index
        self.identity = identity
        self.schedule = Schedule()
        self.parts: dict[Tier, Values] = {}
        self.processes: tuple[DeviceProcess, ...] = ()
        self.absent: set[Hashable] = set()
        self.kept: dict[str, Any] = {}
        #: Called when the handle is given up, for what must be given back to the library.
        self.closers: list[Callable[[], None]] = []
        self._fields = Fields(nvml, handle)

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
        except AttributeError as error:
            if error.obj is not self.nvml:
                raise
            return older()
        except self.nvml.NVMLError as error:
            if meaning(error.value)[1] is not Effect.ABSENT:
                raise
            return older()

    def prepare(self, numbers: Iterable[int]) -> None:
        """Ask for numbered fields in one call; :meth:`field` answers from it until the next call of this.

        Raises NVMLError when the device or the driver is gone.
        """
        self._fields.prepare((number, 0) for number in numbers)

    def field(self, number: int, scope: int = 0) -> float:
        """Return one of NVML's numbered fields.  Raises NVMLError with the code of that field."""
        value = self._fields.get((number, scope))
        if isinstance(value, int):
            raise self.nvml.NVMLError(value)
        return value

    def has(self, number: int) -> bool:
        """Whether this device has a numbered field, though perhaps no value now."""
        value = self._fields.get((number, 0))
        return isinstance(value, float) or meaning(value)[1] is not Effect.ABSENT

    def fields(self, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], float | int]:
        """Return numbered fields by (field, scope) in one call: a float is the value, an int is the error code of it.

        Raises NVMLError when the device or the driver is gone.
        """
        return self._fields.ask(wanted)

    def forget_absent(self) -> None:
        """Ask again for what this device did not have."""
        self.absent.clear()
        self._fields.forget_absent()
