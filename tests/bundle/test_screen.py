"""What a person sees."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from trainvitals.bundle.screen import Row, Screen
from trainvitals.bundle.sinks import Message
from trainvitals.bundle.vitals import Vitals

DEMO = Vitals(
    "demo",
    {"progress": 0.3, "learning": 0.0, "health": 1.0},
    {"step": 2431.0, "target_steps": 8000.0, "loss": math.nan, "learning_rate": 0.1},
    ["TrainvitalsLossSpike", "TrainvitalsLossNonfinite"],
)
MESSAGE = Message(
    channel="e-mail", status="firing", subject="The loss is NaN", lines=("Where: run=demo", "no label"), short="NaN!"
)


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        """Return the time that was set."""
        return self.now


def make(terminal=False, clock=None):
    """Return a screen and a function that returns what was printed since."""
    file = io.StringIO()
    console = Console(
        file=file,
        width=100,
        height=25,
        force_terminal=terminal,
        highlight=False,
        color_system=None,
        legacy_windows=False,
    )

    def printed():
        text = file.getvalue()
        file.seek(0)
        file.truncate()
        return text

    return Screen(console, clock or Clock()), printed


def test_the_table_says_what_is_where():
    """Every address and every note is in it."""
    screen, printed = make()
    screen.addresses([Row("Exporter", "http://127.0.0.1:1", "port 2 was taken"), Row("Data", "/x")], "Ctrl-C stops.")
    text = printed()
    for part in ("Exporter", "http://127.0.0.1:1", "port 2 was taken", "Data", "/x", "Ctrl-C stops."):
        assert part in text


def test_a_line_is_folded_beside_its_speaker():
    """Time, speaker, text; brackets are no markup."""
    screen, printed = make()
    screen.line("training", "[bold]step 1[/] " + "word " * 30)
    first, second, *_ = printed().split("\n")
    assert first[8:].startswith("  training      [bold]step 1[/] word")
    assert second.startswith(" " * 24 + "word")


def test_an_address_stays_in_one_piece():
    """A folded address could not be opened."""
    screen, printed = make()
    screen.link("Curve", "http://127.0.0.1/" + "x" * 200)
    assert printed().splitlines()[0] == "Curve: http://127.0.0.1/" + "x" * 200


def test_a_message_says_channel_state_subject_and_lines():
    """In full, and in one line."""
    screen, printed = make()
    screen.message(MESSAGE)
    text = printed()
    for part in ("e-mail: FIRING", "The loss is NaN", "Where: run=demo", "no label"):
        assert part in text
    screen.message(MESSAGE, short=True)
    assert printed()[8:].rstrip() == "  e-mail        FIRING NaN!"


def test_without_a_terminal_the_gauges_are_a_line_now_and_then():
    """Every ten seconds, with what is known."""
    clock = Clock()
    screen, printed = make(clock=clock)
    screen.gauges([DEMO])
    assert printed() == ""
    clock.now = 10.0
    screen.gauges([DEMO])
    text = " ".join(printed()[8:].split())
    assert text == (
        "demo progress 30%, learning 0%, health 100%, step 2,431 of 8,000, loss NaN, learning rate 0.1, "
        "ALERT TrainvitalsLossNonfinite, TrainvitalsLossSpike"
    )
    screen.gauges([DEMO])
    assert printed() == ""


@pytest.mark.parametrize("runs", [[], [DEMO], [Vitals("empty", {})], [DEMO] * 10])
def test_on_a_terminal_the_gauges_stay_at_the_bottom(runs):
    """They are drawn at once, whatever is known, and are gone at the end."""
    screen, printed = make(terminal=True)
    screen.gauges(runs)
    text = printed()
    if not runs:
        assert "No run yet" in text
    for run in runs[:2]:
        assert run.run in text
    assert ("and 8 runs more" in text) == (len(runs) == 10)
    screen.line("training", "above")
    assert "above" in printed()
    screen.stop_gauges()
    screen.stop_gauges()


def test_a_terminal_that_is_gone_is_no_error():
    """Nothing that is printed may keep us from stopping."""

    class Gone(io.StringIO):
        def write(self, _text):
            raise OSError(5, "Input/output error")

    screen = Screen(Console(file=Gone(), force_terminal=True, width=80), Clock())
    screen.line("training", "x")
    screen.gauges([DEMO])
    screen.message(MESSAGE)
    screen.stop_gauges()
