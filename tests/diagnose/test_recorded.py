"""Runs by the rank files of the probe: ended, live, of several ranks and attempts."""

from __future__ import annotations

import json
import os

import pytest
from tests.diagnose.helpers import Said, report
from tests.helpers import run_trainer, trainer

from trainvitals.diagnose.command import main

TRAIN = """
import trainvitals
trainvitals.init()
for step in range(1, 301):
    trainvitals.step(step, loss=9.0 / step + {more}, learning_rate=0.01)
    if step % 100 == 0:
        trainvitals.evaluate(step, loss=2.5)
{end}
"""


def train(spool, *, more=0.0, end="trainvitals.finish()", **environment):
    """Train to the end of a script."""
    return run_trainer(TRAIN.format(more=more, end=end), spool, **environment)


def said(found, case=0):
    """Return state and evidence of the row about errors."""
    row = next(row for row in found.runs[case].signals if row.signal == "log_error")
    return row.state.value, row.evidence


@pytest.mark.parametrize("is_file", [False, True])
def test_a_run_that_ended(spool, is_file):
    """By its folder or its file: steps, results, and that it knows nothing of what was printed."""
    train(spool)
    (path,) = (path for path in spool.iterdir() if path.name.endswith(".rank"))

    found = report(path if is_file else spool, detectors=[lambda: Said("loss_spike", since=290)])

    (run,) = found.runs
    assert ("test", 300, 300, 1, True) == (
        run.case.name, run.case.steps, run.case.last.step, run.case.attempts, run.case.finished,
    )  # fmt: skip
    assert ("rank-file",) == run.case.formats
    assert 0.03 == pytest.approx(run.case.curves.loss.last)
    assert 3 == run.case.kinds["evaluation"]
    assert ("act", 290) == (run.signals[0].state.value, run.signals[0].since_step)
    assert ("cannot_say", "needs the text that the program prints") == said(found)


def test_a_process_that_died(spool):
    """A free lock without a word is a death."""
    train(spool, end="import os; os._exit(3)")

    assert ("act", "the process died without a word") == said(report(spool))


def test_a_process_that_failed(spool):
    """An exception is one as well."""
    train(spool, end="raise ValueError('x')")

    assert ("act", "the process ended with an exception") == said(report(spool))


def test_of_several_ranks_the_lowest_with_a_loss_is_heard(spool):
    """Files of the others are named."""
    train(spool, RANK="1", WORLD_SIZE="2", more=1.0)
    train(spool, RANK="0", WORLD_SIZE="2", more=2.0)

    (run,) = report(spool).runs

    assert (0, 2, 300, 1) == (run.case.identity.rank, len(run.case.paths), run.case.steps, run.case.attempts)
    assert 2.03 == pytest.approx(run.case.curves.loss.last)


def test_attempts_go_on_behind_each_other(spool):
    """Steps that go back are those of another attempt."""
    train(spool, end="import os; os._exit(3)")
    train(spool, TRAINVITALS_ATTEMPT="1")

    (run,) = report(spool).runs

    assert (600, 2, 1, True) == (run.case.steps, run.case.attempts, run.case.kinds["restart"], run.case.finished)


def test_a_live_run_by_its_name(spool, tmp_path, monkeypatch, capsys):
    """The name is looked for where the exporter looks, beside a log that has it not."""
    script = TRAIN.format(more=0.0, end="print('ready', flush=True); input()")
    (tmp_path / "a.csv").write_text("step,loss\n" + "".join(f"{n},2.0\n" for n in range(1, 30)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINVITALS_DIR", str(spool))
    with trainer(script, spool, TRAINVITALS_RUN="llama"):
        status = main(["llama", "a.csv", "--json", "-"])

    runs = {run["run"]: run for run in json.loads(capsys.readouterr().out)["runs"]}
    assert 0 == status
    assert {"llama": 300} == {name: run["steps"] for name, run in runs.items() if "rank-file" in run["formats"]}
    assert 2 == len(runs)


def test_a_name_that_nobody_has(spool, monkeypatch, capsys):
    """Is missing, as a path is."""
    train(spool)
    monkeypatch.setenv("TRAINVITALS_DIR", str(spool))

    assert 2 == main(["llama"])
    assert "llama: missing" in capsys.readouterr().err


def test_a_damaged_file_costs_itself(spool):
    """It is named, and the others are read."""
    train(spool)
    (spool / "odd.rank").write_bytes(b"x" * 5000)
    os.symlink("/etc/passwd", spool / "link.rank")

    found = report(spool)

    assert 1 == len(found.runs)
    assert {"odd.rank", "link.rank"} == {os.path.basename(path) for path in found.problems}
    assert "no rank file that can be read: magic" == found.problems[str(spool / "odd.rank")]


def test_a_log_of_the_same_name_is_another_run(spool, tmp_path, monkeypatch):
    """As in the exporter: neither is mixed into the other."""
    train(spool, TRAINVITALS_RUN="a")
    (tmp_path / "a.csv").write_text("step,loss\n" + "".join(f"{n},2.0\n" for n in range(1, 30)))
    monkeypatch.chdir("/")

    runs = {run.case.name: run.case.steps for run in report(spool, tmp_path).runs}

    assert {"a": 300, "a~2": 29} == runs
