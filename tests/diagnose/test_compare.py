"""Several runs are compared where the shortest of them is, in tokens where those are known."""

from __future__ import annotations

import io
import json
import random

import pytest
from tests.diagnose.helpers import report, table

from trainvitals.diagnose.document import as_json
from trainvitals.diagnose.page import as_html
from trainvitals.diagnose.terminal import show


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


# The noise floor, and what differs -----------------------------------------------------------------------------------


def noisy(path, seed, level=3.0, rows=400, spread=0.05):
    """Write a table whose loss falls to a level, with noise of its own."""
    chance = random.Random(seed)
    lines = (f"{n},{level + 2.0 / (1 + n / 20) + chance.gauss(0.0, spread):.5f}" for n in range(rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["step,loss", *lines]) + "\n")
    return path


def test_a_difference_within_the_noise_is_none(tmp_path):
    """Two runs of one level; without a word on seeds the noise within them is the floor, and is said to be."""
    noisy(tmp_path / "a.csv", 1)
    noisy(tmp_path / "b.csv", 2)

    found = report(tmp_path).comparison

    assert found.rows[0].verdict == ""
    # Medians of 20 points of which each is off by 0.05: 0.014, twice that of a difference: 0.04.
    assert 0.02 < found.rows[1].floor < 0.08
    assert found.rows[1].verdict == f"b: no difference to a beyond the noise ({found.rows[1].floor:.2g})"
    assert "within the runs; between runs with other seeds it is larger" == found.noise
    assert "nothing is known to differ; no setting is known of a, b, so more may differ" == found.checked


def test_a_difference_beyond_the_noise_is_said(tmp_path):
    """With its size."""
    noisy(tmp_path / "a.csv", 1)
    noisy(tmp_path / "b.csv", 2, level=2.5)

    row = report(tmp_path).comparison.rows[1]

    assert row.difference == pytest.approx(-0.5, abs=0.05)
    assert row.verdict == f"b is better than a by {-row.difference:.3g} (noise {row.floor:.2g})"


def test_seeds_make_the_floor_where_they_are_known(tmp_path):
    """Three seeds of one configuration, 0.03 apart: a fourth run that is better by 0.03 is not said to be better."""
    for name, seed, level, rate in (("a", 1, 3.0, 0.1), ("b", 2, 3.03, 0.1), ("c", 3, 2.97, 0.1), ("d", 1, 2.97, 0.2)):
        noisy(tmp_path / name / "metrics.csv", seed, level, spread=0.001)
        (tmp_path / name / "hparams.yaml").write_text(f"seed: {seed}\noptim:\n  lr: {rate}\noutput_dir: /out/{name}\n")

    found = report(tmp_path).comparison

    assert "between 3 runs that differ by nothing but their seed" == found.noise
    # A standard deviation of 0.03, two degrees of freedom: 4.3 * sqrt(2) * 0.03.
    assert [0.182, 0.182, 0.182] == [pytest.approx(row.floor, abs=0.004) for row in found.rows[1:]]
    assert "no difference" in found.rows[3].verdict
    assert ("optim.lr",) == tuple(found.variables)
    assert "one variable differs: optim.lr" == found.checked
    assert ("optim.lr", ("0.1", "0.1", "0.1", "0.2")) in found.differences
    assert ("seed", ("1", "2", "3", "1")) in found.differences
    assert not any(name == "output_dir" for name, _ in found.differences)


def test_more_than_one_variable_is_said(tmp_path):
    """Nobody can tell which of them made the difference."""
    for name, rate, size in (("a", 0.1, 8), ("b", 0.2, 16)):
        noisy(tmp_path / name / "metrics.csv", 1)
        (tmp_path / name / "args.json").write_text(json.dumps({"lr": rate, "batch": size, "seed": 1}))

    found = report(tmp_path).comparison

    assert "2 variables differ (lr, batch): a difference of the loss cannot be laid to one of them" == found.checked
    assert not found.unknown


def test_seeds_alone(tmp_path):
    """Said as such; two of them make a wide floor."""
    for name, seed in (("a", 1), ("b", 2)):
        noisy(tmp_path / name / "metrics.csv", seed)
        (tmp_path / name / "args.json").write_text(json.dumps({"lr": 0.1, "seed": seed}))

    found = report(tmp_path).comparison

    assert "nothing but the seed differs, as far as is known" == found.checked
    assert "no difference" in found.rows[1].verdict


def test_a_file_of_settings_between_two_logs_belongs_to_none(tmp_path):
    """It may be that of either."""
    noisy(tmp_path / "a.csv", 1)
    noisy(tmp_path / "b.csv", 2)
    (tmp_path / "args.json").write_text('{"lr": 0.1}')

    assert ("a", "b") == tuple(report(tmp_path).comparison.unknown)


def test_the_comparison_is_shown(tmp_path):
    """In the terminal, in JSON and on the page."""
    for name, rate, size, level in (("a", 0.1, 8, 3.0), ("b", 0.2, 16, 2.5)):
        noisy(tmp_path / name / "metrics.csv", 1, level)
        (tmp_path / name / "args.json").write_text(json.dumps({"lr": rate, "batch": size}))
    made = report(tmp_path)
    out = io.StringIO()

    show(made, out)

    for text in (out.getvalue(), as_html(made)):
        assert "is better than" in text
        assert "2 variables differ (lr, batch): a difference of the loss cannot be laid to one of them" in text
        assert "0.2" in text
    document = json.loads(as_json(made))["comparison"]
    assert ["lr", "batch"] == document["variables"]
    assert document["rows"][1]["difference"] == pytest.approx(-0.5, abs=0.01)
    assert document["noise"].startswith("within the runs")
