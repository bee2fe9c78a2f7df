"""What ``up`` says once everything runs: where it is, what is missing, and how to get that."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Sequence

from trainvitals.bundle.process import get
from trainvitals.bundle.screen import Row, Screen
from trainvitals.host import programs

_STORY = "A small model starts to train.  After 45 seconds its learning rate rises until the loss breaks.\n"


def addresses(screen: Screen, rows: Sequence[Row], *, demo: bool) -> None:
    """Print the table of addresses, and in a demo what is going to happen."""
    screen.addresses(rows, _STORY * demo + "Ctrl-C stops everything.")


def curve(screen: Screen, prometheus: str) -> None:
    """Name a page that draws the loss, on a Prometheus by its URL; Debian's builds of Prometheus 3 have no pages."""
    url = f"{prometheus}/graph?g0.expr=trainvitals_loss&g0.tab=0&g0.range_input=5m"
    with contextlib.suppress(OSError):
        get(url)
        screen.link("The curve of the loss", url)


def missing(screen: Screen, found: Sequence[programs.Program]) -> None:
    """Say which programs are missing, what is not there without them, and how to get them."""
    for program in found:
        screen.line("trainvitals", f"{program.title} is not on PATH: {program.without}.", style="yellow")
    if found:
        screen.line("trainvitals", programs.how_to_get(list(found), programs.system(_os_release())))


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}
