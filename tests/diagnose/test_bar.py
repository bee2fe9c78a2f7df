"""The progress bar: for people who wait, and for nobody else."""

from __future__ import annotations

import io

from tests.diagnose.helpers import table

from trainvitals import detect
from trainvitals.diagnose import bar
from trainvitals.diagnose.bar import Bar
from trainvitals.diagnose.read import read


class Terminal(io.StringIO):
    """Standard error, as a person sees it."""

    def isatty(self):
        """Say so."""
        return True


def test_a_bar_comes_after_a_second_on_a_terminal(monkeypatch):
    """It is taken away at the end."""
    out = Terminal()
    shown = Bar(out)
    shown(1, 4)
    assert "" == out.getvalue()

    monkeypatch.setattr(bar, "_PATIENCE", 0.0)
    shown(2, 4)
    shown.close()

    assert "reading" in out.getvalue()


def test_a_pipe_gets_no_bar(monkeypatch):
    """However long it takes."""
    monkeypatch.setattr(bar, "_PATIENCE", 0.0)
    out = io.StringIO()
    shown = Bar(out)

    shown(1, 4)
    shown.close()

    assert "" == out.getvalue()


def test_progress_is_told_in_bytes(tmp_path):
    """What was read and how much there is; at the end both are the size of the log."""
    path = table(tmp_path / "train.csv", 70_000, line=lambda n: f"{n},2.0,,0.01")
    told = []

    read([str(path)], lambda: detect.build()[:1], progress=lambda done, total: told.append((done, total)))

    size = path.stat().st_size
    assert [size] * len(told) == [total for _, total in told]
    assert size == told[-1][0]
    assert len(told) > 1
