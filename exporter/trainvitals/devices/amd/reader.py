"""Finds the cards of AMD, reads each from sysfs, and adds what only ``amd-smi`` tells."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from trainvitals.devices import pci
from trainvitals.devices.amd import cards, kfd
from trainvitals.devices.amd.asked import Asked
from trainvitals.devices.amd.cards import Attributes, Card
from trainvitals.devices.amd.signals import SIGNALS
from trainvitals.devices.base import NoLibraryError, SourceDownError
from trainvitals.devices.plausible import IMPLAUSIBLE, Values
from trainvitals.devices.tiers import SECONDS, Tier
from trainvitals.devices.tools import Run
from trainvitals.devices.vendors import matches
from trainvitals.telemetry import DeviceProcess, DeviceSample, Fault

#: Families that only a living card tells: memory is counted by the driver.
_LIVE = ("utilization_ratio", "memory_activity_ratio", "temperature_celsius", "power_watts", "clock_hertz")


class Amd:
    """Reads all cards of the driver amdgpu.

    ``run`` runs ``amd-smi``, ``root`` is where sysfs is, ``bus`` the folder of PCI devices (else that of ``root``),
    ``clock`` gives seconds.
    """

    name = "amd"

    def __init__(
        self, run: Run, *, root: str = "/sys", bus: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = root
        self._bus = bus or f"{root}/bus/pci/devices"
        self._clock = clock
        self._asked = Asked(run, clock)
        self._cards: dict[str, Card] = {}
        self._driver_version = ""
        self._processes: dict[str, tuple[DeviceProcess, ...]] | None = None
        self._processes_due = float("-inf")

    def open(self) -> None:
        """Look for the driver.  Raises NoLibraryError without a card, SourceDownError when nobody drives the cards."""
        self._driver_version = Attributes(f"{self._root}/module/amdgpu")("version") or ""
        if cards.find(f"{self._root}/class/drm"):
            return
        try:
            here = pci.look(matches()[self.name], self._bus).here
        except OSError:
            here = frozenset()
        if not here:
            raise NoLibraryError("no AMD device on the PCI bus")
        raise SourceDownError("driver_not_loaded")

    def devices(self) -> Sequence[int]:
        """Return the number of each card, in the order of their addresses."""
        found = cards.find(f"{self._root}/class/drm")
        # A card that came again, or has another number now, begins anew.
        self._cards = {
            address: known if (known := self._cards.get(address)) and known.unique == card.unique else card
            for address, card in found.items()
        }
        self._asked.ask(frozenset(found))
        if self._clock() >= self._processes_due:
            self._processes = kfd.processes(f"{self._root}/class/kfd/kfd")
            self._processes_due = self._clock() + SECONDS[Tier.MEDIUM]
        return range(len(self._cards))

    def read(self, index: int) -> DeviceSample:
        """Read one card."""
        card = list(self._cards.values())[index]
        told = self._asked.told(card.address)
        sample = DeviceSample(
            index=index,
            uuid=card.uuid,
            vendor=self.name,
            name=told.name or card.name,
            pci_bus_id=card.address,
            driver_version=self._driver_version or told.driver_version,
            failed=self._asked.take_failed(),
        )
        if not os.path.isdir(card.folder):
            return sample.down("lost")
        reason = self._fill(card, sample)
        if reason:
            down = sample.down(reason)
            down.failed = sample.failed
            return down
        if self._processes is not None and card.address in self._processes:
            sample.processes = self._processes[card.address]
            sample.set("processes", float(len(sample.processes)))
        families = {family for family, *_ in sample.values}
        for key, value in told.values.items():
            # What is mixed of two sources of different age is of neither.
            if key[0] not in families:
                sample.values[key] = value
        return sample

    def _fill(self, card: Card, sample: DeviceSample) -> str:
        """Read what is due into ``sample``; why the card is down, empty when it is not."""
        values = Values(sample)
        read = Attributes(card.folder, values.fail)
        if read("power/runtime_status") == "suspended":
            # To ask it would wake it.
            card.parts.pop(Tier.FAST, None)
            sample.values = {key: value for part in card.parts.values() for key, value in part.items()}
            return ""
        for tier in card.schedule.due(self._clock()):
            sample.values = {}
            SIGNALS[tier](read, values)
            card.parts[tier] = sample.values
        fast = card.parts.get(Tier.FAST, {})
        sample.values = {key: value for part in card.parts.values() for key, value in part.items()}
        if "gpu_is_lost" in read.reasons:
            return "lost"
        if values.is_dead:
            return IMPLAUSIBLE
        return "unknown" if read.reasons and not any(key[0] in _LIVE for key in fast) else ""

    def faults(self) -> Sequence[Fault]:
        """Return none: the driver tells its faults to the kernel's log alone."""
        return ()

    def close(self) -> None:
        """Forget the cards."""
        self._cards = {}
