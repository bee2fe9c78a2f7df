"""What a person sees of ``up``: one table, lines as things happen, and at the bottom the gauges.

On a terminal the gauges stay at the bottom and move; elsewhere they are a line every now and then.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainvitals.bundle.sinks import Message
from trainvitals.bundle.vitals import GAUGES, Vitals

#: Longer lines are hard to read; and so much room there is where there is no terminal.
_PLAIN_WIDTH = 120
#: Without a terminal, the gauges are a line so often.
_PLAIN_SECONDS = 10.0
#: So many runs are shown at most, and so many lines each takes.
_MAX_RUNS = 4
_RUN_HEIGHT = 6
_BAR_WIDTH = 28
_LONGEST_LABEL = 12


@dataclass(frozen=True)
class Row:
    """A row of the table of addresses."""

    title: str
    address: str
    note: str = ""


class Screen:
    """Everything that ``up`` prints.  ``clock`` gives monotonic time."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(highlight=False)
        if console is None and not self._console.is_terminal:
            self._console.width = max(self._console.width, _PLAIN_WIDTH)
        self._clock = clock
        self._live: Live | None = None
        self._next_plain = clock() + _PLAIN_SECONDS

    def addresses(self, rows: Sequence[Row], footer: str) -> None:
        """Print the one table."""
        table = Table(box=box.ROUNDED, border_style="dim", show_header=False, padding=(0, 1))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(style="cyan", overflow="fold")
        table.add_column(style="dim")
        for row in rows:
            table.add_row(row.title, row.address, row.note)
        self._print(Padding(Group(table, Text(footer, style="dim")), (1, 0), expand=False))

    def line(self, who: str, text: str, style: str = "") -> None:
        """Print what somebody has to say, with the time of day."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(style="bold", no_wrap=True, min_width=12)
        grid.add_column()
        grid.add_row(time.strftime("%H:%M:%S"), who, Text(text, style=style))
        self._print(grid)

    def link(self, what: str, url: str) -> None:
        """Print an address in one piece, however long, so that a terminal can open it."""
        with contextlib.suppress(OSError):
            self._console.print(Text.assemble((f"{what}: ", "dim"), (url, "cyan"), "\n"), soft_wrap=True)

    def message(self, message: Message, *, short: bool = False) -> None:
        """Print a message that arrived, or in ``short`` one line of it; firing is red, resolved is green."""
        color = "green" if message.status == "resolved" else "red"
        if short:
            self.line(message.channel, f"{message.status.upper()} {message.short}", style=color)
            return
        body = Text(message.subject, style="bold")
        for line in message.lines:
            label, colon, rest = line.partition(": ")
            is_label = bool(colon) and len(label) <= _LONGEST_LABEL
            body.append(f"\n{label}{colon}", style="dim not bold" if is_label else "not bold")
            body.append(rest, style="not bold")
        width = min(self._console.width, _PLAIN_WIDTH)
        title = Text(f"{message.channel}: {message.status.upper()}", style=f"bold {color}")
        self._print(Panel(body, title=title, title_align="left", border_style=color, padding=(0, 1), width=width))

    def gauges(self, runs: Sequence[Vitals]) -> None:
        """Show how the runs are now."""
        if self._console.is_terminal:
            with contextlib.suppress(OSError):
                if self._live is None:
                    self._live = Live(console=self._console, auto_refresh=False, transient=True)
                    self._live.start()
                # Half of a low window is for what scrolls above.
                limit = max(1, min(_MAX_RUNS, self._console.height // 2 // _RUN_HEIGHT))
                self._live.update(_bottom(runs, limit), refresh=True)
        elif self._clock() >= self._next_plain:
            self._next_plain = self._clock() + _PLAIN_SECONDS
            for vitals in runs[:_MAX_RUNS]:
                self.line(vitals.run, ", ".join([*_gauge_words(vitals), *_number_words(vitals)]))

    def stop_gauges(self) -> None:
        """Leave the bottom of the terminal as it was."""
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def _print(self, what: RenderableType) -> None:
        # A terminal that was closed is no reason to leave children behind.
        with contextlib.suppress(OSError):
            self._console.print(what)


def _bottom(runs: Sequence[Vitals], limit: int) -> RenderableType:
    if not runs:
        return Text(
            "\nNo run yet.  A training that calls trainvitals.init() and trainvitals.step() appears here.", style="dim"
        )
    parts: list[RenderableType] = [_panel(vitals) for vitals in runs[:limit]]
    if len(runs) > limit:
        parts.append(Text(f"and {len(runs) - limit} runs more", style="dim"))
    # The terminal echoes ^C where the cursor is: on a line of its own it breaks nothing.
    return Group(*parts, Text(""))


def _panel(vitals: Vitals) -> RenderableType:
    """Return the gauges of a run on the left, and what else is to say on the right."""
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    words = _number_words(vitals)
    for row, name in enumerate(GAUGES):
        value = vitals.gauges.get(name)
        bar = (
            ""
            if value is None
            else ProgressBar(completed=value, total=1.0, width=_BAR_WIDTH, complete_style=_color(name, value))
        )
        number = "" if value is None else f"{value:4.0%}"
        # The last row takes all that is left.
        beside = ", ".join(words[row:] if row == len(GAUGES) - 1 else words[row : row + 1])
        grid.add_row(Text(name, style="bold"), bar, number, Text(beside, style="bold red" if "ALERT" in beside else ""))
    color = "red" if vitals.alerts else "dim"
    title = Text(vitals.run, style="bold")
    return Panel(grid, title=title, title_align="left", border_style=color, padding=(0, 1), expand=False)


def _color(gauge: str, value: float) -> str:
    if gauge == "progress":
        return "cyan"
    return "green" if value >= 0.8 else "yellow" if value >= 0.5 else "red"


def _gauge_words(vitals: Vitals) -> list[str]:
    return [f"{name} {vitals.gauges[name]:.0%}" for name in GAUGES if name in vitals.gauges]


def _number_words(vitals: Vitals) -> list[str]:
    numbers, words = vitals.numbers, []
    if "step" in numbers:
        of = f" of {numbers['target_steps']:,.0f}" if "target_steps" in numbers else ""
        words.append(f"step {numbers['step']:,.0f}{of}")
    if "loss" in numbers:
        words.append("loss NaN" if math.isnan(numbers["loss"]) else f"loss {numbers['loss']:.3g}")
    if "learning_rate" in numbers:
        words.append(f"learning rate {numbers['learning_rate']:.3g}")
    if vitals.alerts:
        words.append("ALERT " + ", ".join(sorted(vitals.alerts)))
    return words
