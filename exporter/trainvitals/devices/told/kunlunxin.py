"""Kunlunxin XPU: ``xpu-smi -q``, the line for each chip of ``xpu-smi -m``, or its table.

Intel has a program of this name.  So the answer must be one of Kunlunxin's, and its cards must be on the bus as such.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from trainvitals.devices.base import Vendor
from trainvitals.devices.told import smi_table
from trainvitals.devices.told.base import PERCENT, Card, Fact, Tool, Wording, address, facts, kept, sections
from trainvitals.devices.tools import MakeRun, Runner

_BEGIN = re.compile(r"^XPU ([\da-fA-F:.]{7,20})\s*$")
_DRIVER = re.compile(r"^Driver Version\s*:\s*(\S{1,32})\s*$", re.MULTILINE)
_FACTS = (
    ("utilization/xpu", "utilization_ratio", (), PERCENT),
    ("temperature/xpu current temp", "temperature_celsius", ("gpu",), 1.0),
    ("power readings/power draw", "power_watts", ("default",), 1.0),
    ("power readings/enforced power limit", "power_limit_watts", (), 1.0),
    ("clocks/cluster", "clock_hertz", ("sm",), 1e6),
    ("ecc errors/volatile/dram correctable", "ecc_errors_total", ("corrected",), 1.0),
    ("ecc errors/volatile/dram uncorrectable", "ecc_errors_total", ("uncorrected",), 1.0),
    ("ecc errors/aggregate/dram correctable", "ecc_lifetime_errors_total", ("corrected",), 1.0),
    ("ecc errors/aggregate/dram uncorrectable", "ecc_lifetime_errors_total", ("uncorrected",), 1.0),
)
#: Fields of a line of ``-m``: 32 of them, with quotes around what holds a blank.
_FIELDS = 32
_ADDRESS, _DEVICE, _SERIAL, _HEAT, _MEMORY_HEAT, _POWER, _USED, _TOTAL, _USE, _MODEL = 0, 2, 3, 4, 6, 8, 17, 18, 19, 21


def parse(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of ``-q``: chips of one board share a serial number, so their addresses name them."""
    (text,) = texts
    if "XPUSMI LOG" not in text:
        return None
    driver = _DRIVER.search(text)
    return kept(
        [
            Card(
                place,
                address(found[""]),
                found.get("product name", ""),
                driver[1] if driver else "",
                (found.get("serial number", ""),),
                facts(found, *_FACTS),
                (found.get("memory usage/used"), found.get("memory usage/total")),
            )
            for place, found in enumerate(sections(text, _BEGIN))
        ]
    )


def parse_lines(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of ``-m``; a chip that computes beyond itself (103 %) is said to compute all the time."""
    cards = []
    for line in texts[0].splitlines():
        try:
            found = shlex.split(line)
        except ValueError:
            continue
        if len(found) == _FIELDS and found[_DEVICE].isdecimal() and address(found[_ADDRESS]):
            cards.append(
                Card(
                    int(found[_DEVICE]),
                    address(found[_ADDRESS]),
                    found[_MODEL],
                    names=(found[_SERIAL],),
                    facts=[
                        Fact("utilization_ratio", _at_most_all(found[_USE]), (), PERCENT),
                        Fact("temperature_celsius", found[_HEAT], ("gpu",)),
                        Fact(
                            "temperature_celsius",
                            "" if found[_MEMORY_HEAT] == "0" else found[_MEMORY_HEAT],
                            ("memory",),
                        ),
                        Fact("power_watts", found[_POWER], ("default",)),
                    ],
                    memory=(found[_USED], found[_TOTAL]),
                )
            )
    return kept(cards)


def parse_table(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of the table."""
    return smi_table.cards(texts[0]) if "XPU-RT Version" in texts[0] else None


def _at_most_all(text: str) -> str:
    """Return a share; the tool's help gives 0 to 103."""
    return "100" if text in {"101", "102", "103"} else text


TOOL = Tool(
    "kunlunxin",
    "Kunlunxin XPU",
    (
        Wording((("xpu-smi", "-q"),), parse),
        Wording((("xpu-smi", "-m"),), parse_lines),
        Wording((("xpu_smi", "-m"),), parse_lines),
        Wording((("xpu-smi",),), parse_table),
    ),
    ("/usr/local/xpu/bin",),
    needs_address=True,
)


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL, runner)
