"""Network interfaces as the kernel shows them below /sys/class/net: Ethernet, IP over InfiniBand, and bonds of them.

Source: the kernel's Documentation/ABI/testing/sysfs-class-net and sysfs-class-net-statistics.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainvitals.host.links import DETAILS_EVERY, MEGABIT, MOST, Choice, Expectation, Link, Place, place
from trainvitals.host.sysfs import Sysfs

_CLASS = "class/net"

#: Values of ``type`` that are read (if_arp.h).
_KINDS = {1: "ethernet", 32: "infiniband"}
#: Interfaces inside this machine, whose bytes pass a physical one or none at all.
_INSIDE = ("veth", "docker", "br-", "virbr", "cni", "cali", "flannel", "cilium", "lxc", "tap", "dummy", "ifb")
#: Ports of a switch inside the network card, one per function of the card: "pf0vf3", "c1pf0sf8".
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf|sf)\d+")
_IFF_UP = 1
#: "Unknown" as drivers write it: -1 as a number of 16 bits; as one of 32 it is beyond the fastest link.
_UNKNOWN_SPEED = 2**16 - 1
_FASTEST = 10_000_000

#: Always shown.
_ERRORS = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
#: Shown once they are not zero.
_RARE_ERRORS = (
    *("rx_missed_errors", "rx_crc_errors", "rx_frame_errors", "rx_length_errors", "rx_over_errors", "rx_fifo_errors"),
    *("tx_fifo_errors", "tx_carrier_errors", "tx_aborted_errors", "collisions"),
)


@dataclass(frozen=True)
class Details:
    """What does not change while an interface is in use.

    ``kind`` is ethernet, infiniband, bond or virtual; ``master`` the bond that it is a member of.  An interface that
    is ``stacked`` on others only sums up their traffic.
    """

    kind: str
    master: str
    place: Place
    stacked: bool


@dataclass(frozen=True)
class Interface:
    """An interface as it is now.  Speeds are in bytes per second; what is None or missing could not be read."""

    name: str
    details: Details
    enabled: bool | None
    state: str | None
    up: bool | None
    speed: float | None
    mtu: int | None
    carrier_changes: int | None
    carrier_downs: int | None
    received: int | None = None
    sent: int | None = None
    errors: dict[str, int] = field(default_factory=dict)
    expected_speed: float | None = None


class Ethernet:
    """Reads all interfaces.  ``clock`` is monotonic, in seconds."""

    def __init__(
        self, sysfs: Sysfs | None = None, choice: Choice | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sysfs = sysfs or Sysfs()
        self._choice = choice or Choice()
        self._clock = clock
        self._expectation = Expectation(self._choice)
        self._details: dict[str, Details | None] = {}
        self._details_until = float("-inf")
        #: Interfaces beyond the limit at the last reading.
        self.left_out = 0

    def interfaces(self) -> list[Interface]:
        """Return the interfaces with a device behind them and the bonds of them.

        Inside a container there is none; then it is those that look like a way out of it.
        Raises OSError when the folder of interfaces is there and cannot be read.
        """
        now = self._clock()
        if now >= self._details_until:
            self._details.clear()
            self._details_until = now + DETAILS_EVERY
        names = [name for name in self._sysfs.listing(_CLASS) if self._choice.wants(name)]
        known = [(name, details) for name in names if (details := self._known(name)) is not None]
        if any(details.kind != "virtual" for _, details in known):
            known = [(name, details) for name, details in known if details.kind != "virtual"]
        self.left_out = len(known[MOST:])
        found = [self._interface(name, details) for name, details in known[:MOST]]
        expected = self._expectation.rates([(one.name, Link(one.name, one.speed)) for one in found])
        return [replace(one, expected_speed=expected.get(one.name)) for one in found]

    def _known(self, name: str) -> Details | None:
        if name not in self._details:
            self._details[name] = self._read_details(name)
        return self._details[name]

    def _read_details(self, name: str) -> Details | None:
        """Return what an interface is; None when it is not to be shown."""
        sysfs, folder = self._sysfs, f"{_CLASS}/{name}"
        content = sysfs.names(folder)
        kind = _KINDS.get(sysfs.number(f"{folder}/type") or 0)
        stacked = any(entry.startswith("lower_") for entry in content)
        if "bonding" in content:
            kind = "bond" if stacked else None  # The module makes an empty bond when it is loaded.
        elif "device" in content:
            kind = None if self._belongs_to_a_guest(folder) else kind
        elif kind is not None:
            kind = None if name == "lo" or name.startswith(_INSIDE) or stacked else "virtual"
        if kind is None:
            return None
        return Details(
            kind=kind,
            master=sysfs.target(f"{folder}/master"),
            place=place(sysfs, f"{folder}/device"),
            stacked=stacked,
        )

    def _belongs_to_a_guest(self, folder: str) -> bool:
        """Say whether it is a virtual function, or the port of one in the switch inside the card."""
        if self._choice.virtual_functions:
            return False
        name = self._sysfs.text(f"{folder}/phys_port_name") or ""
        return self._sysfs.exists(f"{folder}/device/physfn") or _REPRESENTOR.fullmatch(name) is not None

    def _interface(self, name: str, details: Details) -> Interface:
        sysfs, folder = self._sysfs, f"{_CLASS}/{name}"
        flags = _hexadecimal(sysfs.text(f"{folder}/flags"))
        state = _word(sysfs.text(f"{folder}/operstate"))
        up = None if state is None else state == "up"
        if state == "unknown":  # Some drivers never say; then the carrier does.
            carrier = sysfs.number(f"{folder}/carrier")
            up = None if carrier is None else carrier == 1
        errors = {}
        if not details.stacked:
            values = {kind: sysfs.number(f"{folder}/statistics/{kind}") for kind in (*_ERRORS, *_RARE_ERRORS)}
            errors = {kind: value for kind, value in values.items() if value is not None and (value or kind in _ERRORS)}
        return Interface(
            name=name,
            details=details,
            enabled=None if flags is None else bool(flags & _IFF_UP),
            state=state,
            up=up,
            # Without a link it cannot be read, and asking takes a lock of the whole network.
            speed=_speed(sysfs.number(f"{folder}/speed")) if up else None,
            mtu=sysfs.number(f"{folder}/mtu"),
            carrier_changes=sysfs.number(f"{folder}/carrier_changes"),
            carrier_downs=sysfs.number(f"{folder}/carrier_down_count"),
            received=None if details.stacked else sysfs.number(f"{folder}/statistics/rx_bytes"),
            sent=None if details.stacked else sysfs.number(f"{folder}/statistics/tx_bytes"),
            errors=errors,
        )


#: RFC 2863, as the kernel writes it.
_STATES = frozenset({"unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"})


def _word(text: str | None) -> str | None:
    return text if text in _STATES else None


def _hexadecimal(text: str | None) -> int | None:
    try:
        return int(text or "", 16)
    except ValueError:
        return None


def _speed(megabits: int | None) -> float | None:
    if megabits is None or megabits in {0, _UNKNOWN_SPEED} or megabits > _FASTEST:
        return None
    return megabits * MEGABIT
