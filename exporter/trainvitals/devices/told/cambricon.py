"""Cambricon MLU: the table of ``cnmon``.

Two lines for a card.  The column Mode was SR-IOV before; what cannot be read is ``N/A``, at any place of its column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainvitals.devices.base import Vendor
from trainvitals.devices.told.base import PERCENT, Card, Tool, Wording, address, facts, kept, table
from trainvitals.devices.tools import MakeRun, Runner

_FIRST = re.compile(
    r"^\|\s*(?P<index>\d{1,3})\s+(?P<vf>\S+)\s+(?P<model>\S.*?)\s+(?P<firmware>v\S+)\s*\|\s*(?P<bus>[\da-fA-F:.]+)\s*\|"
    r"\s*(?P<use>\S+?)%?\s+(?P<ecc>\S+)\s*\|"
)
_SECOND = re.compile(
    r"^\|\s*(?P<fan>\S+?)%?\s+(?P<heat>\S+?)C?\s+(?P<power>\S+) W/\s*(?P<cap>\S+) W\s*\|"
    r"\s*(?P<used>\S+) MiB/\s*(?P<total>\S+) MiB\s*\|"
)
_DRIVER = re.compile(r"\bDriver v?(\S{1,32})\s*\|")


def parse(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of the table.  The physical function of a card has ``/`` as its VF; others are parts of it."""
    (text,) = texts
    driver = _DRIVER.search(text)
    if "CNMON" not in text:
        return None
    return kept(
        [
            Card(
                int(row["index"]),
                address(row["bus"]),
                row["model"],
                driver[1] if driver else "",
                facts=facts(
                    row,
                    ("use", "utilization_ratio", (), PERCENT),
                    ("heat", "temperature_celsius", ("gpu",), 1.0),
                    ("power", "power_watts", ("default",), 1.0),
                    ("cap", "power_limit_watts", (), 1.0),
                ),
                memory=(row["used"], row["total"]),
            )
            for row in table(text, _FIRST, _SECOND)
            if row["vf"] == "/"
        ]
    )


TOOL = Tool("cambricon", "Cambricon MLU", (Wording((("cnmon",),), parse),), ("/usr/local/neuware/bin",))


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL, runner)
