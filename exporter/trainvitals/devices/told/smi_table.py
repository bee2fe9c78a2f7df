"""The table that several makers have taken over from nvidia-smi: two lines for a card, a third that nobody needs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainvitals.devices.told.base import PERCENT, Card, address, facts, kept, table

_FIRST = re.compile(
    r"^\|\s*(?P<index>\d{1,3})\s+(?P<name>\S.*?)\s+\S+\s*\|\s*(?P<bus>[\da-fA-F:.]+)\s+\S+\s*\|\s*(?P<ecc>\S+)\s*\|"
)
_SECOND = re.compile(
    r"^\|\s*\S+\s+(?P<heat>\S+?)C?\s+\S+\s+(?P<power>\S+?)W?\s*/\s*(?P<cap>\S+?)W?\s*\|"
    r"\s*(?P<used>\S+?)\s?(?:Mi[Bb])?\s*/\s*(?P<total>\S+?)\s?(?:Mi[Bb])?\s*\|\s*(?P<use>\S+?)%?\s+\S+\s*\|"
)
_DRIVER = re.compile(r"Driver Version:\s*(\S{1,48})")


def cards(text: str) -> Sequence[Card] | None:
    """Return the cards; None where there is none.  Whose table it is, its banner says."""
    driver = _DRIVER.search(text)
    return kept(
        [
            Card(
                int(row["index"]),
                address(row["bus"]),
                row["name"],
                driver[1] if driver else "",
                facts=facts(
                    row,
                    ("use", "utilization_ratio", (), PERCENT),
                    ("heat", "temperature_celsius", ("gpu",), 1.0),
                    ("power", "power_watts", ("default",), 1.0),
                    ("cap", "power_limit_watts", (), 1.0),
                    ("ecc", "ecc_errors_total", ("uncorrected",), 1.0),
                ),
                memory=(row["used"], row["total"]),
            )
            for row in table(text, _FIRST, _SECOND)
        ]
    )
