"""Which devices should be here, as the PCI bus tells it: no driver is asked.

Only attribute files of sysfs are read, which the kernel answers from its own memory.  ``config`` is not: reading it
wakes a device, and one that fell off the bus does not answer.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainvitals.telemetry import pci_address

PCI_DEVICES = "/sys/bus/pci/devices"
#: Drivers that keep a device for a virtual machine; `vfio` in the name of others says the same.
_GIVEN_AWAY = frozenset({"pci-stub", "xen-pciback", "pciback"})
#: Class codes of the PCI Code and ID Assignment Specification, base and sub class: what computes and what also shows.
VGA, DISPLAY_3D = 0x0300, 0x0302
#: Other display controllers, processing accelerators, co-processors, other communication controllers.
DISPLAY, ACCELERATOR, COPROCESSOR, COMMUNICATION = 0x0380, 0x1200, 0x0B40, 0x0780
_MOST = 4096


@dataclass(frozen=True)
class Match:
    """How a vendor's devices are known on the bus.

    ``classes`` are theirs; other functions of a vendor share its number.  Where ``devices`` are given, theirs are the
    numbers that count, and the class does not.  What sits on the bus 0 is a part of the processor and no card:
    ``only_cards`` leaves it out.

    ``listing`` is a folder with an entry for each device that the driver shows to this container, ``visible`` the
    variable with which a container says which those are; both may be empty.
    """

    vendor: int
    classes: tuple[int, ...] = (VGA, DISPLAY_3D)
    devices: tuple[int, ...] = ()
    only_cards: bool = False
    listing: str = ""
    visible: str = ""


@dataclass(frozen=True)
class Found:
    """Addresses on the bus.  ``taken`` are the devices that a virtual machine has: they cannot be read here."""

    here: frozenset[str]
    taken: frozenset[str] = frozenset()


def look(match: Match, root: str = PCI_DEVICES) -> Found:
    """Return the devices of a vendor.  Raises OSError when the bus cannot be listed.

    A card with a VGA connector is one of them: consumer cards that train are such.  Virtual functions are not: what
    serves virtual machines is not read on their host.
    """
    return census({"": match}, root)[""]


def census(matches: Mapping[str, Match], root: str = PCI_DEVICES) -> dict[str, Found]:
    """Return the devices of all vendors by their names, in one pass.  Raises OSError when the bus cannot be listed."""
    here: dict[str, set[str]] = {name: set() for name in matches}
    taken: dict[str, set[str]] = {name: set() for name in matches}
    for entry in os.listdir(root)[:_MOST]:
        address = pci_address(entry)
        folder = os.path.join(root, entry)
        vendor = _number(f"{folder}/vendor") if address else 0
        for name, match in matches.items():
            if vendor == match.vendor and _is(match, folder, address) and not os.path.lexists(f"{folder}/physfn"):
                (taken if _given_away(folder) else here)[name].add(address)
    return {name: Found(frozenset(here[name]), frozenset(taken[name])) for name in matches}


def _is(match: Match, folder: str, address: str) -> bool:
    """Whether a device of the vendor is what is looked for."""
    if match.only_cards and address.split(":")[1] == "00":
        return False
    if match.devices:
        return _number(f"{folder}/device") in match.devices
    # The file of the class has the programming interface as well.
    return _number(f"{folder}/class") >> 8 in match.classes


def _number(path: str) -> int:
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        return int(file.read(32), 16)
    return 0


def _given_away(folder: str) -> bool:
    try:
        driver = os.path.basename(os.readlink(f"{folder}/driver"))
    except OSError:
        return False
    return driver in _GIVEN_AWAY or "vfio" in driver


class Bus:
    """Says which devices of a vendor this exporter should be able to read.

    ``environ`` are the variables of this container, ``is_mount`` says whether a folder is a mount of its own.
    """

    def __init__(
        self,
        match: Match,
        *,
        root: str = PCI_DEVICES,
        environ: Mapping[str, str] = os.environ,
        proc: str = "/proc",
    ) -> None:
        self._match = match
        self._root = root
        self._visible = environ.get(match.visible, "").strip() if match.visible else ""
        self._listing = match.listing and f"{proc}/{match.listing}"

    def look(self) -> Found | None:
        """Return what should be readable; None when that cannot be told."""
        try:
            found = look(self._match, self._root)
        except OSError:
            return None
        own = bool(self._listing) and os.path.ismount(os.path.dirname(self._listing))
        if not own and self._visible in {"", "all"}:
            return found
        # A container that was given a part of the devices: it sees the whole bus of its host all the same.
        listed = self._listed()
        if not own and listed >= found.here:
            # Its /proc is the host's as well: what it was given is known to the driver alone.
            return None
        return Found(found.here & listed, found.taken) if listed else None

    def _listed(self) -> frozenset[str]:
        names: Iterable[str] = ()
        with contextlib.suppress(OSError):
            # The names alone: a file below it is answered by the driver, and can hang with it.
            names = os.listdir(self._listing) if self._listing else ()
        return frozenset(filter(None, map(pci_address, names)))
