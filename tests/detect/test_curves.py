"""The detectors on real logs, where those are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.curves import Curve, read_folder, read_points
from benchmarks.detectors import watch

from trainvitals.detect import build

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"
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
    findings = {curve.file: result.evidence for curve in healthy if (result := watch(curve, build())).alarms}
    assert findings == {}


@needs_logs
def test_nan_in_a_logged_loss_is_found_where_it_begins(curves):
    """In every curve in which a loss is not finite."""
    broken = {}
    for curve in curves:
        first = next((step for step, values in curve.points if values["loss"] - values["loss"] != 0.0), None)
        if first is not None:
            broken[curve.file] = (first, watch(curve, build()).findings["loss_nonfinite"][0][0])
    assert len(broken) > 15
    assert [file for file, (first, found) in broken.items() if first != found] == []


@needs_logs
def test_labelled_spikes_are_found(curves):
    """Those of curves that are long enough for a baseline; the smallest of five is too small for its noise."""
    labelled = [curve for curve in curves if curve.label == "spike" and len(curve.points) > 192]
    missed = [curve.file for curve in labelled if not watch(curve, build()).finds_event()]
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
