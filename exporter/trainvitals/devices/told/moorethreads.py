"""Moore Threads: ``mthreads-gmi -q --json``; else its table, which tells no power."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainvitals.devices import json_text
from trainvitals.devices.base import Vendor
from trainvitals.devices.told.base import PERCENT, Card, Tool, Wording, address, facts, kept, table
from trainvitals.devices.tools import MakeRun, Runner

_FIRST = re.compile(
    r"^(?P<index>\d{1,3})\s+(?P<model>MTT \S+)\s*\|\s*(?P<bus>[\da-fA-F:.]+)\s*\|\s*(?P<use>\S+?)%\s+"
    r"(?P<used>\d+)MiB\((?P<total>\d+)MiB\)"
)
_SECOND = re.compile(r"^\s*(?P<kind>\w[\w ]*?)\s*\|\s*(?P<width>\S+?)x\((?P<most>\S+?)x\)\s*\|\s*(?P<heat>\S+?)C\s")
_DRIVER = re.compile(r"Driver Version:\s*([\w.-]{1,32})")
_FACTS = (
    ("utilization/gpu", "utilization_ratio", (), PERCENT),
    ("temperature/gpu current temp", "temperature_celsius", ("gpu",), 1.0),
    ("power readings/power draw", "power_watts", ("default",), 1.0),
)


def parse(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of the JSON; one of its keys has a blank at its end."""
    document = json_text.find(texts[0])
    cards = document.get("GPU") if isinstance(document, dict) else None
    if not isinstance(cards, list):
        return None
    driver = json_text.word(document.get("Driver Version")) or ""
    found = [_flat(card) for card in cards if isinstance(card, dict)]
    return kept(
        [
            Card(
                int(card["index"]),
                address(card.get("pci/bus id", "")),
                card.get("product name", ""),
                driver,
                (card.get("gpu uuid", ""),),
                facts(card, *_FACTS),
                (card.get("fb memory usage/used"), card.get("fb memory usage/total")),
            )
            for card in found
            if card.get("index", "").isdecimal()
        ]
    )


def _flat(entry: Mapping[str, Any], path: str = "", depth: int = 0) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in entry.items():
        name = f"{path}{key.strip().lower()}"
        if isinstance(value, dict) and depth < 4:
            found |= _flat(value, f"{name}/", depth + 1)
        elif (text := json_text.word(value)) is not None:
            found[name] = text
    return found


def parse_table(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of the table."""
    (text,) = texts
    if "mthreads-gmi:" not in text:
        return None
    driver = _DRIVER.search(text)
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
                    ("width", "pcie_width", (), 1.0),
                    ("most", "pcie_max_width", (), 1.0),
                ),
                memory=(row["used"], row["total"]),
            )
            for row in table(text, _FIRST, _SECOND)
        ]
    )


TOOL = Tool(
    "moorethreads",
    "Moore Threads GPU",
    (Wording((("mthreads-gmi", "-q", "--json"),), parse), Wording((("mthreads-gmi",),), parse_table)),
)


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL, runner)
