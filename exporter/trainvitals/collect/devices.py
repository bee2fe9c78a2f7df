"""Accelerators -> families."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from trainvitals.collect.base import Collector, NoData, Sink
from trainvitals.config import DeviceSettings
from trainvitals.devices.base import Reading, Source
from trainvitals.devices.simulated import SimulatedDevices
from trainvitals.devices.supervisor import Supervisor
from trainvitals.devices.vendors import VENDORS
from trainvitals.metrics import FAMILIES, PREFIX
from trainvitals.telemetry import DeviceSample

log = logging.getLogger(__name__)


class DevicesCollector(Collector):
    """Shows the devices of all ``sources``; between start() and stop().  Never waits for a device.

    ``clock`` gives wall time.
    """

    name = "devices"

    def __init__(self, sources: Sequence[Source], clock: Callable[[], float] = time.time) -> None:
        self._sources = sources
        self._clock = clock

    @classmethod
    def from_settings(cls, settings: DeviceSettings) -> DevicesCollector:
        """Return a collector with a process per vendor, and the simulated devices when they are asked for."""
        sources: list[Source] = [
            Supervisor(vendor, interval=settings.interval, hung_after=settings.hung_after) for vendor in VENDORS
        ]
        if settings.simulate:
            sources.append(SimulatedDevices(settings.simulate))
        return cls(sources)

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
        readings = [reading for source in self._sources if (reading := source.latest()) is not None]
        if not readings:
            raise NoData
        failed: Counter[str] = Counter()
        for reading in readings:
            failed.update(reading.failed)
            self._add_source(sink, reading)
            for device in reading.devices:
                _add_device(sink, device)
        for reason, count in sorted(failed.items()):
            sink.add("trainvitals_device_reads_failed_total", count, reason)

    def latest_devices(self) -> list[DeviceSample]:
        """Return the newest samples of all devices; safe in any thread."""
        return [device for source in self._sources if (reading := source.latest()) for device in reading.devices]

    def _add_source(self, sink: Sink, reading: Reading) -> None:
        sink.add("trainvitals_device_source_up", float(reading.up), reading.vendor)
        sink.add("trainvitals_device_source_restarts_total", reading.restarts, reading.vendor)
        if reading.age is not None:
            read_at = self._clock() - reading.age
            sink.add("trainvitals_device_source_read_timestamp_seconds", read_at, reading.vendor)


def _add_device(sink: Sink, device: DeviceSample) -> None:
    # The index is text: it names a device of this node, and other vendors count otherwise.
    key = (str(device.index), device.uuid)
    identity = (device.vendor, device.name, device.pci_bus_id, device.driver_version)
    sink.add("trainvitals_device_info", 1.0, *key, *identity)
    sink.add("trainvitals_device_up", float(device.up), *key)
    if not device.up:
        sink.add("trainvitals_device_down_info", 1.0, *key, device.reason or "unknown")
    for (family, *labels), value in device.values.items():
        row = FAMILIES.get(f"{PREFIX}device_{family}")
        if row is not None and len(row.labels) == len(key) + len(labels):
            sink.add(row.name, value, *key, *labels)
        else:
            log.error("devices of %s: no family %s with %d labels", device.vendor, family, len(labels))
