"""RDMA ports as the kernel shows them below /sys/class/infiniband: InfiniBand, RoCE, EFA, Omni-Path, iWARP.

Sources: the kernel's Documentation/ABI/stable/sysfs-class-infiniband, and drivers/infiniband/core/sysfs.c for the
numbers of states.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainvitals.host import infiniband_counters as known
from trainvitals.host.links import DETAILS_EVERY, GIGABIT, MOST, Choice, Expectation, Link, Place, place
from trainvitals.host.sysfs import Sysfs

_CLASS = "class/infiniband"

_STATES = {0: "nop", 1: "down", 2: "init", 3: "armed", 4: "active", 5: "active_defer"}
_UP = frozenset({"active", "active_defer"})
_PHYSICAL_STATES = {
    1: "sleep",
    2: "polling",
    3: "disabled",
    4: "training",
    5: "link_up",
    6: "link_error_recovery",
    7: "phy_test",
}
_NUMBERED = re.compile(r"(\d{1,3}):")
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,2})?) *Gb/sec")
_PORT = re.compile(r"\d{1,3}")


@dataclass(frozen=True)
class Details:
    """What does not change while a port is in use; texts are empty when not known."""

    link_layer: str
    interface: str
    place: Place
    hca_type: str
    board_id: str
    firmware: str
    counters: tuple[str, ...]
    hw_counters: tuple[str, ...]


@dataclass(frozen=True)
class Port:
    """A port as it is now.  Rates are in bytes per second; what is None or missing could not be read.

    ``flaps`` counts how often it went down since the exporter began, ``saturated`` names the counters that stand at
    the end of their range.
    """

    hca: str
    port: str
    details: Details
    state: str | None
    physical_state: str | None
    rate: float | None
    flaps: int
    traffic: known.Traffic
    expected_rate: float | None = None
    transmit_wait: int | None = None
    link_downed: int | None = None
    errors: dict[str, int] = field(default_factory=dict)
    transport: dict[str, int] = field(default_factory=dict)
    saturated: tuple[str, ...] = ()

    @property
    def up(self) -> bool | None:
        """Whether it carries traffic."""
        return None if self.state is None else self.state in _UP

    @property
    def key(self) -> str:
        """What tells it from the other ports."""
        return f"{self.hca}/{self.port}"


@dataclass
class _History:
    """How often a port was seen to go down, by its state and by the counter link_downed."""

    up: bool | None = None
    link_downed: int | None = None
    by_state: int = 0
    by_counter: int = 0

    def flaps(self, up: bool | None, link_downed: int | None) -> int:
        """Take what was read now and return how often the link went down.

        Each of the two misses some: the state what lies between two rounds, the counter what it is too small for or
        what an administrator did.  Both count the same events, so it is the larger one and not the sum.
        """
        if self.up and up is False:
            self.by_state += 1
        if up is not None:
            self.up = up
        if link_downed is not None:
            if self.link_downed is not None and link_downed > self.link_downed:
                self.by_counter += link_downed - self.link_downed
            self.link_downed = link_downed
        return max(self.by_state, self.by_counter)


class Infiniband:
    """Reads all ports.  ``clock`` is monotonic, in seconds."""

    def __init__(
        self, sysfs: Sysfs | None = None, choice: Choice | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sysfs = sysfs or Sysfs()
        self._choice = choice or Choice()
        self._clock = clock
        self._expectation = Expectation(self._choice)
        self._details: dict[str, Details] = {}
        self._details_until = float("-inf")
        self._histories: dict[str, _History] = {}
        #: Ports beyond the limit at the last reading.
        self.left_out = 0

    def ports(self) -> list[Port]:
        """Return all ports.  Raises OSError when the folder of devices is there and cannot be read."""
        now = self._clock()
        if now >= self._details_until:
            self._details.clear()
            self._details_until = now + DETAILS_EVERY
        found = [self._port(hca, port) for hca, port in self._known()]
        for key in self._histories.keys() - {port.key for port in found}:
            # It left, with its driver or into a container: that is no flap.
            self._histories[key].up = None
        if len(self._histories) > 16 * MOST:
            self._histories.clear()
        alike = {port.key: (port.details.place.model, port.details.link_layer) for port in found}
        links = [
            (port.key, Link(port.hca, port.rate, alike[port.key] if port.details.place.model else None))
            for port in found
        ]
        expected = self._expectation.rates(links)
        return [replace(port, expected_rate=expected.get(port.key)) for port in found]

    def _known(self) -> list[tuple[str, str]]:
        found = []
        for hca in self._sysfs.listing(_CLASS):
            if not self._choice.wants(hca):
                continue
            if not self._choice.virtual_functions and self._sysfs.exists(f"{_CLASS}/{hca}/device/physfn"):
                continue
            found += [(hca, port) for port in self._sysfs.names(f"{_CLASS}/{hca}/ports") if _PORT.fullmatch(port)]
        self.left_out = len(found[MOST:])
        return found[:MOST]

    def _port(self, hca: str, port: str) -> Port:
        folder = f"{_CLASS}/{hca}/ports/{port}"
        details = self._details.get(folder)
        if details is None:
            details = self._details[folder] = self._read_details(hca, port)
        state = _numbered(self._sysfs.text(f"{folder}/state"), _STATES)
        up = None if state is None else state in _UP
        counters = self._read(f"{folder}/counters", details.counters)
        hw_counters = self._read(f"{folder}/hw_counters", details.hw_counters)
        link_downed = counters.get("link_downed")
        history = self._histories.setdefault(f"{hca}/{port}", _History())
        return Port(
            hca=hca,
            port=port,
            details=details,
            state=state,
            physical_state=_numbered(self._sysfs.text(f"{folder}/phys_state"), _PHYSICAL_STATES),
            # A link that is down has a rate too, of the slowest lane: it says nothing.
            rate=_rate(self._sysfs.text(f"{folder}/rate")) if up else None,
            flaps=history.flaps(up, link_downed),
            traffic=known.traffic(counters, hw_counters, details.place.driver),
            transmit_wait=known.moving(counters, "port_xmit_wait"),
            link_downed=link_downed,
            errors=known.errors(counters, details.link_layer),
            transport=known.transport(hw_counters, details.link_layer),
            saturated=known.saturated(counters),
        )

    def _read(self, folder: str, names: tuple[str, ...]) -> dict[str, int]:
        return {name: value for name in names if (value := self._sysfs.counter(f"{folder}/{name}")) is not None}

    def _read_details(self, hca: str, port: str) -> Details:
        sysfs, device = self._sysfs, f"{_CLASS}/{hca}"
        folder = f"{device}/ports/{port}"
        link_layer = (sysfs.text(f"{folder}/link_layer") or "").lower()
        counters, hw_counters = known.counters_of(link_layer), known.hw_counters_of()
        return Details(
            link_layer=link_layer,
            interface=self._interface(hca, port),
            place=place(sysfs, f"{device}/device"),
            hca_type=sysfs.text(f"{device}/hca_type") or "",
            board_id=sysfs.text(f"{device}/board_id") or "",
            firmware=sysfs.text(f"{device}/fw_ver") or "",
            counters=tuple(name for name in sysfs.names(f"{folder}/counters") if name in counters),
            hw_counters=tuple(name for name in sysfs.names(f"{folder}/hw_counters") if name in hw_counters),
        )

    def _interface(self, hca: str, port: str) -> str:
        """Return the network interface of a port; on a function with two ports their numbers tell which."""
        device = f"{_CLASS}/{hca}"
        named = self._sysfs.text(f"{device}/ports/{port}/gid_attrs/ndevs/0")
        if named is not None:
            return named
        names = self._sysfs.names(f"{device}/device/net")
        if len(self._sysfs.names(f"{device}/ports")) > 1:
            names = [name for name in names if self._sysfs.number(f"class/net/{name}/dev_port") == int(port) - 1]
        return names[0] if names else ""


def _numbered(text: str | None, names: dict[int, str]) -> str | None:
    """Return what "4: ACTIVE" means; "unknown" for a number without a name, None for another text."""
    match = _NUMBERED.match(text or "")
    return names.get(int(match[1]), "unknown") if match else None


def _rate(text: str | None) -> float | None:
    """Return the bytes per second of "400 Gb/sec (4X NDR)"."""
    match = _RATE.match(text or "")
    return float(match[1]) * GIGABIT or None if match else None
