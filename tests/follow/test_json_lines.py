"""JSON lines: LLaMA-Factory, ms-swift, OpenMMLab, and any with a step."""

from __future__ import annotations

import math

import pytest
from tests.follow.helpers import LOGS, items_of

from trainvitals.follow.base import Facts, Row
from trainvitals.follow.formats.json_lines import JsonLines
from trainvitals.follow.record import number, seconds


def rows_of(path):
    """Return the rows of a fixture."""
    return [item for item in items_of(LOGS / path) if isinstance(item, Row)]


def test_llamafactory_with_nulls():
    """A null is no value; the last line has no loss and makes no step; a result is one of the validation."""
    items = items_of(LOGS / "llamafactory/2023.jsonl")

    assert Facts(target_steps=21) in items
    assert rows_of("llamafactory/2023.jsonl") == [
        Row(7, {"loss": 3.25, "learning_rate": 4.5e-05, "epoch": 0.5, "elapsed_seconds": 67.0}),
        Row(14, {"loss": 2.75, "learning_rate": 2.5e-05, "epoch": 1.0, "elapsed_seconds": 131.0}),
        Row(14, {"loss": 2.875}, split="validation"),
    ]


def test_llamafactory_of_2024():
    """Later versions call the rate lr, write the throughput as a string or a number, and NaN as Python does."""
    first, second = rows_of("llamafactory/2024.jsonl")

    assert first == Row(
        2,
        {
            "loss": 1.5,
            "learning_rate": 5e-06,
            "epoch": 0.04,
            "elapsed_seconds": 86410.0,
            "tokens_per_second": 812.25,
            "total_tokens": 8192.0,
        },
    )
    assert second.step == 4
    assert math.isnan(second.values["loss"])
    assert second.values["tokens_per_second"] == 799.5


def test_ms_swift():
    """The step stands before its target; both units of the speed are known, and memory is in bytes."""
    items = items_of(LOGS / "ms-swift/logging.jsonl")

    assert items == [
        Facts(target_steps=60),
        Row(
            3,
            {
                "loss": 1.875,
                "grad_norm": 9.5,
                "learning_rate": 2e-06,
                "token_acc": 0.5625,
                "epoch": 0.03,
                "elapsed_seconds": 12.0,
                "memory_bytes": 4831838208.0,
                "steps_per_second": 0.25,
            },
        ),
        Facts(target_steps=60),
        Row(3, {"loss": 1.9375, "token_acc": 0.5, "runtime": 2.5}, split="validation"),
        Facts(target_steps=60),
        Row(
            6,
            {
                "loss": 1.75,
                "grad_norm": 8.25,
                "learning_rate": 4e-06,
                "token_acc": 0.59375,
                "epoch": 0.06,
                "elapsed_seconds": 3723.0,
                "memory_bytes": 5100273664.0,
                "step_seconds": 4.5,
            },
        ),
    ]


def test_ms_swift_on_megatron():
    """Megatron-SWIFT calls the step an iteration."""
    facts, row = items_of(LOGS / "ms-swift/megatron.jsonl")

    assert facts == Facts(target_steps=90)
    assert row.step == 20
    assert row.values["step_seconds"] == 4.125


def test_mmengine():
    """The time is that of an iteration; metrics without a loss are results."""
    assert rows_of("openmmlab-json/scalars.json") == [
        Row(10, values(lr=0.004, data=0.008, loss=5.25, cls=3.5, time=0.25)),
        Row(20, values(lr=0.004, data=0.007, loss=2.625, cls=1.5, time=0.125)),
        Row(20, {"accuracy/top1": 41.5, "data_seconds": 0.5, "step_seconds": 0.75}, split="validation"),
    ]


def values(*, lr, data, loss, cls, time):
    """Return a row of training, of the first epoch, with 300 MB."""
    return {
        "learning_rate": lr,
        "data_seconds": data,
        "loss": loss,
        "loss_cls": cls,
        "step_seconds": time,
        "epoch": 1.0,
        "memory_bytes": 314572800.0,
    }


def test_mmcv_counts_over_epochs():
    """Iterations start anew in each epoch, steps do not; results belong to the step before; an empty one is none."""
    rows = rows_of("openmmlab-json/mmcv.log.json")

    assert [(row.step, row.split) for row in rows] == [(50, ""), (100, ""), (100, "validation"), (150, "")]
    assert rows[2].values == {"bbox_mAP": 0.125}
    assert math.isnan(rows[3].values["loss"])
    assert rows[3].values["epoch"] == 2.0


def test_any_json_lines():
    """Infinity and NaN are numbers; what is no number is left out; a result beside has its time."""
    rows = rows_of("jsonl/plain.jsonl")

    assert rows[0] == Row(1, {"loss": 4.5, "learning_rate": 0.001, "grad_norm": 1.5})
    assert rows[2].values["loss"] == math.inf
    assert math.isnan(rows[2].values["grad_norm"])
    assert rows[3] == Row(4, {"loss": 4.0, "learning_rate": 0.0005, "grad_norm": 1.0})
    assert rows[4] == Row(4, {"loss": 4.125}, 1741064767.0, split="validation")


def test_one_level_of_nested_records_counts():
    """Splits as nested objects are common."""
    rows = rows_of("jsonl/nested.jsonl")

    assert rows[2:] == [
        Row(10, {"loss": 0.625, "learning_rate": 0.01}, 1741064777.5),
        Row(10, {"loss": 0.8125, "f1": 0.5625}, 1741064777.5, split="validation"),
    ]


def test_the_mean_of_all_losses_is_no_step():
    """The last record of the Hugging Face Trainer ends the run."""
    assert items_of(LOGS / "jsonl/swift_2023.jsonl")[-1] == Facts(finished=0.0)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[1, 2]",
        '"step"',
        '{"step": 1',
        '{"step": null, "loss": null}',
        '{"step": true}',
        "{" * 100_000,
        '{"step": 1e400, "loss": "x"}',
    ],
)
def test_what_is_no_record_is_nothing(line):
    """Lines that hold no number of a step say nothing and raise nothing."""
    assert not [item for item in JsonLines().parser().feed(line) if isinstance(item, Row) and item.step is not None]


def test_numbers_beyond_64_bits_are_read():
    """The fast reader refuses them, and the other one reads the line."""
    (row,) = JsonLines().parser().feed('{"step": 3, "loss": 0.5, "seed": 123456789012345678901234567890}')

    assert row == Row(3, {"loss": 0.5, "seed": 1.2345678901234568e29})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3.0),
        ("0.5", 0.5),
        ("1,234.5", 1234.5),
        ("5.5%", 0.055),
        ("-inf", -math.inf),
        ("0:01:40", 100.0),
        ("2 days, 1:00:00", 176400.0),
        ("4m 28s", 268.0),
        ("2s", 2.0),
        ("bert", None),
        ("", None),
        (True, None),
        (None, None),
        ([1], None),
        (10**400, None),
        ("9" * 100, None),
    ],
)
def test_what_counts_as_a_number(value, expected):
    """Strings of numbers, percentages and durations are numbers; true and words are not."""
    assert number(value) == expected


def test_an_empty_duration_is_none():
    """Nothing is not zero seconds."""
    assert seconds("") is None
