"""Enflame GCU: the sections of ``efsmi -q``; else the columns of ``efsmi --dmon``, or its table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainvitals.devices.base import Vendor
from trainvitals.devices.told.base import (
    MEGA,
    MIB,
    PERCENT,
    Card,
    Fact,
    Tool,
    Wording,
    address,
    facts,
    kept,
    sections,
    table,
)
from trainvitals.devices.tools import MakeRun, Runner

_BEGIN = re.compile(r"^DEV ID (\d{1,3})\s*$")
#: The generation of PCIe is told as ``Gen5``, lanes as ``X16``.
_LETTERS = re.compile(r"^(?:Gen|X)(?=\d)", re.IGNORECASE)
_FACTS = (
    ("device usage info/gcu usage", "utilization_ratio", (), PERCENT),
    ("temperature info/gcu temp", "temperature_celsius", ("gpu",), 1.0),
    ("power info/cur power", "power_watts", ("default",), 1.0),
    ("power info/power capa", "power_limit_watts", (), 1.0),
    ("clock info/mem clk", "clock_hertz", ("memory",), MEGA),
)
_LINK = (
    ("cur link speed", "pcie_generation"),
    ("cur link width", "pcie_width"),
    ("max link speed", "pcie_max_generation"),
    ("max link width", "pcie_max_width"),
)
#: Borders of stars in the oldest layout, where the unit of memory is G and a device has one digit.
_FIRST = re.compile(
    r"^[|*]\s*(?P<index>\d{1,3})\s+(?P<name>\S.*?)\s*\|\s*\S+\s*\|\s*(?P<bus>[\da-fA-F:.]+)\s+\w+\s*[|*]"
)
_SECOND = re.compile(
    r"^[|*]\s*(?P<heat>[\d.]+|\S+?)(?:C|℃)?\s+\S+\s+(?:(?P<power>[\d.]+)W\s*/?\s*(?P<cap>[\d.]+)W|\S+)\s*\|"
    r"\s*(?P<total>\d+)(?P<unit>MiB|G)\s+\S+?\s*\|\s*(?P<use>\S+?)%\s+(?P<serial>\S+)\s*[|*]"
)
_DRIVER = re.compile(r"Driver Ver:\s*([\w.]{1,32})")
_COLUMNS = ("Dev", "Pwr", "DTemp", "Sip", "DUsed", "Dpm", "MUsed", "Mem", "Mclk", "TxPci", "RxPci")


def parse(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of ``-q``.  Up to driver 1.2 used memory is told with what the driver keeps for itself."""
    return kept([_card(found) for found in sections(texts[0], _BEGIN) if len(found) > 1])


def _card(found: dict[str, str]) -> Card:
    memory = "device mem info/"
    return Card(
        int(found[""]),
        _address(found),
        found.get("device info/dev name", ""),
        found.get("driver info/ver", ""),
        (found.get("device info/dev uuid", ""), found.get("device info/dev sn", "")),
        [*facts(found, *_FACTS), *_link(found)],
        (
            found.get(f"{memory}used size", found.get(f"{memory}mem usage")),
            found.get(f"{memory}total size", found.get(f"{memory}mem size")),
        ),
        health=found.get("device info/health", ""),
    )


def _link(found: dict[str, str]) -> list[Fact]:
    """Return what the link does: its keys stand below ``Link Info`` or beside it."""
    told = {name.rpartition("/")[2]: text for name, text in found.items() if name.startswith("pcie info/")}
    return [Fact(family, _LETTERS.sub("", told[name])) for name, family in _LINK if name in told]


def _address(found: dict[str, str]) -> str:
    parts = [found.get(f"pcie info/{name}", "") for name in ("domain", "bus", "dev", "func")]
    return address("{}:{}:{}.{}".format(*parts)) if all(parts) else ""


def parse_dmon(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of dmon, whose two lines of names begin with a star."""
    text = texts[0]
    heads = [line.lstrip("*").split() for line in text.splitlines() if line.startswith("*Dev")]
    if not heads or tuple(heads[0]) != _COLUMNS:
        return None
    rows = [dict(zip(_COLUMNS, cells, strict=True)) for line in text.splitlines() if len(cells := line.split()) == 11]
    return kept(
        [
            Card(
                int(row["Dev"]),
                facts=facts(
                    row,
                    ("DUsed", "utilization_ratio", (), PERCENT),
                    ("DTemp", "temperature_celsius", ("gpu",), 1.0),
                    ("Pwr", "power_watts", ("default",), 1.0),
                    ("Mclk", "clock_hertz", ("memory",), MEGA),
                ),
                memory=(None, row["Mem"]),
            )
            for row in rows
            if row["Dev"].isdecimal()
        ]
    )


def parse_table(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of the table: its memory is all there is; virtual functions share a serial number."""
    (text,) = texts
    if "EFSMI" not in text:
        return None
    driver = _DRIVER.search(text)
    return kept(
        [
            Card(
                int(row["index"]),
                address(row["bus"]),
                row["name"],
                driver[1] if driver else "",
                (row["serial"],),
                facts(
                    row,
                    ("use", "utilization_ratio", (), PERCENT),
                    ("heat", "temperature_celsius", ("gpu",), 1.0),
                    ("power", "power_watts", ("default",), 1.0),
                    ("cap", "power_limit_watts", (), 1.0),
                ),
                (None, row["total"]),
                MIB if row["unit"] == "MiB" else 1024 * MIB,
            )
            for row in table(text, _FIRST, _SECOND)
        ]
    )


TOOL = Tool(
    "enflame",
    "Enflame GCU",
    (
        Wording((("efsmi", "-q"),), parse),
        Wording((("efsmi", "--dmon", "-c", "1"),), parse_dmon),
        Wording((("efsmi",),), parse_table),
    ),
    ("/usr/local/efsmi",),
)


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL, runner)
