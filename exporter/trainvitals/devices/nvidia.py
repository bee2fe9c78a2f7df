"""NVIDIA devices through NVML (nvidia-ml-py)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from trainvitals.devices.base import NoLibraryError, SourceDownError, Vendor
from trainvitals.devices.nvidia_errors import Effect, meaning
from trainvitals.devices.nvidia_fields import FIELDS
from trainvitals.telemetry import DeviceSample

_DRIVER_NOT_LOADED = 9
_LIBRARY_NOT_FOUND = 12
_PCI_DEVICES = "/sys/bus/pci/devices"
_PCI_VENDOR = "0x10de"


def create() -> Vendor:
    """Return a reader.  Raises NoLibraryError when nvidia-ml-py is missing or another package has taken its name."""
    try:
        import pynvml  # noqa: PLC0415  # Only the child may load it.
    except ImportError:
        raise NoLibraryError("nvidia-ml-py is not installed") from None
    if not hasattr(pynvml, "nvmlMemory_v2"):
        raise NoLibraryError("the installed module pynvml is not that of nvidia-ml-py 12.560 or newer")
    # The environment is what a parent can hand to this process: a container may see the host's bus elsewhere.
    return Nvidia(pynvml, pci=os.environ.get("TRAINVITALS_PCI_DEVICES", _PCI_DEVICES))


class _Identity(NamedTuple):
    uuid: str = ""
    name: str = ""
    pci_bus_id: str = ""


class Nvidia:
    """Reads all GPUs through ``nvml``, which is the module pynvml.  ``pci`` is the kernel's folder of PCI devices."""

    name = "nvidia"

    def __init__(self, nvml: Any, *, pci: str = _PCI_DEVICES) -> None:
        self._nvml = nvml
        self._pci = pci
        self._was_open = False
        self._open = False
        self._driver_version = ""
        self._handles: dict[int, Any] = {}
        self._identities: dict[int, _Identity] = {}

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
        """Whether a PCI device of NVIDIA is here; True when that cannot be told."""
        try:
            for device in os.listdir(self._pci):
                with contextlib.suppress(FileNotFoundError), open(f"{self._pci}/{device}/vendor") as vendor:
                    if vendor.read().strip() == _PCI_VENDOR:
                        return True
        except OSError:
            return True
        return False

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
            handle = self._handles.get(index)
            if handle is None:
                handle = self._handle(index)
            sample = self._read(handle, self._blank(index), failed)
            if not sample.up:
                # The handle may be the fault: none survives a reload of the driver.
                self._handles.pop(index, None)
            return sample
        except self._nvml.NVMLError as error:
            reason, effect = meaning(error.value)
            if effect in {Effect.DRIVER, Effect.PROCESS}:
                raise
            # After a reset the same GPU has a new handle.
            self._handles.pop(index, None)
            down = self._blank(index)
            down.up = False
            down.failed = {**failed, reason: failed.get(reason, 0) + 1}
            return down

    def _handle(self, index: int) -> Any:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        identity = self._identify(handle)
        if identity.uuid:
            # Else it is asked again next time.
            self._identities[index] = identity
            self._handles[index] = handle
        return handle

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
        reason, effect = meaning(error.value)
        if effect in {Effect.ABSENT, Effect.FIELD}:
            return reason, effect
        raise error

    def _read(self, handle: Any, sample: DeviceSample, failed: dict[str, int]) -> DeviceSample:
        answered = False
        for read in FIELDS:
            try:
                read(self._nvml, handle, sample)
                answered = True
            except self._nvml.NVMLError as error:
                reason, effect = self._unless_minor(error)
                if effect is Effect.ABSENT:
                    answered = True
                else:
                    failed[reason] = failed.get(reason, 0) + 1
            except Exception:  # A driver newer than its binding, or than this file, answers in its own way.
                failed["not_understood"] = failed.get("not_understood", 0) + 1
        sample.failed = failed
        sample.up = answered
        return sample


def _source_down(error: Any) -> SourceDownError:
    reason, effect = meaning(error.value)
    return SourceDownError(reason, stale=effect is Effect.PROCESS)
