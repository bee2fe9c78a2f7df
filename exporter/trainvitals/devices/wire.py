"""The lines between the process that reads devices and the exporter: one JSON object per line.

Four kinds: ``{"at": index}`` says which device is asked next, so that one that never answers is known, and with the
index -1 that it is the driver as a whole; ``{"devices": [...], "count": n, "faults": [...]}`` is a reading of all ``n``
devices of the driver but those that were to be left alone; ``{"down": reason}`` says that the driver does not answer
now, and ``{"absent": reason}`` that this machine has nothing of this vendor; the process ends after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trainvitals.telemetry import DeviceProcess, DeviceSample, Fault

#: Exit status of the process: nothing of this vendor is on this machine.
ABSENT = os.EX_UNAVAILABLE
#: Exit status of the process: only a new one can read the devices again.
STALE = os.EX_TEMPFAIL

#: Bytes of one line at most; 256 devices with every value need less than half of it.
LONGEST_LINE = 1 << 23
#: In ``at``: not one device but the driver.
DRIVER = -1
_MOST_DEVICES = 256
_MOST_VALUES = 4096
_MOST_LABELS = 6
_MOST_ENTRIES = 1024
_LONGEST_TEXT = 256

_TEXTS = ("uuid", "name", "pci_bus_id", "driver_version", "reason")


@dataclass(frozen=True, kw_only=True)
class Message:
    """One line.  Exactly one of the four is meant: ``absent``, else ``down``, else ``at``, else ``devices``.

    ``count``, the number of devices that the driver has, and ``faults`` come with ``devices``.
    """

    devices: list[DeviceSample] = field(default_factory=list)
    count: int | None = None
    faults: list[Fault] = field(default_factory=list)
    at: int | None = None
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
    elif message.at is not None:
        document = {"at": message.at}
    else:
        document = {"devices": [_pack(sample) for sample in message.devices]}
        if message.count is not None:
            document["count"] = message.count
        if message.faults:
            document["faults"] = [[fault.pci_bus_id, fault.code, fault.time, fault.text] for fault in message.faults]
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes, vendor: str) -> Message:
    """Return what a line says.  Raises ValueError for anything that :func:`encode` would not have written."""
    try:
        return _decode(json.loads(line), vendor)
    except (RecursionError, OverflowError) as error:
        raise ValueError("nested too deep, or a number too large") from error


def _decode(document: Any, vendor: str) -> Message:
    if not isinstance(document, dict) or len(document) > 3:
        raise ValueError("not one of the four kinds of lines")
    if document.keys() == {"at"}:
        at = document["at"]
        return Message(at=DRIVER if type(at) is int and at == DRIVER else _index(at))
    if document.keys() == {"down"}:
        return Message(down=_text(document["down"]) or "unknown")
    if document.keys() == {"absent"}:
        return Message(absent=_text(document["absent"]) or "unknown")
    if "devices" not in document or document.keys() - {"devices", "count", "faults"}:
        raise ValueError("not one of the four kinds of lines")
    return Message(
        devices=[_unpack(item, vendor) for item in _list(document["devices"], _MOST_DEVICES)],
        count=_index(document["count"]) if "count" in document else None,
        faults=[_fault(item) for item in _list(document.get("faults", []), _MOST_ENTRIES)],
    )


def _pack(sample: DeviceSample) -> dict[str, Any]:
    packed: dict[str, Any] = {"index": sample.index, "up": sample.up}
    packed |= {name: text for name in _TEXTS if (text := getattr(sample, name))}
    if sample.values:
        packed["values"] = [[*key, value] for key, value in sample.values.items()]
    if sample.processes:
        packed["processes"] = [[one.pid, one.memory_bytes, one.mig] for one in sample.processes]
    if sample.failed:
        packed["failed"] = sample.failed
    return packed


def _unpack(item: Any, vendor: str) -> DeviceSample:
    if not isinstance(item, dict) or type(item.get("up")) is not bool:
        raise ValueError("a device without state")
    fields: dict[str, Any] = {"uuid": ""} | {name: _text(item[name]) for name in _TEXTS if name in item}
    return DeviceSample(
        **fields,
        index=_index(item.get("index")),
        up=item["up"],
        vendor=vendor,
        values=dict(map(_value, _list(item.get("values", []), _MOST_VALUES))),
        processes=tuple(map(_process, _list(item.get("processes", []), _MOST_ENTRIES))),
        failed={reason: _count(number) for reason, number in _table(item.get("failed", {})).items()},
    )


def _value(item: Any) -> tuple[tuple[str, ...], float]:
    *key, number = _list(item, _MOST_LABELS + 2)
    if not key:
        raise ValueError("a value without family")
    return tuple(map(_text, key)), _number(number)


def _process(item: Any) -> DeviceProcess:
    if not isinstance(item, list) or len(item) != 3 or type(item[0]) is not int or not 0 < item[0] < 2**31:
        raise ValueError("not a process")
    pid, memory, mig = item
    if mig is not None and (not isinstance(mig, list) or len(mig) != 2):
        raise ValueError("not an instance of a device")
    instance = None if mig is None else (_text(mig[0]), _text(mig[1]))
    return DeviceProcess(pid, None if memory is None else _number(memory), instance)


def _fault(item: Any) -> Fault:
    if not isinstance(item, list) or len(item) != 4 or type(item[1]) is not int or not 0 <= item[1] < 2**32:
        raise ValueError("not a fault")
    return Fault("driver", _text(item[0]), item[1], _number(item[2]), _text(item[3]))


def _list(value: Any, most: int) -> list[Any]:
    if isinstance(value, list) and len(value) <= most:
        return value
    raise ValueError("not a list, or one that is too long")


def _index(value: Any) -> int:
    if type(value) is int and 0 <= value < 2**16:
        return value
    raise ValueError("not the index of a device")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    raise ValueError("not a text")


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError("not a number")
    return float(value)


def _count(value: float) -> int:
    if value >= 0:
        return int(value)
    raise ValueError("not a count")


def _table(value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or len(value) > _MOST_ENTRIES:
        raise ValueError("not a table of numbers")
    return {_text(name): _number(number) for name, number in value.items()}
