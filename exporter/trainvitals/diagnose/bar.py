"""The progress bar on standard error, for what takes longer than a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE = 1.0


class Bar:
    """Called with what was read and how much there is, in bytes; only on a terminal does it show anything."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._begun = time.monotonic()
        self._shown: tuple[Progress, TaskID] | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show how far it is."""
        if not self._is_terminal or (self._shown is None and time.monotonic() - self._begun < _PATIENCE):
            return
        if self._shown is None:
            from rich.console import Console  # noqa: PLC0415  Most calls are over before.
            from rich.progress import Progress  # noqa: PLC0415  As above.

            bar = Progress(console=Console(file=self._out), transient=True)
            bar.start()
            self._shown = bar, bar.add_task("reading", total=total)
        bar, task = self._shown
        bar.update(task, completed=done, total=total)

    def close(self) -> None:
        """Take it away."""
        if self._shown is not None:
            self._shown[0].stop()
            self._shown = None
