"""Odd steps that several runs share are in the data, and the check-up of both says so."""

from __future__ import annotations

from tests.detect.helpers import noise
from tests.diagnose.helpers import report, table

from trainvitals.detect.recurring import RecurringOutlier
from trainvitals.diagnose.signals import State


def run(path, *odd, seed, rows=400):
    """Write a run whose loss is odd at some steps."""
    values = noise(rows, level=3.0, sigma=0.03, seed=seed)
    for step in odd:
        values[step] += 1.5
    return table(path, rows, columns="step,loss", line=lambda n: f"{n},{values[n]:.4f}")


def rows(*paths):
    """Return the row about outliers of each run, by its name."""
    return {
        found.case.name: row
        for found in report(*paths, detectors=(RecurringOutlier,)).runs
        for row in found.signals
        if row.signal == "outlier_recurs"
    }


def test_a_step_that_is_odd_in_two_runs_is_data(tmp_path):
    """Both runs are to be watched, by name and step, and a third that is not odd there is not."""
    for name, seed, odd in (("a", 1, (250, 310)), ("b", 2, (310,)), ("c", 3, (350,))):
        run(tmp_path / f"{name}.csv", *odd, seed=seed)

    found = rows(tmp_path)

    assert [State.watch, State.watch, State.fine] == [found[name].state for name in "abc"]
    assert ("info", 310) == (found["a"].severity, found["a"].since_step)
    assert found["a"].evidence == "step 310 is odd in run b too: with one order of the data, it is in the data"
    assert found["b"].evidence.startswith("step 310 is odd in run a too")
    assert found["a"].action.startswith("data: ")


def test_several_steps_are_listed(tmp_path):
    """The first is where it began."""
    run(tmp_path / "a.csv", 200, 310, seed=1)
    run(tmp_path / "b.csv", 200, 310, seed=2)

    assert rows(tmp_path)["b"].evidence.startswith("steps 200, 310 are odd in run a too")


def test_one_run_in_two_files_is_no_witness(tmp_path):
    """The very same numbers tell nothing new."""
    run(tmp_path / "a.csv", 310, seed=1)
    run(tmp_path / "b.csv", 310, seed=1)

    assert {State.fine} == {row.state for row in rows(tmp_path).values()}


def test_coincidence_of_many_is_chance(tmp_path):
    """Where one step in ten is odd, some are so in both."""
    run(tmp_path / "a.csv", *range(150, 390, 10), seed=1)
    run(tmp_path / "b.csv", *range(145, 390, 7), seed=2)

    assert {State.fine} == {row.state for row in rows(tmp_path).values()}
