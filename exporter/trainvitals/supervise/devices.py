"""Which NVIDIA devices of this node can be used: as the driver lists them, less those that were lost.

The driver's folder in ``/proc`` needs no library and no call that could hang.  Devices are named by their UUID, which
``CUDA_VISIBLE_DEVICES`` takes too: an index changes its meaning when a device falls off the bus.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.telemetry import pci_address

FOLDER = "/proc/driver/nvidia/gpus"
VISIBLE = "CUDA_VISIBLE_DEVICES"
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f-]{36})\s*$", re.MULTILINE)
_OPTION = re.compile(r"--nproc[-_]per[-_]node")


@dataclass(frozen=True)
class Gpu:
    """One device: its PCI address in the kernel's spelling, and its UUID; empty where the driver cannot read it."""

    address: str
    uuid: str


class Roster:
    """The devices that the driver lists below ``folder``."""

    def __init__(self, folder: str = FOLDER) -> None:
        self._folder = folder

    def present(self) -> list[Gpu]:
        """Return the devices in the order of their addresses; none where there is no driver."""
        found = []
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self._folder)):
                uuid = ""
                with contextlib.suppress(OSError), open(f"{self._folder}/{name}/information", encoding="utf-8") as file:
                    told = _UUID.search(file.read(4096))
                    uuid = told[1] if told else ""
                found.append(Gpu(pci_address(name) or name, uuid))
        return found

    def uuid_of(self, address: str) -> str:
        """Return the UUID of the device at a PCI address; empty where it is not known."""
        return next((gpu.uuid for gpu in self.present() if _same(gpu.address, address)), "")

    def usable(self, environ: Mapping[str, str], excluded: Collection[str]) -> list[str]:
        """Return the UUIDs of the devices that the environment allows, less those that are left out.

        Indices count in the order of addresses, as with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; of equal devices CUDA's own
        order is the same.
        """
        uuids = [gpu.uuid for gpu in self.present() if gpu.uuid]
        given = environ.get(VISIBLE)
        if given is not None:
            uuids = [uuid for entry in given.split(",") if (uuid := _named(entry.strip(), uuids))]
        return [uuid for uuid in uuids if uuid not in excluded]


def _same(one: str, other: str) -> bool:
    """Compare addresses without their function, which messages leave out."""
    return one.partition(".")[0].lower() == other.partition(".")[0].lower()


def _named(entry: str, uuids: Sequence[str]) -> str:
    if entry.isdigit():
        return uuids[int(entry)] if int(entry) < len(uuids) else ""
    # A UUID may be given by its begin.
    return next((uuid for uuid in uuids if entry.startswith("GPU-") and uuid.startswith(entry)), "")


def processes_per_node(command: Sequence[str]) -> str | None:
    """Return what a command gives as ``--nproc-per-node``, None without it."""
    place = _place(command)
    if place is None:
        return None
    _, equals, value = command[place].partition("=")
    return value if equals else command[place + 1]


def with_processes(command: Sequence[str], count: int) -> list[str]:
    """Return a command with so many processes per node in the place of what it says; as it is where it says nothing."""
    changed = list(command)
    place = _place(command)
    if place is not None:
        name, equals, _ = command[place].partition("=")
        changed[place if equals else place + 1] = f"{name}={count}" if equals else str(count)
    return changed


def _place(command: Sequence[str]) -> int | None:
    for place, word in enumerate(command):
        name, equals, _ = word.partition("=")
        if _OPTION.fullmatch(name) and (equals or place + 1 < len(command)):
            return place
    return None
