"""Finds in the messages of the kernel what they complain of; the kinds are a table of their own (``kernel_kinds``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainvitals.host.kernel_kinds import DEVICE_KINDS, KINDS, PCI
from trainvitals.telemetry import pci_address

#: The driver writes this message in three lines, which are one record or three.
_LOST_FIRST = re.compile(rf"NVRM: The NVIDIA GPU {PCI}\s*$")
_LOST_LAST = re.compile(r"NVRM: (?:.{0,80} )?fallen off the bus")
#: So many records later they no longer belong together.
_LOST_WITHIN = 8
#: An NVSwitch writes one line that tells the error, and others that begin so with its registers.
_SXID_DETAILS = ("Severity ", "Data {")
_LONGEST_PLACE = 64


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """One complaint.  ``place`` is a PCI address, a disk, an interface or a server; empty when the message names none.

    ``code`` and ``text`` are those of an XID or SXID.
    """

    kind: str
    place: str = ""
    code: int = 0
    text: str = ""


class Parser:
    """Finds events in messages, in their order; keeps what it must of the messages before."""

    def __init__(self) -> None:
        self._lost_place = ""
        self._lost_left = 0

    def parse(self, text: str) -> KernelEvent | None:
        """Return the event that a message tells, None for all others.  Never raises."""
        if self._lost_left:
            self._lost_left -= 1
            if _LOST_LAST.match(text):
                self._lost_left = 0
                return KernelEvent("fallen_off_bus", self._lost_place)
        for needle, pattern, name in _NEEDLES:
            if needle in text and (match := pattern.match(text)) is not None:
                return _event(name, match)
        if "The NVIDIA GPU" in text and (match := _LOST_FIRST.match(text)):
            self._lost_place = pci_address(match["place"])
            self._lost_left = _LOST_WITHIN
        return None


#: Few messages match anything, so each is first searched for words, which is quick.
_NEEDLES = tuple((needle, kind.pattern, kind.name) for kind in DEVICE_KINDS + KINDS for needle in kind.needles)


def _event(kind: str, match: re.Match[str]) -> KernelEvent | None:
    groups = match.groupdict(default="")
    text = groups.get("text", "").strip()
    if kind == "sxid" and text.startswith(_SXID_DETAILS):
        return None
    place = groups.get("place", "")
    return KernelEvent(kind, pci_address(place) or place[:_LONGEST_PLACE], int(groups.get("code", "0")), text)
