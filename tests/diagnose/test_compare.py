"""Several runs are compared where the shortest of them is, in tokens where those are known."""

from __future__ import annotations

import pytest
from tests.diagnose.helpers import report, table


def rising(start, tokens=None):
    """Return a maker of rows whose loss falls by 0.1 a step, from ``start``."""
    if tokens is None:
        return lambda n: f"{n},{start - 0.1 * n:.3f}"
    return lambda n: f"{n},{start - 0.1 * n:.3f},{tokens * (n + 1)}"


def test_runs_are_compared_at_equal_steps(tmp_path):
    """Without tokens: the loss around the last step of the shorter run."""
    table(tmp_path / "long.csv", 60, columns="step,loss", line=rising(9.0))
    table(tmp_path / "short.csv", 20, columns="step,loss", line=rising(8.0))

    found = report(tmp_path).comparison

    assert ("steps", 19.0) == (found.unit, found.at)
    # The median of the last eight points up to step 19, of which the middle is step 15.5.
    assert [("long", 19, 7.45), ("short", 19, 6.45)] == [
        (row.run, row.step, pytest.approx(row.loss)) for row in found.rows
    ]
    assert all(row.error > 0.0 for row in found.rows)


def test_runs_are_compared_at_equal_tokens(tmp_path):
    """A run with twice the batch is compared at half the steps, and the batch is named as a difference."""
    table(tmp_path / "big.csv", 40, columns="step,loss,total_tokens", line=rising(9.0, 2000))
    table(tmp_path / "small.csv", 40, columns="step,loss,total_tokens", line=rising(9.0, 1000))

    found = report(tmp_path).comparison

    assert ("tokens", 40_000.0) == (found.unit, found.at)
    assert {"big": 19, "small": 39} == {row.run: row.step for row in found.rows}
    assert ("tokens per step", ("2000", "1000")) in found.differences


def test_the_last_result_up_to_there_counts(tmp_path):
    """Validation results that the other run has no match for are left out."""
    table(tmp_path / "a.csv", 40)
    table(tmp_path / "b.csv", 25)

    rows = {row.run: row for row in report(tmp_path).comparison.rows}

    assert {"a": (20, 6.5), "b": (20, 6.5)} == {
        run: (row.validation_step, pytest.approx(row.validation)) for run, row in rows.items()
    }


def test_one_run_is_not_compared(tmp_path):
    """There is nothing to compare it with."""
    assert report(table(tmp_path / "a.csv")).comparison is None
