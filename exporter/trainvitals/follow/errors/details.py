"""The fields of an event, made of the details that a row's pattern found."""

from __future__ import annotations

import re

from trainvitals.telemetry import pci_address

_LONGEST_FIELD = 400
_LONGEST_PLACE = 300

#: Groups of patterns that are numbers, and the fields that they become.
_NUMBERS = {
    "device": "device",
    "pid": "pid",
    "process": "pid",
    "exit_code": "exit_code",
    "return_code": "exit_code",
    "status_code": "exit_code",
    "local_rank": "local_rank",
    "seconds": "seconds",
    "line": "line",
}
#: Groups that are text.
_TEXTS = {
    "file": "file",
    "at": "at",
    "signal": "signal",
    "code": "code",
    "number": "code",
    "status": "code",
    "host": "host",
    "collective": "collective",
    "operation": "collective",
    "peer": "peer",
    "address": "peer",
    "program": "program",
    "module": "module",
    "ranks": "ranks",
    "absent": "ranks",
    "alone": "ranks",
    "remote": "ranks",
    "job": "job",
    "function": "function",
    "resource": "resource",
}
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
#: How a place is told, from the widest to the narrowest that tells anything.
_PLACE = {
    "rank": "rank {}",
    "ranks": "ranks {}",
    "local_rank": "local rank {}",
    "device": "device {}",
    "pci_bus_id": "device {}",
    "host": "node {}",
    "peer": "peer {}",
    "file": "file {}",
    "at": "{}",
    "pid": "process {}",
}


def details_of(groups: dict[str, str]) -> dict[str, object]:
    """Return details as fields of an event: numbers, base units, bounded text."""
    fields: dict[str, object] = {}
    for name, text in groups.items():
        if name in _NUMBERS:
            fields[_NUMBERS[name]] = int(text)
        elif name in _TEXTS and text:
            fields[_TEXTS[name]] = text.strip(" ,")[:_LONGEST_FIELD]
        elif name == "place":
            fields["pci_bus_id"] = pci_address(text) or text[:_LONGEST_FIELD]
        elif name == "wanted":
            fields["wanted_bytes"] = _bytes(text)
        elif name in {"timeout_ms", "waited_ms"}:
            fields["seconds"] = int(text) / 1000
    return {name: value for name, value in fields.items() if value is not None}


def place_of(fields: dict[str, object]) -> str:
    """Return in words where it happened, from whatever is known."""
    return ", ".join(words.format(fields[name]) for name, words in _PLACE.items() if name in fields)[:_LONGEST_PLACE]


def _bytes(text: str) -> int | None:
    """Return a size like "193.50 GiB" in bytes."""
    found = re.fullmatch(r"(\d{1,19}(?:\.\d{1,9})?) ?([KMGT]?)i?B?", text)
    return None if found is None else int(float(found[1]) * 2 ** _UNITS[found[2]])
