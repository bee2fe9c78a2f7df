"""The detectors on real logs, where those are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.curves import Curve, read_folder, read_points
from benchmarks.detectors import watch

from trainvitals.detect.collapsed import LossCollapsed
from trainvitals.detect.diverged import LossDiverged
from trainvitals.detect.drift import LossDrift
from trainvitals.detect.gradient import GradientAnomaly
from trainvitals.detect.nonfinite import NonfiniteLoss
from trainvitals.detect.not_falling import LossNotFalling
from trainvitals.detect.plateau import Plateau
from trainvitals.detect.spike import LossSpike

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"
OF_THE_LOSS = (
    NonfiniteLoss, LossCollapsed, LossDiverged, LossSpike, LossDrift, GradientAnomaly, LossNotFalling, Plateau
)  # fmt: skip
#: Labels whose curves do not fall: there that is what should be found.
STUCK = ("plateau", "hardly_falls")
needs_logs = pytest.mark.skipif(not (FOLDER / "MANIFEST.tsv").exists(), reason=f"no logs in {FOLDER}")


@pytest.fixture(scope="module")
def curves() -> list[Curve]:
    """Give every curve of the folder."""
    return read_folder(FOLDER)


@needs_logs
def test_healthy_curves_have_no_finding(curves):
    """Not one in more than 100,000 points."""
    healthy = [curve for curve in curves if curve.healthy]
    assert sum(len(curve.points) for curve in healthy) > 100_000
    findings = {curve.file: watch(curve, [make() for make in OF_THE_LOSS]).evidence for curve in healthy}
    stuck = {curve.file for curve in healthy if curve.label in STUCK}
    assert {file: found for file, found in findings.items() if found and file not in stuck} == {}
    assert {signal for file in stuck for signal in findings[file]} <= {"loss_not_falling", "plateau"}


@needs_logs
def test_runs_that_are_stuck_from_their_beginning_are_found(curves):
    """All that have 20 points in 200 steps, and their beginning; here nothing tells which points are epochs."""
    stuck = [curve for curve in curves if curve.label in STUCK and len(curve.points) >= 20]
    seen = [curve for curve in stuck if curve.points[0][0] <= 50 and curve.points[-1][0] >= 200]
    missed = [curve.file for curve in seen if not watch(curve, [LossNotFalling()]).alarms]
    assert len(seen) >= 8
    assert missed == []


@needs_logs
def test_losses_that_go_up_and_stay_are_found(curves):
    """Of those with 60 points that do not come back."""
    diverged = [curve for curve in curves if curve.label == "divergence" and len(curve.points) >= 60]
    missed = [curve.file for curve in diverged if not watch(curve, [LossDiverged()]).alarms]
    assert len(diverged) >= 4
    assert len(missed) <= 1


@needs_logs
def test_nan_in_a_logged_loss_is_found_where_it_begins(curves):
    """In every curve in which a loss is not finite."""
    broken = {}
    for curve in curves:
        first = next((step for step, values in curve.points if values["loss"] - values["loss"] != 0.0), None)
        if first is not None:
            broken[curve.file] = (first, watch(curve, [NonfiniteLoss()]).findings["loss_nonfinite"][0][0])
    assert len(broken) > 15
    assert [file for file, (first, found) in broken.items() if first != found] == []


@needs_logs
def test_labelled_spikes_are_found(curves):
    """Those of curves that are long enough for a baseline; the smallest of five is too small for its noise."""
    labelled = [curve for curve in curves if curve.label == "spike" and len(curve.points) > 192]
    missed = [curve.file for curve in labelled if not watch(curve, [LossSpike()]).finds_event()]
    assert len(labelled) >= 5
    assert len(missed) <= 1


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "step:1/9 train_loss:2.5000 train_time:9ms\nstep:1/9 val_loss:3.0\n", [(1, {"loss": 2.5})]),
        ("a.txt", "s:3 trl:1.25\ns:3 tel:9\n", [(3, {"loss": 1.25})]),
        ("a.log", "iter 10: loss 9.5, time 3ms\n", [(10, {"loss": 9.5})]),
        (
            "a.out",
            " iteration       20/    1000 | learning rate: 3.750E-05 | lm loss: 1.2E+01 | grad norm: 2.5 |\n",
            [(20, {"loss": 12.0, "learning_rate": 3.75e-05, "grad_norm": 2.5})],
        ),
        (
            "a.log",
            "{'loss': 1.5, 'grad_norm': 7.5, 'learning_rate': 4e-06, 'epoch': 0.16}\n",
            [(1, {"loss": 1.5, "learning_rate": 4e-06, "grad_norm": 7.5})],
        ),
        ("a.csv", "step,lr,loss\n7,0.5,1.5\n8,0.5,\n", [(7, {"loss": 1.5, "learning_rate": 0.5})]),
        (
            "a.jsonl",
            '{"current_steps": 5, "loss": 1.5, "learning_rate": 0.25}\n',
            [(5, {"loss": 1.5, "learning_rate": 0.25})],
        ),
        (
            "trainer_state.json",
            '{"log_history": [{"step": 4, "loss": 1.5}, {"step": 4, "eval_loss": 2}]}',
            [(4, {"loss": 1.5})],
        ),
        ("a.txt", "nothing of the kind\n", []),
        ("a.json", "{broken", []),
    ],
)
def test_the_readers_read_what_they_claim_to(tmp_path, name, text, expected):
    """One line of each format, and what is no log."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert read_points(path) == expected
