"""The report in the terminal: a table for each run, then what differs between runs."""

from __future__ import annotations

import math
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainvitals.diagnose.compare import Comparison
from trainvitals.diagnose.curves import Curve
from trainvitals.diagnose.report import Report, RunReport
from trainvitals.diagnose.signals import LOG_ERROR, Signal, State
from trainvitals.output import printable

_STYLES = {State.fine: "green", State.watch: "yellow", State.act: "bold red", State.cannot_say: "dim"}
_WORDS = {State.cannot_say: "cannot say"}
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60
#: Where there is no terminal.
WIDEST = 140
#: Runs of which each row is shown; of more, only the findings are.
_IN_FULL = 12
_MOST_SHOWN = 24


def show(report: Report, file: IO[str]) -> None:
    """Print the report; colours only on a terminal."""
    console = Console(file=file, highlight=False, markup=False, emoji=False, width=None if file.isatty() else WIDEST)
    in_full = len(report.runs) <= _IN_FULL
    for run in report.runs:
        _show_run(console, run, in_full=in_full)
    if report.comparison is not None:
        _compare(console, report.comparison)
    for path, why in sorted(report.problems.items()):
        console.print(Text(printable(f"{path}: {why}"), style="yellow"))
    if len(report.runs) > 1:
        console.print(Text(_total(report), style="bold"))


def _show_run(console: Console, run: RunReport, *, in_full: bool) -> None:
    case = run.case
    console.print(Text.assemble((printable(case.name), "bold"), "  ", (_word(run.state), _STYLES[run.state])))
    console.print(Text("  " + _read_what(run), style="dim"))
    rows = [row for row in run.signals if in_full or row.is_finding]
    if in_full:
        for name, curve in _curves(run):
            console.print(Text(f"  {name:<10} {sparkline(curve)}  {_ends(curve)}"))
    if rows:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
        table.add_column("state", no_wrap=True)
        table.add_column("signal", no_wrap=True)
        table.add_column("since", justify="right", no_wrap=True)
        table.add_column("what is known", overflow="fold")
        for row in rows:
            since = "" if row.since_step is None else f"{row.since_step:,}"
            table.add_row(Text(_word(row.state), style=_STYLES[row.state]), row.signal, since, _told(row))
        console.print(table)
    console.print()


def _read_what(run: RunReport) -> str:
    case = run.case
    steps = "no step" if case.last is None else f"{case.steps:,} steps, the last {case.last.step:,}"
    if case.identity.target_steps:
        steps += f" of {case.identity.target_steps:,}"
    parts = [
        f"{len(case.paths)} files" if len(case.paths) > 1 else ", ".join(case.paths),
        ", ".join(case.formats) or "format not known",
        case.identity.framework,
        steps,
        f"{case.attempts} attempts" if case.attempts > 1 else "",
        f"{case.kinds['evaluation']:,} evaluations" if case.kinds["evaluation"] else "",
        f"{case.causes.total():,} errors" if case.causes else "",
        f"{case.bad:,} lines made no sense" if case.bad else "",
        f"{len(case.complaints)} internal errors: {case.complaints[0]}" if case.complaints else "",
    ]
    return printable("; ".join(part for part in parts if part))


def _told(row: Signal) -> Text:
    text = Text(printable(row.evidence or row.title))
    if row.is_finding and row.severity != "warning":
        text.append(f" ({row.severity})")
    if row.signal == LOG_ERROR and row.location:
        text.append(f"; {printable(row.location)}")
    if row.changes:
        text.append(f"\nbefore it: {printable('; '.join(row.changes))}", style="dim")
    if row.gated:
        text.append(f"\nleft out: {printable(row.gated)}", style="dim")
    if row.action and row.is_finding:
        text.append(f"\n{printable(row.action)}", style="bold")
    return text


def _curves(run: RunReport) -> list[tuple[str, Curve]]:
    curves = run.case.curves
    found = [("loss", curves.training["loss"]), ("validation", curves.validation or Curve())]
    return [(name, curve) for name, curve in found if len(curve) > 1]


def sparkline(curve: Curve, width: int = _WIDTH) -> str:
    """Return the curve in one line: medians of pieces, from the lowest to the highest of them."""
    medians = curve.medians(width)
    if not medians:
        return ""
    low, high = min(medians), max(medians)
    span = high - low
    if span == 0.0 or not math.isfinite(span):
        return _BARS[0] * len(medians)
    return "".join(_BARS[min(7, int((value - low) / span * 8))] for value in medians)


def _ends(curve: Curve) -> str:
    finite = [value for value in curve.values if math.isfinite(value)]
    return f"{finite[0]:.4g} to {finite[-1]:.4g}" if finite else "no number"


def _compare(console: Console, found: Comparison) -> None:
    console.print(Text(f"Compared at {found.at:,.0f} {found.unit}", style="bold"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for name in ("run", "step", "loss", "error", "to the first", "noise", "validation", "at"):
        table.add_column(name, justify="left" if name == "run" else "right", no_wrap=name != "run", overflow="fold")
    for row in found.rows:
        numbers = (row.loss, row.error, row.floor, row.validation)
        loss, error, floor, validation = ("" if number is None else f"{number:.4g}" for number in numbers)
        difference = "" if row.difference is None else f"{row.difference:+.4g}"
        at = "" if row.validation_step is None else f"{row.validation_step:,}"
        table.add_row(Text(printable(row.run)), f"{row.step:,}", loss, error, difference, floor, validation, at)
    console.print(table)
    console.print(Text(f"noise: {found.noise}; error: of the loss, by the noise within the run"))
    for row in found.rows[:_IN_FULL]:
        if row.verdict:
            console.print(Text(printable(row.verdict), style="bold"))
    console.print(Text(printable(found.checked), style="bold yellow" if len(found.variables) > 1 else ""))
    if found.differences and len(found.rows) <= _IN_FULL:
        console.print(_differences(found))
    console.print()


def _differences(found: Comparison) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("differs", overflow="fold")
    for row in found.rows:
        table.add_column(Text(printable(row.run)), overflow="fold")
    for name, values in found.differences[:_MOST_SHOWN]:
        table.add_row(Text(printable(name)), *(Text(printable(value) or "not known") for value in values))
    return table


def _total(report: Report) -> str:
    counts = {state: sum(run.state is state for run in report.runs) for state in State}
    return ", ".join(f"{_word(state)}: {count}" for state, count in counts.items() if count)


def _word(state: State) -> str:
    return _WORDS.get(state, state.value)
