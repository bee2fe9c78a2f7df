"""Processes with memory on cards of AMD, as the compute driver (KFD) shows them in sysfs.

``topology/nodes/<n>`` has the driver's own number of a card and where it is, ``proc/<pid>/vram_<number>`` the bytes
that a process has there; it has such a file for each card that it could use, with 0 for those that it does not.
The process ids are those of the node, also in a container.
"""

from __future__ import annotations

import os
import re

from trainvitals.devices.amd.cards import Attributes
from trainvitals.devices.plausible import is_plausible
from trainvitals.telemetry import DeviceProcess

_PROPERTY = re.compile(r"^(location_id|domain) (\d{1,10})$", re.MULTILINE)
_MOST_PROCESSES = 1024
_MOST_PID = 2**31


def processes(folder: str) -> dict[str, tuple[DeviceProcess, ...]] | None:
    """Return the processes by the address of the card; None where the driver does not show them.

    ``folder`` is one such as /sys/class/kfd/kfd.  The parts of a split card are one device.
    """
    read = Attributes(folder)
    cards = _cards(read)
    if not cards or not os.path.isdir(f"{folder}/proc"):
        return None
    found: dict[str, dict[int, float]] = {address: {} for address in cards.values()}
    for entry in read.names("proc")[:_MOST_PROCESSES]:
        pid = _number(entry.rpartition("/")[2])
        if not 0 < pid < _MOST_PID:
            continue
        for name in read.names(entry):
            address = cards.get(_number(name.rpartition("/vram_")[2]))
            memory = float(_number(read(name) or "")) if address else 0.0
            if address and memory and is_plausible("memory_used_bytes", memory):
                found[address][pid] = found[address].get(pid, 0.0) + memory
    return {
        address: tuple(DeviceProcess(pid, memory) for pid, memory in sorted(used.items()))
        for address, used in found.items()
    }


def _cards(read: Attributes) -> dict[int, str]:
    """Return the address of each card by the driver's number."""
    found = {}
    for node in read.names("topology/nodes"):
        number = _number(read(f"{node}/gpu_id") or "")
        where = {name: int(value) for name, value in _PROPERTY.findall(read(f"{node}/properties") or "")}
        if number and "location_id" in where:
            # Eight bits of the bus, five of the device, three of the function; above, the part of a split card.
            place = where["location_id"]
            bus, device, function = place >> 8 & 0xFF, place >> 3 & 0x1F, place & 7
            found[number] = f"{where.get('domain', 0):04x}:{bus:02x}:{device:02x}.{function}"
    return found


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
