"""The result in the terminal: a row for each run, one for each signal, and the totals."""

from __future__ import annotations

from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainvitals.diagnose.backtest.score import Judged, Result, Row, Total
from trainvitals.diagnose.backtest.trial import Alarm, signals
from trainvitals.diagnose.terminal import WIDEST
from trainvitals.output import printable

#: Alarms of a run that are named, and runs without one up to which each has its row.
_NAMED, _IN_FULL = 4, 40
_STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}


def show(result: Result, file: IO[str]) -> None:
    """Print the result; colours only on a terminal."""
    console = Console(file=file, highlight=False, markup=False, emoji=False, width=None if file.isatty() else WIDEST)
    _runs(console, result)
    _signals(console, result)
    _totals(console, result)
    for path, why in sorted(result.problems.items()):
        console.print(Text(printable(f"{path}: {why}"), style="yellow"))
    broken = [row.trial for row in result.rows if row.trial.complaints]
    for trial in broken:
        text = f"{trial.name}: {len(trial.complaints)} internal errors: {trial.complaints[0]}"
        console.print(Text(printable(text), style="yellow"))
    if result.unscored:
        told = ", ".join(f"{printable(label)} ({count})" for label, count in result.unscored.most_common(12))
        console.print(Text(f"labels that no signal answers to, not scored: {told}", style="dim"))


def _table(*columns: str, left: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for number, name in enumerate(columns):
        is_text = number < left or number == len(columns) - 1
        table.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    return table


def _runs(console: Console, result: Result) -> None:
    rows = [row for row in result.rows if _speaks(row) or len(result.rows) <= _IN_FULL]
    if rows:
        table = _table("run", "steps", "rules", "defaults", "what the rules say, after which step")
        for row in rows:
            alarms = [str(len(judged.alarms)) for judged in (row.rules, row.defaults)]
            table.add_row(Text(printable(row.trial.name)), f"{row.trial.span:,}", *alarms, _told(row))
        console.print(table)
    if len(rows) < len(result.rows):
        console.print(Text(f"and {len(result.rows) - len(rows)} runs of which nothing was said or expected", "dim"))
    console.print()


def _speaks(row: Row) -> bool:
    return bool(len(row.rules.alarms) or len(row.defaults.alarms) or row.rules.answers)


def _told(row: Row) -> Text:
    text = Text()
    for number, alarm in enumerate(row.rules.alarms.kept[:_NAMED]):
        text.append(", " if number else "")
        text.append(_alarm(alarm), style=_STYLES[alarm.severity])
    rest = len(row.rules.alarms) - _NAMED
    text.append(f" and {rest} more" if rest > 0 else "")
    only = [alarm for alarm in row.defaults.alarms.kept if not _is_among(alarm, row.rules.alarms.kept)]
    if only:
        text.append("\n" if text else "")
        shown = ", ".join(_alarm(alarm) for alarm in only[:_NAMED])
        text.append(f"only by the defaults: {shown}{', ...' if len(only) > _NAMED else ''}", style="dim")
    words = _answers(row.rules)
    if row.label is not None and row.label.healthy and row.rules.false:
        words.append("labelled healthy")
    if words:
        text.append("\n" if text else "")
        text.append("; ".join(words), style="bold" if "missed" in "".join(words) else "")
    return text


def _alarm(alarm: Alarm) -> str:
    return f"{alarm.signal} {alarm.step:,}"


def _is_among(alarm: Alarm, others: tuple[Alarm, ...]) -> bool:
    """Whether others say the same at about the same time: of one signal, and one was on while the other was."""
    end = float("inf")
    return any(
        alarm.signal == other.signal
        and alarm.step <= (end if other.until is None else other.until)
        and other.step <= (end if alarm.until is None else alarm.until)
        for other in others
    )


def _answers(judged: Judged) -> list[str]:
    words = []
    for expected, alarm in judged.answers:
        at = "" if expected.step is None else f" at {expected.step:,}"
        if alarm is None:
            words.append(f"missed: {printable(expected.label)}{at}")
        elif expected.step is None:
            words.append(f"found: {printable(expected.label)}")
        else:
            words.append(f"found: {printable(expected.label)}{at}, delay {alarm.step - expected.step:,}")
    return words


def _signals(console: Console, result: Result) -> None:
    rules, defaults = result.rules.by_signal, result.defaults.by_signal
    if not rules and not defaults:
        return
    table = _table("signal", "rules", "defaults", "")
    for signal in signals():
        one, other = rules[signal], defaults[signal]
        if one or other:
            change = "" if one == other else f"{one - other:+,} by the rules"
            table.add_row(signal, f"{one:,}", f"{other:,}", change)
    console.print(table)
    console.print()


def _totals(console: Console, result: Result) -> None:
    table = _table("total", "rules", "defaults", "")
    one, other = result.rules, result.defaults
    table.add_row("alarms", f"{one.alarms:,}", f"{other.alarms:,}", f"of {len(result.rows):,} runs")
    table.add_row("alarms in 10,000 steps", f"{one.rate:.2f}", f"{other.rate:.2f}", f"of {one.steps:,} steps")
    table.add_row("runs with an alarm", f"{one.runs_with_alarms:,}", f"{other.runs_with_alarms:,}", "")
    if result.labelled:
        table.add_row("false alarms", f"{one.false:,}", f"{other.false:,}", "by the labels")
        rates = [_number(total.false_rate) for total in (one, other)]
        table.add_row("false alarms in 10,000 steps", *rates, f"of {one.judged_steps:,} labelled steps")
        table.add_row("found", f"{one.found:,}", f"{other.found:,}", f"of {one.expected:,} events")
        table.add_row("missed", f"{one.missed:,}", f"{other.missed:,}", "")
        table.add_row("delay in steps", _delay(one), _delay(other), "median")
    console.print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _delay(total: Total) -> str:
    return "" if total.delay is None else f"{total.delay:,.0f}"
