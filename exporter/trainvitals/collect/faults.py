"""Faults of devices, from the driver's events and from the kernel's log -> families.

The same XID comes twice: as an event of the driver, which has no sub-code, and as a line of the kernel's log.  A pair
from two sources within some seconds is one XID; two from one source are two, however alike.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from trainvitals.collect.base import Collector, NoData, Sink
from trainvitals.collect.moments import Moments
from trainvitals.devices.nvidia.xids import Xid, describe, link_fault
from trainvitals.telemetry import Fault, pci_address

#: A GPU that fell off the bus does so once, however often the driver says it again within this time.
_ONE_DROP = 3600.0
#: A milder message within this time does not take back what a worse one asked for.
_VERDICT_STAYS = 3600.0
#: Different faults of a kind; what comes after is only counted.
_MOST = 256
_MOST_UNPAIRED = 64
_FALLEN_OFF_BUS = 79
_HIGHEST_CODE = 99_999
_SEVERITIES = ("info", "warning", "critical")

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class FaultSeen:
    """An XID on a device: when last, how often, and what it means."""

    time: float
    device: str
    code: int
    count: int
    severity: str
    meaning: str
    pci: str = ""


@dataclass(slots=True)
class Tally:
    """How often something happened and when last, as :class:`Moments` keep it."""

    count: int = 0
    last: float = -math.inf

    def add(self, moment: float) -> None:
        """Count one more; events may come out of order."""
        self.count += 1
        self.last = max(self.last, moment)


class FaultLog:
    """Takes faults from several threads and keeps the counts.

    ``window`` is how many seconds lie at most between the two tellings of one fault: the kernel's clock is known to the
    interval of its reader.  ``patience`` is how long the faults of a device wait for its name (:meth:`know`) before
    they are shown without, so that their series do not change their labels just after the start.
    """

    def __init__(
        self,
        *,
        window: float = 10.0,
        patience: float = 30.0,
        monotonic: Callable[[], float] = time.monotonic,
        moments: Moments | None = None,
    ) -> None:
        self._window = window
        self._moments = moments or Moments()
        self._monotonic = monotonic
        self._nameless_until = monotonic() + patience
        self._lock = threading.Lock()
        self._names: dict[str, tuple[str, str]] = {}
        self._unpaired: dict[tuple[str, int], deque[tuple[str, float]]] = {}
        self._xids: dict[tuple[str, int], Tally] = {}
        self._verdicts: dict[tuple[str, int], tuple[float, Xid]] = {}
        self._links: dict[tuple[str, int, str, str, str, str], Tally] = {}
        self._drops: dict[str, Tally] = {}
        self._drop_told: dict[str, float] = {}
        self._switches: dict[tuple[str, int, str, str], Tally] = {}
        self._dropped = 0

    def know(self, devices: Mapping[str, tuple[str, str]]) -> None:
        """Tell which device of NVIDIA (index, uuid) is at a PCI address.  One that is lost later keeps its name."""
        with self._lock:
            for pci, name in devices.items():
                if address := pci_address(pci):
                    self._names[address] = name

    def identify(self, pci: str, uuid: str) -> None:
        """Tell the UUID at a PCI address, where no index is known."""
        with self._lock:
            self._names.setdefault(pci_address(pci), ("", uuid))

    def add(self, fault: Fault) -> bool:
        """Take an XID; False when it was told before by another source, or is none."""
        if not (0 < fault.code <= _HIGHEST_CODE and math.isfinite(fault.time)):
            return False
        pci = pci_address(fault.pci_bus_id)
        key = (pci, fault.code)
        with self._lock:
            fault = replace(fault, time=self._moments.keep(fault.time))
            if key not in self._xids and len(self._xids) >= _MOST:
                self._dropped += 1
                return False
            self._judge(key, fault)
            if fault.code == _FALLEN_OFF_BUS:
                self._drop(pci, fault.time)
            if self._told_before(key, fault):
                return False
            self._xids.setdefault(key, Tally()).add(fault.time)
            return True

    def fallen_off_bus(self, pci: str, moment: float) -> None:
        """Take the driver's words that a device fell off the bus."""
        with self._lock:
            self._drop(pci_address(pci), self._moments.keep(moment))

    def switch(self, pci: str, sxid: int, effect: str, link: str, moment: float) -> None:
        """Take an error of an NVSwitch."""
        with self._lock:
            self._count(self._switches, (pci_address(pci), sxid, effect, link), self._moments.keep(moment))

    def show(self, sink: Sink) -> None:
        """Add what is known.  Raises NoData when there is neither a device nor a fault."""
        with self._lock:
            self._show(sink)

    def near(self, moment: float, uuid: str, pci: str, seconds: float = 60.0) -> list[str]:
        """Return in words which faults there were within some seconds of a time of day, the gravest first.

        On the device with this UUID or PCI address; on any where neither is known.  Of each kind of fault the last one
        counts.
        """
        address = pci_address(pci)
        with self._lock:
            found = []
            for (place, code), tally in self._xids.items():
                index, known = self._names.get(place, ("", ""))
                is_it = not (uuid or address) or (bool(uuid) and known == uuid) or (bool(address) and place == address)
                if is_it and abs(self._moments.show(tally.last) - moment) <= seconds:
                    row = self._verdicts[place, code][1]
                    device = f"device {index}" if index else f"device at {place}"
                    found.append((-_SEVERITIES.index(row.severity), code, f"XID {code} on {device} ({row.meaning})"))
        return [text for _, _, text in sorted(found)]

    def seen(self) -> list[FaultSeen]:
        """Return the XIDs that are known; in any thread."""
        with self._lock:
            return [
                FaultSeen(
                    self._moments.show(tally.last),
                    self._names.get(pci, ("", ""))[0] or pci,
                    code,
                    tally.count,
                    self._verdicts[pci, code][1].severity,
                    self._verdicts[pci, code][1].meaning,
                    pci,
                )
                for (pci, code), tally in self._xids.items()
            ]

    def _told_before(self, key: tuple[str, int], fault: Fault) -> bool:
        waiting = self._unpaired.setdefault(key, deque(maxlen=_MOST_UNPAIRED))
        for place, (source, moment) in enumerate(waiting):
            if source != fault.source and abs(moment - fault.time) <= self._window:
                del waiting[place]
                return True
        waiting.append((fault.source, fault.time))
        return False

    def _judge(self, key: tuple[str, int], fault: Fault) -> None:
        """Keep the worst verdict of late, and what the text tells about a link."""
        verdict = describe(fault.code, fault.text)
        since, worst = self._verdicts.get(key, (-math.inf, verdict))
        milder = _SEVERITIES.index(verdict.severity) < _SEVERITIES.index(worst.severity)
        if not (milder and fault.time - since < _VERDICT_STAYS):
            self._verdicts[key] = (fault.time, verdict)
        link = link_fault(fault.code, fault.text)
        if link is not None:
            self._count(self._links, (*key, link.link, link.subcode, link.effect, link.cause), fault.time)

    def _drop(self, pci: str, moment: float) -> None:
        told = self._drop_told.get(pci, -math.inf)
        if moment - told > _ONE_DROP:
            self._count(self._drops, pci, moment)
        if pci in self._drops:
            self._drop_told[pci] = max(told, moment)

    def _count(self, tallies: dict[Key, Tally], key: Key, moment: float) -> None:
        if key not in tallies and len(tallies) >= _MOST:
            self._dropped += 1
        else:
            tallies.setdefault(key, Tally()).add(moment)

    def _show(self, sink: Sink) -> None:
        faults = self._xids or self._drops or self._switches
        if not faults and not self._names:
            raise NoData
        for (pci, code), tally in sorted(self._xids.items()):
            if (device := self._device(pci)) is not None:
                row = self._verdicts[pci, code][1]
                sink.add("trainvitals_device_xid_errors_total", tally.count, *device, code)
                sink.add("trainvitals_device_xid_last_timestamp_seconds", self._moments.show(tally.last), *device, code)
                meaning = (row.meaning, row.severity, row.category, row.action)
                sink.add("trainvitals_device_xid_info", 1.0, *device, code, *meaning)
        for (pci, *labels), tally in sorted(self._links.items()):
            if (device := self._device(pci)) is not None:
                sink.add("trainvitals_device_link_faults_total", tally.count, *device, *labels)
                last = self._moments.show(tally.last)
                sink.add("trainvitals_device_link_fault_last_timestamp_seconds", last, *device, *labels)
        # A device that did not fall has a 0, so that the first fall is an increase.
        for pci in sorted({*self._drops, *self._names}):
            if (device := self._device(pci)) is not None:
                tally = self._drops.get(pci, Tally())
                sink.add("trainvitals_device_fallen_off_bus_total", tally.count, *device)
                if tally.count:
                    last = self._moments.show(tally.last)
                    sink.add("trainvitals_device_fallen_off_bus_last_timestamp_seconds", last, *device)
        for (pci, *labels), tally in sorted(self._switches.items()):
            sink.add("trainvitals_nvswitch_sxid_errors_total", tally.count, pci, *labels)
            sink.add("trainvitals_nvswitch_sxid_last_timestamp_seconds", self._moments.show(tally.last), pci, *labels)
        sink.add("trainvitals_faults_dropped_total", self._dropped)

    def _device(self, pci: str) -> tuple[str, str, str] | None:
        """Return the labels of a device, None while its name may still come."""
        device, uuid = self._names.get(pci, ("", ""))
        if not device and self._monotonic() < self._nameless_until:
            return None
        return device, uuid, pci


class FaultsCollector(Collector):
    """Shows the faults of devices, whoever told them."""

    name = "faults"

    def __init__(self, faults: FaultLog) -> None:
        self._faults = faults

    def collect(self, sink: Sink) -> None:
        """Add what is known.  Raises NoData when there is neither a device nor a fault."""
        self._faults.show(sink)
