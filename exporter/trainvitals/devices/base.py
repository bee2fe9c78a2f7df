"""What a vendor's reader offers, and what a source of devices tells the exporter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainvitals.telemetry import DeviceSample, Fault


class NoLibraryError(Exception):
    """This machine has no library of this vendor: there is nothing to read, and that is no fault."""


class SourceDownError(Exception):
    """The vendor's driver does not answer now, so none of its devices can be read.

    ``reason`` is a short word for a label.  ``stale`` says that only a new process can help: the library that this
    one has loaded no longer fits the driver.
    """

    def __init__(self, reason: str, *, stale: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.stale = stale


class Vendor(Protocol):
    """Reads the devices of one vendor.  Any call may block, so only a process of its own makes them."""

    name: str

    def open(self) -> None:
        """Connect to the driver.  Raises NoLibraryError or SourceDownError."""

    def devices(self) -> Sequence[int]:
        """Return the indices of the devices that the driver counts now.  Raises SourceDownError."""

    def read(self, index: int) -> DeviceSample:
        """Read a device once: what is due now, and the last of the rest.

        One that does not answer is a sample with ``up`` False.  Raises SourceDownError when the driver is gone.
        """

    def faults(self) -> Sequence[Fault]:
        """Return the faults that the driver reported since the last call, at once.  Never raises."""

    def close(self) -> None:
        """Disconnect.  Never raises; may be called at any time."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is known of one vendor's devices at this moment.

    ``up`` is None where nothing can be read for want of the vendor's library; else ``reason`` says why it is False.
    ``age`` is the time in seconds since the devices were last read, None when they never were.  ``failed`` counts
    failed reads by reason, ``readings`` the good ones, ``restarts`` those of the reading process, ``faults_lost`` the
    faults that nobody took in time; all since the start of the exporter.  ``expected`` is how many devices should be
    here, None when that cannot be told, ``missing`` the PCI addresses of those that the driver does not list.
    ``unread`` says that nobody reads devices of this vendor yet: they are counted on the bus.
    """

    vendor: str
    up: bool | None
    reason: str = ""
    devices: Sequence[DeviceSample] = ()
    age: float | None = None
    readings: int = 0
    restarts: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    expected: int | None = None
    missing: Sequence[str] = ()
    faults_lost: int = 0
    unread: bool = False


class Source(Protocol):
    """Where the exporter gets devices from."""

    def start(self) -> None:
        """Begin to read."""

    def latest(self) -> Reading | None:
        """Return what is known, at once; None when there is nothing of this kind here."""

    def faults(self) -> Sequence[Fault]:
        """Return the faults that the driver reported since the last call."""

    def stop(self) -> None:
        """End, and leave no thread, process or descriptor behind."""
