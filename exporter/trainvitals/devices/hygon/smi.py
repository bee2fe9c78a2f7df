"""What ``hy-smi --json`` says: pure functions from its text to values.

One object with an object for each card (``card0``), in which key and value are texts and the unit stands in the key.
The keys have changed with the versions: ``DCU use (%)`` became ``HCU use (%)``, ``VRAM Total Memory (B)`` became
``vram Total Memory (MiB)``.  ``HCU memory use (%)`` is the share that is allocated, and not read: the bytes are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainvitals.devices import json_text
from trainvitals.devices.plausible import NOT_UNDERSTOOD, Values, is_mark, number
from trainvitals.telemetry import DeviceSample, pci_address

#: What one card tells: texts by lower-case keys.
Card = Mapping[str, str]

_CARD = re.compile(r"card(\d{1,3})")
_USE = re.compile(r"(?:dcu|hcu|gpu) use \(%\)")
_TEMPERATURE = re.compile(r"temperature \(sensor (\w{1,16})\) \(c\)")
_TOTAL = re.compile(r"vram total memory \((\w{1,3})\)")
_USED = re.compile(r"vram total used memory \((\w{1,3})\)")
_POWER = re.compile(r"(average|current socket) graphics package power \(w\)")
_MOST_POWER = re.compile(r"max graphics package power \(w\)")
_DRIVER = re.compile(r"^driver version: *(\S{1,64})\s*$", re.IGNORECASE | re.MULTILINE)
_UNITS = {"b": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_KINDS = {"average": "average", "current socket": "instant"}
#: Keys of which one is there when this is the tool of a card of this kind, whoever made it.
_KNOWN = (_USE, _TEMPERATURE, _TOTAL, _POWER, re.compile(r"pci bus|serial number|unique id|device id|card series"))
#: AMD's tool says GPU.
_OURS = re.compile(r"(?:dcu|hcu) ")
_HYGON = re.compile(r"haiguang|hygon", re.IGNORECASE)


def cards(text: str) -> dict[int, Card] | None:
    """Return what each card tells by its number; None when this is not what the tool prints."""
    document = json_text.find(text)
    if not isinstance(document, dict):
        return None
    found: dict[int, Card] = {}
    for name, entry in document.items():
        match = _CARD.fullmatch(name)
        if match and isinstance(entry, dict):
            # The tool leaves an empty key among the others.
            found[int(match[1])] = _texts(entry)
    known = any(pattern.fullmatch(key) for card in found.values() for key in card for pattern in _KNOWN)
    return found if known else None


def _texts(entry: Mapping[str, Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for key, value in entry.items():
        text = json_text.word(value)
        name = " ".join(key.lower().split()).rstrip(":")
        if name and text is not None:
            texts.setdefault(name, text.strip())
    return texts


def driver_version(text: str) -> str:
    """Return the version of the driver: a line, or the key of each card or of ``system``, whatever the version has."""
    match = _DRIVER.search(text)
    if match:
        return match[1]
    document = json_text.find(text)
    entries = document.values() if isinstance(document, dict) else ()
    for entry in entries:
        version = _texts(entry).get("driver version", "") if isinstance(entry, dict) else ""
        if not is_mark(version):
            return version[:64]
    return ""


def is_hygon(found: Mapping[int, Card]) -> bool | None:
    """Whether these are cards of Hygon, by their maker or by the name of a key; None when neither tells."""
    makers = [maker for card in found.values() if not is_mark(maker := card.get("card vendor", ""))]
    if makers:
        return all(map(_HYGON.search, makers))
    return True if any(_OURS.match(key) for card in found.values() for key in card) else None


def address(card: Card) -> str:
    """Return the address of a card on the bus; empty when it does not tell."""
    return pci_address(card.get("pci bus", ""))


def identity(card: Card) -> str:
    """Return what names a card for good: its number from the maker, or its address; empty when it tells neither."""
    for key in ("unique id", "serial number"):
        text = _called(card, key)
        if text.strip("0x"):
            return text
    return address(card)


def _called(card: Card, key: str) -> str:
    """Return a text that names something; empty where a mark stands for it."""
    text = card.get(key, "")
    return "" if is_mark(text) or text == "-1" else text


def name(card: Card) -> str:
    """Return the model; its key ``Card Model`` is a number in hexadecimal."""
    number = _called(card, "device id")
    return _called(card, "card series") or (f"Hygon {number}" if number else "Hygon")


def measure(card: Card, sample: DeviceSample) -> Values:
    """Set the values that change, and return what set them."""
    values = Values(sample)
    for key, text in card.items():
        if _USE.fullmatch(key):
            # Below 0 is "not read".
            share = number(text)
            if share is None or share >= 0:
                values.put("utilization_ratio", text, unit=0.01)
        elif match := _POWER.fullmatch(key):
            # No card draws 0 W: it is what one tells that cannot measure it.
            if number(text) != 0:
                values.put("power_watts", text, _KINDS[match[1]])
        elif key == "pcie replay count":
            values.put("pcie_replays_total", text)
    _temperatures(card, values)
    _memory(card, values)
    return values


def _temperatures(card: Card, values: Values) -> None:
    """Set the temperatures: ``gpu`` is the edge of the chip, or else its hottest spot (junction) or its core."""
    texts = {match[1]: text for key, text in card.items() if (match := _TEMPERATURE.fullmatch(key))}
    told = {sensor: text for sensor, text in texts.items() if not is_mark(text)}
    gpu = next((sensor for sensor in ("edge", "junction", "core") if sensor in told), "")
    labels = {"edge": "gpu", "junction": "hotspot", "core": "core", "mem": "memory", "memory": "memory"}
    for sensor, text in told.items():
        label = "gpu" if sensor == gpu else labels.get(sensor)
        if label:
            values.put("temperature_celsius", text, label)


def _memory(card: Card, values: Values) -> None:
    found = {}
    for which, pattern in (("total", _TOTAL), ("used", _USED)):
        for key, text in card.items():
            if match := pattern.fullmatch(key):
                found[which] = (text, _UNITS.get(match[1]))
    total, unit = found.get("total", (None, 1.0))
    used, other = found.get("used", (None, unit))
    if unit is None or other != unit:
        values.fail(NOT_UNDERSTOOD)
    else:
        values.memory(used, total, unit)


def describe(card: Card, sample: DeviceSample) -> None:
    """Set what stays the same."""
    values = Values(sample)
    for key, text in card.items():
        if _MOST_POWER.fullmatch(key):
            values.put("power_limit_watts", None if number(text) == 0 else text)
    labels = [*(_called(card, key) for key in ("serial number", "card sku", "vbios version")), "", ""]
    if any(labels):
        values.set("hardware_info", 1.0, *labels)
