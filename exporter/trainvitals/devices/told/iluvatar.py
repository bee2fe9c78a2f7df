"""Iluvatar CoreX: ``ixsmi --query-gpu``, whose names for power differ from version to version; else its table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainvitals.devices.base import Vendor
from trainvitals.devices.told.base import (
    MEGA,
    PERCENT,
    Card,
    Parse,
    Tool,
    Wording,
    address,
    facts,
    kept,
    lines_of_values,
    table,
)
from trainvitals.devices.tools import MakeRun, Runner

_ALWAYS = (
    *("index", "uuid", "name", "pci.bus_id", "memory.total", "memory.used", "utilization.gpu", "temperature.gpu"),
    *("clocks.current.sm", "clocks.current.memory"),
)
#: Power and its limit, in the newest wording first.
_POWERS = (
    ("gpu.power.draw", "gpu.current.power.limit"),
    ("gpu.power.draw", "gpu.power.limit"),
    ("power.draw", "power.limit"),
    (),
)
_FIRST = re.compile(
    r"^\|\s*(?P<index>\d{1,3})\s+(?P<name>Iluvatar \S+)\s*\|\s*(?P<bus>[\da-fA-F:.]+)\s*\|"
    r"\s*(?P<sm>\S+?)MHz\s+(?P<memory>\S+?)MHz\s*\|"
)
#: The cell of a dead card is cut: ``65535W / 250``.
_SECOND = re.compile(
    r"^\|\s*\S+\s+(?P<heat>\S+?)C\s+\S+\s+(?P<power>\S+?)W?\s*/\s*(?P<cap>\S+?)W?\s*\|"
    r"\s*(?P<used>\S+?)MiB\s*/\s*(?P<total>\S+?)MiB\s*\|\s*(?P<use>\S+?)%\s+\S+\s*\|"
)
_DRIVER = re.compile(r"Driver Version:\s*([\w.]{1,32})")


def _query(powers: Sequence[str]) -> Wording:
    names = (*_ALWAYS, *powers)
    command = ("ixsmi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits")
    return Wording((command,), parser(powers))


def parser(powers: Sequence[str]) -> Parse:
    """Return what reads the answer with these two names for power."""
    names = (*_ALWAYS, *powers)
    wanted = [
        ("utilization.gpu", "utilization_ratio", (), PERCENT),
        ("temperature.gpu", "temperature_celsius", ("gpu",), 1.0),
        ("clocks.current.sm", "clock_hertz", ("sm",), MEGA),
        ("clocks.current.memory", "clock_hertz", ("memory",), MEGA),
        *((name, family, labels, 1.0) for name, (family, labels) in zip(powers, _POWER_FAMILIES, strict=False)),
    ]

    def parse(texts: Sequence[str]) -> Sequence[Card] | None:
        return kept(
            [
                Card(
                    int(row["index"]),
                    address(row["pci.bus_id"]),
                    row["name"],
                    names=(row["uuid"],),
                    facts=facts(row, *wanted),
                    memory=(row["memory.used"], row["memory.total"]),
                )
                for row in lines_of_values(texts[0], names)
            ]
        )

    return parse


_POWER_FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (("power_watts", ("default",)), ("power_limit_watts", ()))


def parse_table(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of the table."""
    (text,) = texts
    if "IX-ML" not in text:
        return None
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
                    ("sm", "clock_hertz", ("sm",), MEGA),
                    ("memory", "clock_hertz", ("memory",), MEGA),
                ),
                memory=(row["used"], row["total"]),
            )
            for row in table(text, _FIRST, _SECOND)
        ]
    )


TOOL = Tool(
    "iluvatar",
    "Iluvatar CoreX",
    (*map(_query, _POWERS), Wording((("ixsmi",),), parse_table)),
    ("/usr/local/corex/bin",),
)


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL, runner)
