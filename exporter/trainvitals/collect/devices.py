"""Accelerators -> families."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from trainvitals.collect.base import Collector, NoData, Sink
from trainvitals.collect.faults import FaultLog
from trainvitals.collect.links import KnownLinks
from trainvitals.config import DeviceSettings
from trainvitals.devices.base import Reading, Source
from trainvitals.devices.detect import Census, Counted, Detected
from trainvitals.devices.pci import PCI_DEVICES, Bus
from trainvitals.devices.simulated import SimulatedDevices
from trainvitals.devices.supervisor import Supervisor
from trainvitals.devices.vendors import COUNTED, VENDORS, matches
from trainvitals.metrics import FAMILIES, PREFIX
from trainvitals.telemetry import DeviceSample

log = logging.getLogger(__name__)


class DevicesCollector(Collector):
    """Shows the devices of all ``sources``; between start() and stop().  Never waits for a device.

    What their drivers report goes to ``faults``, with the names of the devices.  ``clock`` gives wall time.
    """

    name = "devices"

    def __init__(
        self, sources: Sequence[Source], clock: Callable[[], float] = time.time, faults: FaultLog | None = None
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._links = KnownLinks()
        self._faults = faults

    @classmethod
    def from_settings(
        cls, settings: DeviceSettings, faults: FaultLog | None = None, clock: Callable[[], float] = time.time
    ) -> DevicesCollector:
        """Return a collector with a process per vendor that is here, and the simulated devices when asked for."""
        # A container may see its host's bus elsewhere; the reading process looks there too.
        root = os.environ.get("TRAINVITALS_PCI_DEVICES", PCI_DEVICES)
        census = Census(matches(), root)
        sources: list[Source] = []
        for vendor, row in VENDORS.items():
            make = partial(_supervisor, vendor, Bus(row.pci, root=root), settings, census, clock)
            sources.append(make() if row.always else Detected(vendor, census, make))
        sources += [Counted(vendor, census, Bus(match, root=root)) for vendor, match in COUNTED.items()]
        if settings.simulate:
            sources.append(SimulatedDevices(settings.simulate))
        return cls(sources, clock, faults)

    def start(self) -> None:
        """Start every source."""
        for source in self._sources:
            source.start()

    def stop(self) -> None:
        """Stop every source."""
        for source in self._sources:
            source.stop()

    def collect(self, sink: Sink) -> None:
        """Add what the sources know.  Raises NoData when there is none."""
        self._pass_on_faults()
        readings = [reading for source in self._sources if (reading := source.latest()) is not None]
        if not readings:
            raise NoData
        failed: Counter[str] = Counter()
        for reading in readings:
            failed.update(reading.failed)
            self._add_source(sink, reading)
            for device in reading.devices:
                _add_device(sink, self._links.settle(device))
        for reason, count in sorted(failed.items()):
            sink.add("trainvitals_device_reads_failed_total", count, reason)

    def latest_devices(self) -> list[DeviceSample]:
        """Return the newest samples of all devices; safe in any thread."""
        return [device for source in self._sources if (reading := source.latest()) for device in reading.devices]

    def _pass_on_faults(self) -> None:
        # Taken even when nobody wants them: they must not pile up.
        faults = [fault for source in self._sources for fault in source.faults()]
        if self._faults is None:
            return
        self._faults.know(
            {
                device.pci_bus_id: (str(device.index), device.uuid)
                for device in self.latest_devices()
                if device.pci_bus_id and device.uuid
            }
        )
        for fault in faults:
            self._faults.add(fault)

    def _add_source(self, sink: Sink, reading: Reading) -> None:
        vendor = reading.vendor
        if reading.up is not None:
            sink.add("trainvitals_device_source_up", float(reading.up), vendor)
            sink.add("trainvitals_device_source_restarts_total", reading.restarts, vendor)
        if reading.up is False:
            sink.add("trainvitals_device_source_down_info", 1.0, vendor, reading.reason or "unknown")
        if reading.age is not None:
            sink.add("trainvitals_device_source_read_timestamp_seconds", self._clock() - reading.age, vendor)
        if reading.expected is not None:
            sink.add("trainvitals_devices_expected", reading.expected, vendor)
        if reading.expected is not None and not reading.unread:
            sink.add("trainvitals_devices_readable", sum(device.up for device in reading.devices), vendor)
        for address in reading.missing:
            sink.add("trainvitals_device_missing_info", 1.0, vendor, address)
        if reading.faults_lost:
            sink.add("trainvitals_device_faults_lost_total", reading.faults_lost, vendor)


def _supervisor(
    vendor: str, bus: Bus, settings: DeviceSettings, census: Census, clock: Callable[[], float]
) -> Supervisor:
    # The number in the settings is that of the one kind of device that the node has.
    others = [name for name, row in VENDORS.items() if name != vendor and not row.always]
    is_only = census.has(vendor) or not any(map(census.has, others))
    return Supervisor(
        vendor,
        interval=settings.interval,
        hung_after=settings.hung_after,
        retry=(settings.retry_first, settings.retry_longest),
        expected=settings.expected if is_only else None,
        pause_file=settings.pause_file or None,
        bus=bus,
        wall=clock,
    )


def _add_device(sink: Sink, device: DeviceSample) -> None:
    # The index is text: it names a device of this node, and other vendors count otherwise.
    key = (str(device.index), device.uuid)
    identity = (device.vendor, device.name, device.pci_bus_id, device.driver_version)
    sink.add("trainvitals_device_info", 1.0, *key, *identity)
    sink.add("trainvitals_device_up", float(device.up), *key)
    if not device.up:
        sink.add("trainvitals_device_down_info", 1.0, *key, device.reason or "unknown")
        sink.add("trainvitals_device_down_since_timestamp_seconds", device.down_since, *key)
    for (family, *labels), value in device.values.items():
        row = FAMILIES.get(f"{PREFIX}device_{family}")
        if row is not None and len(row.labels) == len(key) + len(labels):
            sink.add(row.name, value, *key, *labels)
        else:
            log.error("devices of %s: no family %s with %d labels", device.vendor, family, len(labels))
