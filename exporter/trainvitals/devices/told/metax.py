"""MetaX: the table of ``mx-smi``, in its two layouts; without it, the columns of ``mx-smi dmon``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainvitals.devices.base import Vendor
from trainvitals.devices.told.base import PERCENT, Card, Tool, Wording, address, facts, kept, lines_of_values, table
from trainvitals.devices.tools import MakeRun, Runner

_BUS = r"(?P<bus>[\da-fA-F]{4}:[\da-fA-F:.]+)"
_POWER = r"(?P<power>[\d.]+|\S+?)W?\s*/\s*(?P<cap>\S+?)W?"
_MEMORY = r"(?P<used>\d+)/(?P<total>\d+) MiB"
#: Name first; the temperature leads the second line.  GPU-State is there from 2.2 on.
_FIRST = re.compile(
    rf"^\|?\s*(?P<index>\d{{1,3}})\s+(?P<model>MetaX \S+|MX\S+)\s*\|?\s*{_BUS}\s*\|?\s*(?P<use>\S+?)%?\s*\|?$"
)
_SECOND = re.compile(rf"^\|?\s*(?P<heat>\S+?)C\s+{_POWER}\s*\|?\s*{_MEMORY}\s*\|?\s*(?P<state>[A-Za-z]*)\s*\|?$")
#: Board first; power leads the second line.  Each die is a GPU of a board.
_BOARD = re.compile(
    rf"^\|?\s*(?P<board>\d{{1,3}})\s+(?P<model>MetaX \S+)\s*\|?\s*(?P<index>\d{{1,3}})\s+\S+\s*\|?\s*{_BUS}\s+"
    r"(?P<use>\S+?)%?\s*\|?\s+\S+\s*\|?$"
)
_BELOW = re.compile(
    rf"^\|?\s*{_POWER}\s*\|?\s+(?P<heat>\S+?)C\s+\S+\s*\|?\s+{_MEMORY}\s*\|?\s+(?P<state>[A-Za-z]*)\s*\|?$"
)
_DRIVER = re.compile(r"Kernel Mode Driver Version:\s*([\d.]{1,32})")
_FACTS = (
    ("use", "utilization_ratio", (), PERCENT),
    ("heat", "temperature_celsius", ("gpu",), 1.0),
    ("power", "power_watts", ("default",), 1.0),
    ("cap", "power_limit_watts", (), 1.0),
)
_DMON = (
    *("index", "die", "hottemp", "soctemp", "coretemp", "power", "gpu", "vpue", "vpud"),
    *("visvram", "vram", "xtt", "total", "bdfid"),
)


def parse(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of the table.  ``GPU-State`` other than Available is a card that cannot be used."""
    (text,) = texts
    if "mx-smi" not in text and "MX-SMI" not in text:
        return None
    driver = _DRIVER.search(text)
    return kept(
        [
            Card(
                int(row["index"]),
                address(row["bus"]),
                row["model"],
                driver[1] if driver else "",
                facts=facts(row, *_FACTS),
                memory=(row["used"], row["total"]),
                health=row["state"],
            )
            for row in table(text, _FIRST, _SECOND) or table(text, _BOARD, _BELOW)
        ]
    )


def parse_dmon(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of dmon: no bytes, for it tells shares of rounded sizes; dies of one card are one line each."""
    rows = [row for row in lines_of_values(texts[0], _DMON) if row["die"] == "0" and address(row["bdfid"])]
    return kept(
        [
            Card(
                int(row["index"]),
                address(row["bdfid"]),
                facts=facts(
                    row,
                    ("gpu", "utilization_ratio", (), PERCENT),
                    ("hottemp", "temperature_celsius", ("gpu",), 1.0),
                    ("power", "power_watts", ("default",), 1.0),
                ),
            )
            for row in rows
        ]
    )


_ASK_DMON = (
    "--show-temperature",
    "--show-board-power",
    "--show-usage",
    "--show-memory",
    "--total-memory",
    "--show-bdf",
)
TOOL = Tool(
    "metax",
    "MetaX GPU",
    (
        Wording((("mx-smi",),), parse),
        Wording((("mx-smi", "dmon", *_ASK_DMON, "--format", "csv", "-c", "1"),), parse_dmon),
    ),
    ("/opt/mxdriver/bin", "/opt/maca/bin"),
)


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL, runner)
