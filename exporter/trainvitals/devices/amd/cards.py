"""The cards of the driver amdgpu as sysfs shows them: one folder for each, with a file for each value.

https://docs.kernel.org/gpu/amdgpu/driver-misc.html and .../thermal.html name the files and their units.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from trainvitals.devices.tiers import Schedule, Tier
from trainvitals.telemetry import pci_address

VENDOR = 0x1002
#: Bytes of one file that are read: a list of bad pages is the longest, and has 25 bytes for each.
_MOST = 1 << 16
_CARD = re.compile(r"card\d{1,4}")
_UNIQUE = re.compile(r"(?:0x)?([0-9a-f]{1,16})", re.IGNORECASE)
#: What the kernel answers for a file that this model does not fill.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA})
_GONE = frozenset({errno.ENODEV, errno.ENXIO})
#: EPERM is the answer of amdgpu while it resets a card; a file that one may not open is EACCES.
_REASONS = {
    errno.EPERM: "not_ready",
    errno.EACCES: "no_permission",
    errno.ETIMEDOUT: "timeout",
    errno.ETIME: "timeout",
    **dict.fromkeys(_GONE, "gpu_is_lost"),
}


class Attributes:
    """Reads files of one folder; each failure is told to ``failed`` by its reason."""

    def __init__(self, folder: str, failed: Callable[[str], None] = lambda _: None) -> None:
        self.folder = folder
        self._failed = failed
        #: Why files could not be read that are there.
        self.reasons: set[str] = set()

    def __call__(self, name: str) -> str | None:
        """Return the text of a file without the white space around it; None where there is none."""
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                return file.read(_MOST).decode(errors="replace").strip()
        except OSError as error:
            if error.errno not in _ABSENT:
                reason = _REASONS.get(error.errno or 0, errno.errorcode.get(error.errno or 0, "unknown").lower())
                self.reasons.add(reason)
                self._failed(reason)
            return None

    def names(self, folder: str, end: str = "") -> list[str]:
        """Return the paths of the entries of a folder in this one that end so, in order."""
        try:
            found = sorted(os.listdir(os.path.join(self.folder, folder)))
        except OSError:
            return []
        return [f"{folder}/{name}" for name in found if name.endswith(end)]


@dataclass
class Card:
    """A card: where it is, what it is, and the last of what was read in each tier."""

    address: str
    folder: str
    unique: str = ""
    name: str = ""
    schedule: Schedule = field(default_factory=Schedule)
    parts: dict[Tier, dict[tuple[str, ...], float]] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        """The number of the chip, as ROCR_VISIBLE_DEVICES knows it; the address where it has none."""
        return f"GPU-{self.unique}" if self.unique else self.address


def find(drm: str) -> dict[str, Card]:
    """Return the cards below a folder such as /sys/class/drm by their addresses, in the order of these.

    The parts of a split card have folders of their own, but are no devices of the bus: the card as a whole is read.
    """
    cards = {}
    try:
        entries = os.listdir(drm)
    except OSError:
        return {}
    for entry in filter(_CARD.fullmatch, entries):
        folder = os.path.realpath(f"{drm}/{entry}/device")
        read = Attributes(folder)
        address = pci_address(os.path.basename(folder))
        if address and _hex(read("vendor")) == VENDOR and not os.path.lexists(f"{folder}/physfn"):
            name = read("product_name") or _unnamed(read)
            cards[address] = Card(address, folder, _unique(read("unique_id")), name)
    numbers = [card.unique for card in cards.values()]
    for card in cards.values():
        if numbers.count(card.unique) > 1:
            # A number that two have names none.
            card.unique = ""
    return dict(sorted(cards.items()))


def _unnamed(read: Attributes) -> str:
    device = read("device")
    return f"AMD {device}" if device else "AMD"


def _unique(text: str | None) -> str:
    match = _UNIQUE.fullmatch(text or "")
    return match[1].lower() if match and int(match[1], 16) else ""


def _hex(text: str | None) -> int:
    try:
        return int(text or "0", 16)
    except ValueError:
        return 0
