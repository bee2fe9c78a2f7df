"""Which vendors are here: known by the numbers of their devices on the PCI bus, never by the name of a program.

Two different programs are called ``xpu-smi``, and ``rocm-smi`` is of two vendors; the bus knows who made a device, and
needs no driver for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from trainvitals.devices.base import Reading, Source
from trainvitals.devices.pci import PCI_DEVICES, Bus, Found, Match, census
from trainvitals.telemetry import Fault

#: Seconds between two looks at the bus: a device that comes later is found then.
_LOOK = 60.0
_NOTHING = Found(frozenset())


class Census:
    """What is on the bus ``root``, by vendor; looked at again after a while.  Safe in any thread."""

    def __init__(
        self,
        matches: Mapping[str, Match],
        root: str = PCI_DEVICES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._matches = matches
        self._root = root
        self._clock = clock
        self._found: Mapping[str, Found] = {}
        self._due = float("-inf")
        self._lock = threading.Lock()

    def has(self, vendor: str) -> bool:
        """Whether a device of the vendor is on the bus, be it one that a virtual machine has."""
        with self._lock:
            if self._clock() >= self._due:
                self._due = self._clock() + _LOOK
                try:
                    self._found = census(self._matches, self._root)
                except OSError:
                    # No bus, no cards on it.
                    self._found = {}
            found = self._found.get(vendor, _NOTHING)
        return bool(found.here or found.taken)


class Detected:
    """The source of a vendor that is made and started, once and for all, when a device of it is on the bus."""

    def __init__(self, vendor: str, census: Census, make: Callable[[], Source]) -> None:
        self.vendor = vendor
        self._census = census
        self._make = make
        self._source: Source | None = None
        self._runs = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to look."""
        self._runs = True
        self._begun()

    def _begun(self) -> Source | None:
        with self._lock:
            if self._source is None and self._runs and self._census.has(self.vendor):
                self._source = self._make()
                self._source.start()
            return self._source

    def latest(self) -> Reading | None:
        """Return what is known, at once."""
        source = self._begun()
        return None if source is None else source.latest()

    def faults(self) -> Sequence[Fault]:
        """Return the faults since the last call."""
        return () if self._source is None else self._source.faults()

    def stop(self) -> None:
        """End."""
        with self._lock:
            self._runs = False
            source, self._source = self._source, None
        if source is not None:
            source.stop()


class Counted:
    """The devices of a vendor that nobody reads yet: how many should be here is all that is told."""

    def __init__(self, vendor: str, census: Census, bus: Bus) -> None:
        self.vendor = vendor
        self._census = census
        self._bus = bus

    def start(self) -> None:
        """Do nothing."""

    def latest(self) -> Reading | None:
        """Return the number; None where there is no such vendor, or where it cannot be told."""
        found = self._bus.look() if self._census.has(self.vendor) else None
        if found is None or not found.here:
            return None
        return Reading(vendor=self.vendor, up=None, expected=len(found.here), unread=True)

    def faults(self) -> Sequence[Fault]:
        """Return none."""
        return ()

    def stop(self) -> None:
        """Do nothing."""
