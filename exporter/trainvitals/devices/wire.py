"""The lines between the process that reads devices and the exporter: one JSON object per line.

Three kinds: ``{"devices": [...]}`` is a reading, ``{"down": reason}`` says that the driver does not answer now, and
``{"absent": reason}`` that this machine has nothing of this vendor; the process ends after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trainvitals.telemetry import DeviceSample

#: Exit status of the process: nothing of this vendor is on this machine.
ABSENT = os.EX_UNAVAILABLE
#: Exit status of the process: only a new one can read the devices again.
STALE = os.EX_TEMPFAIL

#: Bytes of one line at most; 256 devices with every field need less than half of it.
LONGEST_LINE = 1 << 20
_MOST_DEVICES = 256
_MOST_ENTRIES = 32
_LONGEST_TEXT = 256

_TEXTS = ("uuid", "name", "pci_bus_id", "driver_version", "power_kind")
_NUMBERS = (
    "utilization_ratio",
    "memory_activity_ratio",
    "memory_used_bytes",
    "memory_total_bytes",
    "power_watts",
    "power_limit_watts",
)
_TABLES = ("temperatures_celsius", "clocks_hertz")


@dataclass(frozen=True, kw_only=True)
class Message:
    """One line.  Exactly one of the three is meant: ``absent``, else ``down``, else ``devices``."""

    devices: list[DeviceSample] = field(default_factory=list)
    down: str = ""
    absent: str = ""


class Lines:
    """Cuts bytes into lines, none longer than ``longest``."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that are complete.  Raises ValueError when one is too long."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        yield from lines
        if len(self._rest) > self._longest:
            raise ValueError("a line without end")


def encode(message: Message) -> bytes:
    """Return the line, its end included."""
    document: dict[str, Any]
    if message.absent:
        document = {"absent": message.absent}
    elif message.down:
        document = {"down": message.down}
    else:
        document = {"devices": [_pack(sample) for sample in message.devices]}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes, vendor: str) -> Message:
    """Return what a line says.  Raises ValueError for anything that :func:`encode` would not have written."""
    try:
        return _decode(json.loads(line), vendor)
    except (RecursionError, OverflowError) as error:
        raise ValueError("nested too deep, or a number too large") from error


def _decode(document: Any, vendor: str) -> Message:
    if not isinstance(document, dict) or len(document) != 1:
        raise ValueError("not one of the three kinds of lines")
    ((kind, content),) = document.items()
    if kind == "down":
        return Message(down=_text(content) or "unknown")
    if kind == "absent":
        return Message(absent=_text(content) or "unknown")
    if kind != "devices" or not isinstance(content, list) or len(content) > _MOST_DEVICES:
        raise ValueError("not a list of devices")
    return Message(devices=[_unpack(item, vendor) for item in content])


def _pack(sample: DeviceSample) -> dict[str, Any]:
    packed: dict[str, Any] = {"index": sample.index, "up": sample.up}
    for name in (*_TEXTS, *_NUMBERS, *_TABLES, "failed"):
        value = getattr(sample, name)
        # Zero is a value; None, "" and {} are the absence of one.
        if value is not None and value not in ("", {}):
            packed[name] = value
    return packed


def _unpack(item: Any, vendor: str) -> DeviceSample:
    index, up = (item.get("index"), item.get("up")) if isinstance(item, dict) else (None, None)
    if type(index) is not int or not 0 <= index < 2**16 or type(up) is not bool:
        raise ValueError("a device without index or state")
    fields: dict[str, Any] = {name: _text(item[name]) for name in _TEXTS if name in item}
    fields |= {name: _number(item[name]) for name in _NUMBERS if name in item}
    fields |= {name: _table(item[name]) for name in _TABLES if name in item}
    failed = {reason: int(count) for reason, count in _table(item.get("failed", {})).items()}
    return DeviceSample(**{"uuid": "", **fields}, index=index, up=up, vendor=vendor, failed=failed)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    raise ValueError("not a text")


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError("not a number")
    return float(value)


def _table(value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or len(value) > _MOST_ENTRIES:
        raise ValueError("not a table of numbers")
    return {_text(name): _number(number) for name, number in value.items()}
