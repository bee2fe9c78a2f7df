"""Shows what the checks found: to people, and as JSON to programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainvitals._version import __version__
from trainvitals.doctor.base import Outcome
from trainvitals.doctor.run import Row
from trainvitals.output import printable

_STYLES = {Outcome.OK: "green", Outcome.ABSENT: "dim", Outcome.PROBLEM: "bold red"}
#: Width of the column of names: on a terminal, where it is folded, and elsewhere.
_FOLDED_WIDTH, _NAME_WIDTH = 28, 40
_OUTCOME_WIDTH = max(len(outcome.value) for outcome in Outcome)
_INDENT = 2
#: What stands before an action.
_FIX, _ADVICE = "fix: ", "better: "


def is_sound(rows: Iterable[Row]) -> bool:
    """Say whether no check found a problem."""
    return all(row.result.outcome is not Outcome.PROBLEM for row in rows)


def as_json(rows: Sequence[Row]) -> str:
    """Return the results as one JSON document."""
    results = [
        {
            "group": row.group,
            "check": row.check,
            "subject": row.result.subject,
            "outcome": row.result.outcome.value.replace(" ", "_"),
            "why": row.result.why,
            "action": row.result.action,
        }
        for row in rows
    ]
    return json.dumps({"version": __version__, "sound": is_sound(rows), "results": results}, indent=2)


def show(rows: Sequence[Row], file: IO[str]) -> None:
    """Print the results by subject, and the problems last; colours and folding only on a terminal."""
    console = Console(file=file, highlight=False, soft_wrap=not file.isatty())
    sound = [row for row in rows if row.result.outcome is not Outcome.PROBLEM]
    for title, members in _sections(sound):
        _section(console, title, members)
    problems = [row for row in rows if row.result.outcome is Outcome.PROBLEM]
    if problems:
        _section(console, "Problems", problems)
    console.print(Text(_verdict(rows), style="bold"))


def _sections(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    for title, members in groupby(rows, key=lambda row: row.group):
        yield title, list(members)


def _section(console: Console, title: str, rows: Sequence[Row]) -> None:
    console.print(Text(title, style="bold"))
    if console.is_terminal:
        _on_terminal(console, rows)
    else:
        for line in _lines(rows):
            # As a Text: brackets in a path are no markup.
            console.print(Text(line))
    console.print()


def _on_terminal(console: Console, rows: Sequence[Row]) -> None:
    for row in rows:
        grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
        grid.add_column(width=_INDENT + _OUTCOME_WIDTH)
        grid.add_column(width=_FOLDED_WIDTH, overflow="fold")
        grid.add_column(ratio=1, overflow="fold")
        style = _STYLES[row.result.outcome]
        outcome = Text(" " * _INDENT + row.result.outcome.value, style=style)
        grid.add_row(outcome, Text(printable(row.name)), Text(printable(row.result.why)))
        console.print(grid)
        if row.result.action:
            start = Text(" " * (_INDENT + _OUTCOME_WIDTH + 2) + _prefix(row), style="dim")
            # Not folded: a command is there to be copied whole.
            console.print(start.append(printable(row.result.action), style="not dim cyan"), soft_wrap=True)


def _lines(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        start = f"{'':{_INDENT}}{row.result.outcome.value:<{_OUTCOME_WIDTH}}  {printable(row.name):<{_NAME_WIDTH}}  "
        yield start + printable(row.result.why)
        if row.result.action:
            yield f"{'':{_INDENT + _OUTCOME_WIDTH + 2 + _NAME_WIDTH + 2}}{_prefix(row)}{printable(row.result.action)}"


def _prefix(row: Row) -> str:
    return _FIX if row.result.outcome is Outcome.PROBLEM else _ADVICE


def _verdict(rows: Sequence[Row]) -> str:
    counts = {outcome: sum(row.result.outcome is outcome for row in rows) for outcome in Outcome}
    problems = counts[Outcome.PROBLEM]
    words = "nothing is broken" if not problems else "1 problem" if problems == 1 else f"{problems} problems"
    return f"{words}; {counts[Outcome.OK]} ok, {counts[Outcome.ABSENT]} not here"
