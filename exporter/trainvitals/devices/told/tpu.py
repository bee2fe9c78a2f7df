"""Google TPU: the tables of ``tpu-info``.  It tells memory and duty cycle, and only while a program uses the chips."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainvitals.devices.base import Vendor
from trainvitals.devices.told.base import PERCENT, Card, Fact, Tool, Wording, kept, table
from trainvitals.devices.tools import MakeRun, Runner

_GIB = 2.0**30
_CHIP = re.compile(
    r"^[|│┃]\s*(?:/dev/vfio/|/dev/accel)(?P<index>\d{1,3})\s*[|│┃]\s*(?P<model>TPU [\w ]+?)(?: chip)?\s*[|│┃]"
)
_USE = re.compile(
    r"^[|│┃]\s*(?P<index>\d{1,3})\s*[|│┃]\s*(?P<used>[\d.]+) GiB / (?P<total>[\d.]+) GiB\s*[|│┃]"
    r"\s*(?P<use>\S+?)%\s*[|│┃]"
)


def parse(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the chips; the duty cycle may be a little above 100 %, and then is 100."""
    (text,) = texts
    chips, used = table(text, _CHIP), {row["index"]: row for row in table(text, _USE)}
    cards = []
    for chip in chips:
        row = used.get(chip["index"], {})
        share = row.get("use", "")
        full = "100" if re.fullmatch(r"10[0-4]\.\d{1,4}", share) else share
        card = Card(
            int(chip["index"]),
            model=chip["model"],
            names=(f"tpu-{chip['index']}",),
            facts=[Fact("utilization_ratio", full, (), PERCENT)],
            memory=(row.get("used"), row.get("total")),
            memory_unit=_GIB,
        )
        cards.append(card)
    return kept(cards)


TOOL = Tool("tpu", "Google TPU", (Wording((("tpu-info",),), parse),))


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL, runner)
