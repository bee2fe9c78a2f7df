"""The answer of ``trainvitals timeline`` on one screen, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainvitals.history.books import Story
from trainvitals.history.line import Answer, Row
from trainvitals.history.when import is_one_day, shown
from trainvitals.output import printable

_STYLES = {
    "finding": "bold red",
    "incident": "bold red",
    "error": "red",
    "log": "red",
    "device": "red",
    "kernel": "red",
    "data_error": "yellow",
    "over": "green",
    "end": "bold",
    "start": "bold",
    "change": "magenta",
    "restart": "magenta",
    "command": "cyan",
    "note": "cyan",
}
#: What is left out first where the room ends.
_LESS = (("phase",), ("evaluation",), ("checkpoint",), ("event",), ("log", "data_error"))
_OFTEN = frozenset({"phase", "evaluation", "checkpoint", "event"})
#: Seconds after which a run that ran may have ended unseen: it is written every minute.
_SILENT = 300.0
#: Lines of the screen that the answer above and the prompt below take; rows at least; and without a terminal.
_OTHERS, _LEAST, _WIDTH, _HEIGHT = 9, 8, 80, 40


def as_json(story: Story, answer: Answer, rows: Sequence[Row]) -> str:
    """Return all of it as one JSON document."""

    def one(row: Row | None) -> dict[str, Any] | None:
        return None if row is None else asdict(row)

    return json.dumps(
        {
            "run": story.run,
            "state": answer.state,
            "began": story.began,
            "seen": story.seen,
            "wrong_since": one(answer.onset),
            "also_on": [one(row) for row in answer.others],
            "over": [one(row) for row in answer.over],
            "before": [one(row) for row in answer.before],
            "rows": [one(row) for row in rows],
        },
        indent=2,
    )


def show(story: Story, answer: Answer, rows: Sequence[Row], file: IO[str], *, whole: bool, now: float) -> None:
    """Print the answer at a time of day; with ``whole`` all rows, else as many as fit."""
    width, height = (None, None) if file.isatty() else (_WIDTH, _HEIGHT)
    console = Console(file=file, highlight=False, markup=False, emoji=False, width=width, height=height)
    with_day = not is_one_day(story.began or 0.0, story.seen or 0.0)
    nodes = {row.node for row in answer.rows if row.node}
    console.print(_head(story, answer, now), no_wrap=True, overflow="ellipsis")
    _answer(console, answer, with_day=with_day, with_node=len(nodes) > 1)
    chosen, left = list(rows), 0
    if not whole:
        room = max(_LEAST, console.height - _OTHERS - len(answer.before) - len(answer.over))
        chosen, left = choose(gathered(rows), room, answer.onset)
    console.print()
    console.print(_table(chosen, console.width, with_day=with_day))
    if left or not whole:
        more = f"{left} more rows: " if left else ""
        console.print(Text(f"{more}--all shows every row, --since STEP or TIME those from there on", style="dim"))


def gathered(rows: Sequence[Row]) -> list[Row]:
    """Put rows of one kind, of those that come again and again, into the last of them where nothing else is between."""
    found: list[Row | None] = []
    #: Since the last row of another kind: how many there were of each, and the place of the last.
    often: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.kind not in _OFTEN:
            often.clear()
            found.append(row)
            continue
        times, place = often.get(row.kind, (0, 0))
        if times:
            found[place] = None
        often[row.kind] = (times + 1, len(found))
        found.append(replace(row, text=f"{times + 1} times, the last: {row.text}") if times else row)
    return [row for row in found if row is not None]


def choose(rows: Sequence[Row], room: int, onset: Row | None) -> tuple[list[Row], int]:
    """Return so many rows, and how many are left out: the least telling kinds go first, then what is far from onset."""
    chosen = list(rows)
    for kinds in _LESS:
        if len(chosen) > room:
            # Of each kind the newest stay that there is room for.
            others = sum(row.kind not in kinds for row in chosen)
            keep = {id(row) for row in [row for row in chosen if row.kind in kinds][-max(1, room - others) :]}
            chosen = [row for row in chosen if row.kind not in kinds or id(row) in keep]
    if len(chosen) > room:
        place = len(chosen) if onset is None else sum(row.time < onset.time for row in chosen)
        begin = max(0, min(place - room // 2, len(chosen) - room))
        chosen = chosen[begin : begin + room]
    return chosen, len(rows) - len(chosen)


def _head(story: Story, answer: Answer, now: float) -> Text:
    newest = max(story.runs, key=lambda one: one.seen, default=None)
    state = answer.state or "state unknown"
    # An exporter that is down, or a node, tells nothing more.
    is_old = state == "running" and now - (story.seen or now) > _SILENT
    parts = ["running when last seen" if is_old else state]
    steps = [one.step for one in story.runs if one.step is not None]
    if steps:
        target = f" of {newest.target:,}" if newest is not None and newest.target else ""
        parts.append(f"step {max(steps):,}{target}")
    nodes = sorted({*(one.node for one in story.runs), *(one.node for one in story.attempts)} - {""})
    if nodes:
        parts.append(", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""))
    if story.began is not None and story.seen is not None:
        until = shown(story.seen)[:-3]
        parts.append(f"{shown(story.began)[:-3]} to {until[6:] if is_one_day(story.began, story.seen) else until}")
    return Text.assemble((printable(story.run), "bold"), "  ", printable(" · ".join(parts)))


def _answer(console: Console, answer: Answer, *, with_day: bool, with_node: bool) -> None:
    def words(lead: str, row: Row) -> Text:
        return _words(lead, row, with_day=with_day, with_node=with_node)

    if answer.onset is not None:
        console.print(words("Wrong since", answer.onset))
        others = ", ".join(
            f"{_signal(row)}{'' if row.step is None else f' (step {row.step:,})'}" for row in answer.others
        )
        if others:
            console.print(Text(printable(f"Also on: {others}")), no_wrap=True, overflow="ellipsis")
    elif answer.over:
        console.print(Text("Nothing is wrong now; the last that was:", style="green"))
        for row in answer.over:
            console.print(words("  ", row), no_wrap=True, overflow="ellipsis")
    else:
        console.print(Text("Nothing went wrong, as far as the journal tells.", style="green"))
    if answer.before:
        console.print(Text("What came before it, the nearest first:"))
        for row in answer.before:
            console.print(words("  ", row), no_wrap=True, overflow="ellipsis")
    elif answer.onset is not None:
        console.print(Text("Nothing is known to have changed before it.", style="dim"))


def _signal(row: Row) -> str:
    since = "" if row.step is None else f" (step {row.step:,})"
    return str(row.details.get("signal", row.kind)).replace("_", " ") + since


def _words(lead: str, row: Row, *, with_day: bool, with_node: bool) -> Text:
    step = "" if row.step is None else f"step {row.step:,}, "
    place = _place(row if with_node else replace(row, node=""))
    place = f" [{place}]" if place else ""
    text = Text(lead if not lead.strip() else f"{lead} ", style="" if not lead.strip() else "bold red")
    text.append(f"{step}{shown(row.time, with_day=with_day)}: ", style="not bold")
    return text.append(printable(row.text) + place, style="not bold " + (_STYLES.get(row.kind, "").replace("bold", "")))


def _place(row: Row) -> str:
    ranks = f"rank{'s' * (len(row.ranks) > 1)} {_ranks(row.ranks)}" if row.ranks else ""
    return printable(", ".join(part for part in (row.node, ranks) if part))


def _ranks(ranks: Sequence[int]) -> str:
    """Return "0-3,7": runs of ranks as one."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    told = [str(first) if first == last else f"{first}-{last}" for first, last in parts]
    return ",".join(told[:4]) + (",..." if len(told) > 4 else "")


def _table(rows: Sequence[Row], width: int, *, with_day: bool) -> Table:
    cells = [
        (
            shown(row.time, with_day=with_day),
            "" if row.step is None else str(row.step),
            _ranks(row.ranks),
            printable(row.kind.replace("_", " ")),
        )
        for row in rows
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    names = ("time", "step", "rank", "kind")
    widths = [max(len(name), *(len(row[place]) for row in cells), 0) for place, name in enumerate(names)]
    for name, wide in zip(names, widths, strict=True):
        table.add_column(name, width=wide, justify="right" if name == "step" else "left", no_wrap=True)
    rest = max(20, width - sum(widths) - len(widths))
    table.add_column("what", width=rest, no_wrap=True, overflow="ellipsis")
    for row, (moment, step, ranks, kind) in zip(rows, cells, strict=True):
        style = _STYLES.get(row.kind, "")
        table.add_row(moment, step, ranks, Text(kind, style=style), Text(printable(row.text)))
    return table
