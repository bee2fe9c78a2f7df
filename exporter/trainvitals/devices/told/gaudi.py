"""Intel Gaudi: ``hl-smi -Q``, and its table where the version knows no such option."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.devices.base import Vendor
from trainvitals.devices.told import smi_table
from trainvitals.devices.told.base import PERCENT, Card, Tool, Wording, address, facts, kept, lines_of_values
from trainvitals.devices.tools import MakeRun, Runner

_ASKED = (
    *("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "power.draw", "power.max"),
    *("temperature.aip", "utilization.aip"),
)
_WITH_BUS = (*_ASKED, "bus_id")
_FACTS = (
    ("utilization.aip", "utilization_ratio", (), PERCENT),
    ("temperature.aip", "temperature_celsius", ("gpu",), 1.0),
    ("power.draw", "power_watts", ("default",), 1.0),
    ("power.max", "power_limit_watts", (), 1.0),
)


def _lines(text: str, names: Sequence[str]) -> Sequence[Card] | None:
    rows = lines_of_values(text, names)
    return kept(
        [
            Card(
                int(row["index"]),
                address(row.get("bus_id", "")),
                row["name"],
                row["driver_version"],
                (row["uuid"],),
                facts(row, *_FACTS),
                (row["memory.used"], row["memory.total"]),
            )
            for row in rows
            if row["name"].startswith("HL")
        ]
    )


def parse(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of ``hl-smi -Q``."""
    return _lines(texts[0], _ASKED)


def parse_with_bus(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of ``hl-smi -Q`` with their addresses."""
    return _lines(texts[0], _WITH_BUS)


def parse_table(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of the table, whose unit of memory is spelled in two ways."""
    return smi_table.cards(texts[0]) if "HL-SMI" in texts[0] else None


def _query(names: Sequence[str]) -> tuple[str, ...]:
    return ("hl-smi", "-Q", ",".join(names), "--format", "csv,noheader")


TOOL = Tool(
    "gaudi",
    "Intel Gaudi",
    (
        Wording((_query(_WITH_BUS),), parse_with_bus),
        Wording((_query(_ASKED),), parse),
        Wording((("hl-smi",),), parse_table),
    ),
)


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL, runner)
