"""Finds the GPUs that NVML knows, reads each by the table of signals, and survives what may happen to them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from trainvitals.devices import pci
from trainvitals.devices.base import NoLibraryError, SourceDownError
from trainvitals.devices.nvidia import rounds
from trainvitals.devices.nvidia.errors import Effect, down_reason, meaning
from trainvitals.devices.nvidia.events import Events
from trainvitals.devices.nvidia.gpu import Gpu, Identity, text
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.nvidia.signals import SIGNALS
from trainvitals.devices.vendors import VENDORS
from trainvitals.telemetry import DeviceSample, Fault

_DRIVER_NOT_LOADED = 9
_LIBRARY_NOT_FOUND = 12
#: Seconds until a GPU that did not tell its name or its address is asked again.
_AGAIN = 60.0


class Nvidia:
    """Reads all GPUs through ``nvml``, which is the module pynvml.

    ``bus`` is the kernel's folder of PCI devices, ``signals`` what is read of each GPU, ``clock`` gives seconds.
    """

    name = "nvidia"

    def __init__(
        self,
        nvml: Any,
        *,
        bus: str = pci.PCI_DEVICES,
        signals: Sequence[Signal] = SIGNALS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nvml = nvml
        self._pci = bus
        self._signals = signals
        self._clock = clock
        self._events = Events(nvml)
        self._was_open = False
        self._open = False
        self._driver_version = ""
        self._gpus: dict[int, Gpu] = {}
        self._identities: dict[int, Identity] = {}

    def open(self) -> None:
        """Initialise NVML, which does not touch a GPU yet.  Raises NoLibraryError or SourceDownError."""
        try:
            # Without the flag a driver that has lost its last GPU would be a driver that does not answer.
            self._nvml.nvmlInitWithFlags(self._nvml.NVML_INIT_FLAG_NO_GPUS)
            self._open = self._was_open = True
            self._driver_version = self._text(self._nvml.nvmlSystemGetDriverVersion)
        except self._nvml.NVMLError as error:
            if error.value == _LIBRARY_NOT_FOUND:
                raise NoLibraryError("libnvidia-ml.so.1 was not found") from None
            if error.value == _DRIVER_NOT_LOADED and not self._was_open and not self._on_the_bus():
                # One image for all nodes: the library is there, and on this node there is nothing to drive.
                raise NoLibraryError("no NVIDIA device on the PCI bus") from None
            raise _source_down(error) from None

    def _on_the_bus(self) -> bool:
        """Whether a device of NVIDIA is here that a driver could read; True when that cannot be told."""
        try:
            return bool(pci.look(VENDORS[self.name].pci, self._pci).here)
        except OSError:
            return True

    def close(self) -> None:
        """Shut NVML down; handles do not survive it."""
        self._events.close()
        self._forget()
        if self._open:
            self._open = False
            # It fails when the driver is gone, which is why we close.
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _forget(self) -> None:
        for index in list(self._gpus):
            self._drop(index)
        self._identities.clear()

    def _drop(self, index: int) -> None:
        gpu = self._gpus.pop(index, None)
        if gpu is not None:
            gpu.close()

    def devices(self) -> Sequence[int]:
        """Return the index of every GPU that NVML counts, those without an answer included.  Raises SourceDownError."""
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise _source_down(error) from None
        if count != len(self._identities):
            # Indices have moved.
            self._forget()
            self._identities = {index: Identity() for index in range(count)}
        return range(count)

    def faults(self) -> Sequence[Fault]:
        """Return the XIDs since the last call."""
        return self._events.take()

    def read(self, index: int) -> DeviceSample:
        """Read one GPU.  Raises SourceDownError only when the driver as a whole is gone."""
        sample = self._blank(index)
        try:
            gpu = self._gpus.get(index) or self._opened(index)
            self._complete(gpu)
            sample = self._blank(index)
            answered = rounds.read(gpu, sample, self._signals, self._clock())
            if index not in self._gpus:
                gpu.close()
            if answered:
                return sample
            down = sample.down("unknown")
        except self._nvml.NVMLError as error:
            reason, effect = meaning(error.value)
            if effect in {Effect.DRIVER, Effect.PROCESS}:
                raise _source_down(error) from None
            down = sample.down(down_reason(error.value))
            sample.failed[reason] = sample.failed.get(reason, 0) + 1
        # After a reset the same GPU has a new handle, and none survives a reload of the driver.
        self._drop(index)
        down.failed = sample.failed
        return down

    def _opened(self, index: int) -> Gpu:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        identity = self._identify(handle)
        gpu = Gpu(self._nvml, handle, index, identity)
        if identity.uuid:
            # Else it is asked again next time.
            self._identities[index] = identity
            self._gpus[index] = gpu
            self._events.watch(index, handle, identity.pci_bus_id)
        return gpu

    def _complete(self, gpu: Gpu) -> None:
        """Ask for what a GPU did not tell when it was opened.  Raises NVMLError."""
        last: float = gpu.kept.setdefault("identity asked", self._clock())
        if all(gpu.identity) or self._clock() - last < _AGAIN:
            return
        gpu.kept["identity asked"] = self._clock()
        told = zip(gpu.identity, self._identify(gpu.handle), strict=True)
        gpu.identity = Identity(*(before or now for before, now in told))
        self._identities[gpu.index] = gpu.identity
        self._events.watch(gpu.index, gpu.handle, gpu.identity.pci_bus_id)

    def _blank(self, index: int) -> DeviceSample:
        uuid, name, pci_bus_id = self._identities.get(index, Identity())
        return DeviceSample(
            index=index,
            vendor=self.name,
            driver_version=self._driver_version,
            uuid=uuid,
            name=name,
            pci_bus_id=pci_bus_id,
        )

    def _identify(self, handle: Any) -> Identity:
        uuid = self._text(self._nvml.nvmlDeviceGetUUID, handle)
        name = self._text(self._nvml.nvmlDeviceGetName, handle)
        return Identity(uuid, name, self._text(self._pci_bus_id, handle))

    def _pci_bus_id(self, handle: Any) -> str:
        # As the kernel writes it; NVML's own text has eight digits of domain.
        pci = self._nvml.nvmlDeviceGetPciInfo(handle)
        return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"

    def _text(self, call: Callable[..., str], *args: Any) -> str:
        try:
            return text(call, *args)
        except self._nvml.NVMLError as error:
            if meaning(error.value)[1] not in {Effect.ABSENT, Effect.FIELD}:
                raise
            return ""


def _source_down(error: Any) -> SourceDownError:
    reason, effect = meaning(error.value)
    return SourceDownError(reason, stale=effect is Effect.PROCESS)
