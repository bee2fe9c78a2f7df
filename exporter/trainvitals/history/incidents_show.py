"""The account of ``trainvitals incidents`` in the terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import IO

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from trainvitals.history.costs import Account, groups
from trainvitals.history.reckon import CONFIDENCE, Mttf
from trainvitals.history.when import lasting, shown
from trainvitals.journal import Incident
from trainvitals.output import printable

_WIDTH = 120
#: What the parts of the time are called.
_BUCKETS = {
    "productive": "training that stayed",
    "repeated": "training done again",
    "data": "waiting for data",
    "checkpoint": "checkpoints",
    "evaluation": "evaluation",
    "start": "starting",
    "other": "other, or not told",
    "down": "no process",
}


def as_json(found: Account, by: str | None) -> str:
    """Return the account as one JSON document."""
    advices = {run: one._asdict() for run, one in found.by_run.items()}
    return json.dumps(
        {
            "runs": found.runs,
            "incidents": [asdict(one) for one in found.incidents],
            "groups": None if by is None else [asdict(one) for one in groups(found.incidents, by)],
            "wall_seconds": found.wall,
            "goodput_ratio": found.spent["productive"] / found.wall if found.wall > 0.0 else None,
            "spent_seconds": found.spent,
            "mttf": {**found.mttf._asdict(), "confidence": CONFIDENCE},
            "advice": advices,
        },
        indent=2,
    )


def show(found: Account, by: str | None, file: IO[str]) -> None:
    """Print the account."""
    width = None if file.isatty() else _WIDTH
    console = Console(file=file, highlight=False, markup=False, emoji=False, width=width)
    if not found.incidents:
        console.print(Text("No interruption in the journal.", style="green"))
    elif by is not None:
        console.print(_grouped(found, by))
    else:
        console.print(_listed(found.incidents, with_run=len(found.runs) > 1))
    if found.wall > 0.0:
        console.print()
        console.print(Text(_failing(found.mttf, len(found.incidents) - found.mttf.failures)))
        console.print(_spent(found))
    for run, one in found.by_run.items():
        console.print(
            Text(
                f"{printable(run)}: save every {lasting(one.better)} instead of every {lasting(one.present)}: a save"
                f" holds up the training for {lasting(one.cost)}, and {one.saving:.1%} of the time would be won"
                " (Young/Daly).",
                style="yellow",
            )
        )


def _listed(incidents: Sequence[Incident], *, with_run: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("detected", *(("run",) if with_run else ()), "cause", "where", "step", "lost", "back in", "decision"):
        is_text = name in {"decision", "where", "cause", "run"}
        justify: JustifyMethod = "left" if is_text or name == "detected" else "right"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=not is_text)
    for one in incidents:
        lost = "" if one.steps_lost is None else f"{one.steps_lost} steps"
        seconds = "" if one.seconds_lost is None else lasting(one.seconds_lost)
        cells = [
            shown(one.detected),
            *((one.run,) if with_run else ()),
            f"{one.cause.replace('_', ' ')}{f' ({one.category})' if one.category else ''}",
            place(one),
            "" if one.last_step is None else str(one.last_step),
            " / ".join(part for part in (lost, seconds) if part),
            lasting(one.seconds_to_recover),
            one.decision or one.text,
        ]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def place(one: Incident) -> str:
    """Return where an interruption was: node, device and rank as far as they are known."""
    device = f"device {one.device}" if one.device else ""
    rank = "" if one.rank is None else f"rank {one.rank}"
    return " ".join(part for part in (one.node, device, rank) if part)


def _grouped(found: Account, by: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(by)
    for name in ("times", "steps lost", "time lost", "time to recover", "last"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in groups(found.incidents, by):
        steps = "" if one.steps_lost is None else f"{one.steps_lost:,.0f}"
        costs = (str(one.count), steps, lasting(one.seconds_lost), lasting(one.seconds_to_recover), shown(one.last))
        table.add_row(Text(printable(one.name)), *costs)
    return table


def _failing(one: Mttf, wanted: int) -> str:
    """Say the mean time to failure with its interval; ``wanted`` interruptions are none."""
    more = f" ({wanted} more {'was' if wanted == 1 else 'were'} wanted)" if wanted else ""
    what = f"{one.failures} interruption{'s' * (one.failures != 1)}{more} in {lasting(one.seconds)} of work"
    if one.low is None:
        return what
    if one.mean is None:
        return f"{what}: the mean time to failure is above {lasting(one.low)} (95 %)"
    return f"{what}: mean time to failure {lasting(one.mean)} (95 %: {lasting(one.low)} to {lasting(one.high)})"


def _spent(found: Account) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    for name, seconds in found.spent.items():
        if seconds > 0.0:
            table.add_row(_BUCKETS[name], lasting(seconds), f"{seconds / found.wall:.1%}")
    table.add_row("wall time", lasting(found.wall), "100.0%", style="bold")
    return table
