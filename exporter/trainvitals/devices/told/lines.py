"""Vendors of which only one command with values between commas is known: T-Head, Biren."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainvitals.devices.plausible import number
from trainvitals.devices.told.base import PERCENT, Card, Parse, Tool, Wording, address, facts, kept, lines_of_values

#: What the names of both makers mean.
_FACTS = (
    ("utilization.ppu", "utilization_ratio", (), PERCENT),
    ("temperature.ppu", "temperature_celsius", ("gpu",), 1.0),
    ("temperature.gpu", "temperature_celsius", ("gpu",), 1.0),
    ("power.draw", "power_watts", ("default",), 1.0),
)
_THEAD = ("gpu_bus_id", "name", "utilization.ppu", "temperature.ppu", "power.draw", "memory.used", "memory.total")
_BIREN = ("index", "name", "memory.used", "memory.free", "serial", "temperature.gpu")
_BIREN_SHORT = _BIREN[:4]


def parser(names: Sequence[str]) -> Parse:
    """Return what reads lines with these values, in this order."""

    def parse(texts: Sequence[str]) -> Sequence[Card] | None:
        rows = [
            row for row in lines_of_values(texts[0], names) if "gpu_bus_id" not in row or address(row["gpu_bus_id"])
        ]
        return kept([_card(place, row) for place, row in enumerate(rows)])

    return parse


def _card(place: int, row: Mapping[str, str]) -> Card:
    return Card(
        int(row.get("index", place)),
        address(row.get("gpu_bus_id", "")),
        row["name"],
        names=(row.get("serial", ""),),
        facts=facts(row, *_FACTS),
        memory=(row.get("memory.used"), row.get("memory.total", _sum(row))),
    )


def _sum(row: Mapping[str, str]) -> str:
    """Return used and free memory together; a mark where one is none."""
    parts = [number(row.get(name, "")) for name in ("memory.used", "memory.free")]
    return "N/A" if None in parts else str(sum(part for part in parts if part is not None))


THEAD = Tool(
    "thead",
    "T-Head PPU",
    (Wording((("ppu-smi", f"--query-ppu={','.join(_THEAD)}", "--format=csv,noheader"),), parser(_THEAD)),),
    ("/usr/local/PPU_SDK/bin",),
)
BIREN = Tool(
    "biren",
    "Biren GPU",
    tuple(
        Wording((("brsmi", "gpu", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"),), parser(names))
        for names in (_BIREN, _BIREN_SHORT)
    ),
)
