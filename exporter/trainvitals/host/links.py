"""What RDMA ports and network interfaces have in common: their settings, their place, the rate they should have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from trainvitals.host.sysfs import Sysfs

#: What is read once a minute: it does not change while a device is in use.
DETAILS_EVERY = 60.0

GIGABIT = 1e9 / 8
MEGABIT = 1e6 / 8

#: Ports that are read, and interfaces; no node is known to have half as many.
MOST = 64

#: Fewer ports than this have no majority.
_FEWEST_ALIKE = 3
_MOST_REMEMBERED = 1024
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True)
class Choice:
    """Which links are read.  ``exclude`` holds patterns of names; of what they match no file is ever opened.

    ``expected`` maps patterns to rates in Gb/s, the first that matches counts.
    """

    exclude: Sequence[str] = ()
    virtual_functions: bool = False
    expected: Mapping[str, float] = field(default_factory=dict)

    def wants(self, name: str) -> bool:
        """Say whether a device or interface of this name is read."""
        return not any(fnmatchcase(name, pattern) for pattern in self.exclude)

    def rate(self, name: str) -> float | None:
        """Return the rate in bytes per second that the settings expect of it."""
        for pattern, gigabits in self.expected.items():
            if fnmatchcase(name, pattern):
                return gigabits * GIGABIT
        return None


class Place(NamedTuple):
    """Where a device sits: PCI address, NUMA node and driver, each empty when not known, and what kind it is of."""

    pci_bus_id: str
    numa_node: str
    driver: str
    model: str | None


def place(sysfs: Sysfs, device: str) -> Place:
    """Return the place of the device at this link."""
    address = sysfs.target(device)
    node = sysfs.number(f"{device}/numa_node")  # -1 without NUMA
    return Place(
        pci_bus_id=address if _PCI_ADDRESS.fullmatch(address) else "",
        numa_node="" if node is None else str(node),
        driver=sysfs.target(f"{device}/driver"),
        # Vendor, device, subsystem and class in one text: the same product.
        model=sysfs.text(f"{device}/modalias"),
    )


class Link(NamedTuple):
    """A link by its name, its rate in bytes per second while it is up, and what makes it like others, if anything."""

    name: str
    rate: float | None
    alike: Hashable = None


class Expectation:
    """Knows the rate that each link should have.

    That is what the settings say.  Without settings it is the highest rate at which the link was seen since the
    exporter began, or the rate of most of the links like it, if that is more: so one that came up slow shows too.
    """

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._highest: dict[str, float] = {}

    def rates(self, links: Sequence[tuple[str, Link]]) -> dict[str, float]:
        """Return the expected rate by key in bytes per second; each link comes with its key."""
        common = _majorities(link for _, link in links)
        found: dict[str, float] = {}
        for key, link in links:
            if link.rate is not None:
                self._highest[key] = max(link.rate, self._highest.get(key, 0.0))
            expected = self._choice.rate(link.name)
            if expected is None:
                expected = max(self._highest.get(key, 0.0), common.get(link.alike, 0.0))
            if expected:
                found[key] = expected
        if len(self._highest) > _MOST_REMEMBERED:
            self._highest = {key: self._highest[key] for key, _ in links if key in self._highest}
        return found


def _majorities(links: Iterable[Link]) -> dict[Hashable, float]:
    rates: dict[Hashable, Counter[float]] = {}
    for link in links:
        if link.rate is not None and link.alike is not None:
            rates.setdefault(link.alike, Counter())[link.rate] += 1
    found = {}
    for alike, counts in rates.items():
        rate, count = counts.most_common(1)[0]
        if counts.total() >= _FEWEST_ALIKE and count * 2 > counts.total():
            found[alike] = rate
    return found
