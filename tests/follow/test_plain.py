"""What people print themselves, and Keras' bars."""

from __future__ import annotations

import math

import pytest
from tests.follow.helpers import LOGS, items_of

from trainvitals.follow.base import NO, Facts, Row
from trainvitals.follow.formats import choose
from trainvitals.follow.formats.plain import Pairs, Plain


def rows_of(path):
    """Return all rows of a fixture."""
    return [item for item in items_of(LOGS / path) if isinstance(item, Row)]


def test_steps_go_on_over_epochs():
    """A tutorial's step begins anew in each epoch; the target is that of all of them."""
    rows = rows_of("plain/tutorial.log")

    assert [row.step for row in rows] == [100, 200, 300, 400, 500]
    assert [row.values["loss"] for row in rows[:4]] == [2.3, 2.1, 1.9, 1.8]
    assert math.isnan(rows[4].values["loss"])
    assert Facts(target_steps=600) in items_of(LOGS / "plain/tutorial.log")


def test_the_finer_count_is_the_step():
    """Litgpt counts batches and optimizer steps; a unit behind a number is converted."""
    assert rows_of("plain/litgpt.log") == [
        Row(1, {"loss": 10.825, "step_seconds": 0.1985}),
        Row(2, {"loss": 10.75, "step_seconds": 0.21575}),
        Row(3, {"loss": 10.625, "step_seconds": 0.19825}),
    ]


def test_results_beside_the_loss_are_results():
    """The epoch is the step where there is no other, and dev and test are splits."""
    assert rows_of("plain/epochs.log")[:3] == [
        Row(7, {"loss": 88.5, "train_f1": 0.4375}),
        Row(7, {"f1": 0.425}, split="validation"),
        Row(7, {"f1": 0.45}, split="test"),
    ]


def test_an_epoch_may_stand_in_a_line_of_its_own():
    """The losses below it are those of the epoch."""
    rows = rows_of("plain/headings.log")

    assert [(row.step, row.split, row.values["loss"]) for row in rows] == [
        (1, "", 5.75),
        (1, "validation", 5.875),
        (2, "", 5.5),
        (2, "validation", 5.625),
    ]


def test_bars_with_a_loss():
    """A bar of an epoch counts its batches; that of a validation is a result of the newest step."""
    rows = rows_of("plain/bars.log")

    assert [(row.step, row.split) for row in rows] == [(450, ""), (900, ""), (None, "validation"), (1800, "")]


def test_words_of_paddleseg():
    """Times have names of ours; whether the 500 are those of an epoch or of the run is not said."""
    row, second = items_of(LOGS / "plain/paddleseg.log")

    assert row._replace(time=None) == Row(
        20,
        {
            "loss": 2.0625,
            "learning_rate": 0.00965,
            "step_seconds": 0.525,
            "data_seconds": 0.0725,
            "ips": 3.75,
            "epoch": 1.0,
        },
    )
    assert second.step == 40
    assert second.time - row.time == 10.0


@pytest.mark.parametrize(
    "text",
    [
        "loss_fn = CrossEntropyLoss()\nfor step in range(10):\n    loss = loss_fn(x)\n    epoch += 1\n",
        "Epoch 1/3\nEpoch 2/3\nEpoch 3/3\n",
        "2025-03-04 05:06:07 step took 3.5 s, weight loss across epochs\nsee step 3 of the guide, section 1.2.3\n",
        "Loss of signal at 12:30:45 in step 7a\nLoss of signal at 12:30:55 in step 7b\n",
        "step 5 loss 0.5\n",
        "version 1 8.0\nbuild 2 9.0\n",
    ],
)
def test_prose_and_code_are_no_log(text):
    """A guess needs a step and a loss in words, twice, and steps that rise."""
    assert choose(text.encode(), "out.txt") == (None, NO)


def test_the_forms_that_people_use():
    """One line each; the step is 30 and the loss 0.5 in all of them."""
    for line in (
        "step 30 loss 0.5",
        "Step 30: loss=0.5000, lr=1e-4",
        "[30/500] step: 30, loss: 0.5",
        "INFO:root:iteration 30 | loss = 0.5 | 12.5 it/s",
        "it 30 train loss 0.5",
        "Iter: 30/500, Total Loss: 0.5",
        "epoch=30 train_loss=0.5",
        "step:30 ce_loss:0.5",
    ):
        (row,) = [item for item in Plain().parser().feed(line) if isinstance(item, Row)]
        assert (row.step, row.values["loss"]) == (30, 0.5), line


def test_pairs():
    """Nothing but a step and a number."""
    rows = rows_of("pairs/losses.txt")

    assert [row.step for row in rows] == [1, 2, 3, 4]
    assert rows[0].values == {"loss": 8.0625}
    assert math.isnan(rows[2].values["loss"])
    assert Pairs().sniff(b"3 0.5\n2 0.5\n1 0.5\n", "x") == NO


def test_keras_2():
    """Batches are counted over the epochs; what stands behind val_ is a result; the step has its time."""
    rows = rows_of("keras/keras2.log")

    assert rows == [
        Row(61, {"loss": 0.6, "accuracy": 0.925, "epoch": 1.0}),
        Row(82, {"loss": 0.575, "accuracy": 0.9375, "epoch": 1.0, "step_seconds": 0.062}),
        Row(82, {"loss": 0.625, "accuracy": 0.9125}, split="validation"),
        Row(164, {"loss": 0.525, "accuracy": 0.95, "epoch": 2.0, "step_seconds": 0.061}),
        Row(164, {"loss": 0.65, "accuracy": 0.9}, split="validation"),
    ]
    assert Facts(target_steps=164) in items_of(LOGS / "keras/keras2.log")


def test_keras_3():
    """Its bar is coloured and made of other signs."""
    rows = rows_of("keras/keras3.log")

    assert [(row.step, row.split, row.values["loss"]) for row in rows] == [
        (10, "", 1.25),
        (188, "", 0.4875),
        (188, "validation", 0.1375),
    ]
