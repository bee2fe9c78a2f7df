"""nanoGPT, llama2.c and nanochat: values, splits, checkpoints, times."""

from __future__ import annotations

import math
import time

import pytest
from tests.follow.helpers import LOGS, curve, items_of, rows_of

from trainvitals.follow.base import Facts
from trainvitals.telemetry import Event

FOLDER = LOGS / "nanogpt"


def local(text):
    """Return the wall time of a local time."""
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


def test_steps_with_times_that_somebody_added():
    """Loss, seconds and MFU of each step; NaN stays NaN, and an MFU that is not known yet is left out."""
    rows = rows_of(FOLDER / "with_times.log")

    assert [row.step for row in rows] == [0, 10, 20]
    assert rows[0].values == {"loss": 10.8377, "step_seconds": pytest.approx(29.11408)}
    assert rows[1].values == {
        "loss": 9.712,
        "step_seconds": pytest.approx(0.48125),
        "mfu": pytest.approx(0.314),
    }
    assert math.isnan(rows[2].values["loss"])
    assert [row.time for row in rows] == [
        local("2025-02-11 08:14:31"),
        local("2025-02-11 08:14:36"),
        local("2025-02-11 08:14:41"),
    ]


def test_evaluations_and_checkpoints():
    """The line of both losses is an evaluation, and no step; a checkpoint has its path and its time."""
    path = FOLDER / "with_times.log"
    (row,) = rows_of(path, "validation")
    (saved,) = [item for item in items_of(path) if isinstance(item, Event)]

    assert (row.step, row.values) == (0, {"loss": 10.839, "train_loss": 10.8412})
    assert saved == Event(
        local("2025-02-11 08:14:44"), "checkpoint", -1, {"action": "save", "ok": True, "path": "out-tiny"}
    )


def test_before_there_was_an_mfu():
    """Lines of 2022 end with the time; infinity stays what it is."""
    rows = rows_of(FOLDER / "old.log")

    assert curve(rows, "loss") == {0: 4.2141, 1: 3.9902, 2: math.inf}
    assert curve(rows, "step_seconds") == {0: 2.1317, 1: pytest.approx(0.04512), 2: pytest.approx(0.04487)}
    assert all("mfu" not in row.values and row.time is None for row in rows)


def test_llama2c():
    """Its lines tell the learning rate."""
    rows = rows_of(FOLDER / "llama2c.log")

    assert curve(rows, "loss") == {40: 7.1033, 50: 6.6254}
    assert curve(rows, "learning_rate") == {40: 2e-05, 50: 2.5e-05}
    assert curve(rows, "mfu") == {50: pytest.approx(0.2418)}


def test_nanochat():
    """Its lines tell the last step, tokens a second and the norm of the gradient."""
    path = FOLDER / "nanochat.log"
    rows = rows_of(path)

    assert rows[1].values == {
        "loss": 10.871204,
        "grad_norm": 1.25,
        "learning_rate_multiplier": 0.95,
        "step_seconds": pytest.approx(0.6114),
        "tokens_per_second": 857521.0,
        "mfu": pytest.approx(0.456),
    }
    assert {item.target_steps for item in items_of(path) if isinstance(item, Facts)} == {820}
    assert [(row.step, row.values) for row in rows_of(path, "validation")] == [(0, {"bpb": 3.3041})]
