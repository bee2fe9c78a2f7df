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

#: Where there is no terminal: room for a line, and so often the gauges.
_PLAIN_WIDTH = 120
_PLAIN_SECONDS = 10.0
#: So many runs fit at the bottom.
_MAX_RUNS = 4
_BAR_WIDTH = 28


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

    def message(self, message: Message) -> None:
        """Print a message that arrived; firing is red, resolved is green."""
        firing = message.status != "resolved"
        color = "red" if firing else "green"
        title = Text(f" {message.channel}: {message.status.upper()} ", style=f"bold {color}")
        body = Text(message.subject, style="bold")
        for line in message.lines:
            label, colon, rest = line.partition(": ")
            body.append("\n")
            body.append(f"{label}{colon}", style="dim" if colon and len(label) < 12 else "")
            body.append(rest)
        self._print(Panel(body, title=title, title_align="left", border_style=color, padding=(0, 1)))

    def gauges(self, runs: Sequence[Vitals]) -> None:
        """Show how the runs are now."""
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            with contextlib.suppress(OSError):
                self._live.update(_bottom(runs), refresh=True)
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


def _bottom(runs: Sequence[Vitals]) -> RenderableType:
    if not runs:
        return Text(
            "\nNo run yet.  A training that calls trainvitals.init() and trainvitals.step() appears here.", style="dim"
        )
    parts: list[RenderableType] = []
    for vitals in runs[:_MAX_RUNS]:
        grid = Table.grid(padding=(0, 2))
        for _ in range(3):
            grid.add_column(no_wrap=True)
        for name in GAUGES:
            value = vitals.gauges.get(name)
            if value is not None:
                bar = ProgressBar(total=1.0, completed=value, width=_BAR_WIDTH, complete_style=_color(name, value))
                grid.add_row(Text(name, style="bold"), bar, f"{value:4.0%}")
        title = Text.assemble((f" {vitals.run} ", "bold"), (" · ".join(_number_words(vitals)) + " ", ""))
        color = "red" if vitals.alerts else "dim"
        parts.append(Panel(grid, title=title, title_align="left", border_style=color, padding=(0, 1), expand=False))
    if len(runs) > _MAX_RUNS:
        parts.append(Text(f"and {len(runs) - _MAX_RUNS} runs more", style="dim"))
    return Group(*parts)


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
    return [*words, *(f"ALERT {name}" for name in sorted(vitals.alerts))]
