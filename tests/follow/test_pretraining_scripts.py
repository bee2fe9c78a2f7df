"""modded-nanogpt, llm.c, torchtitan and verl."""

from __future__ import annotations

import math

from tests.follow.helpers import LOGS, items_of

from trainvitals.follow.base import Facts, Row
from trainvitals.telemetry import Event


def rows_of(path):
    """Return all rows of a fixture."""
    return [item for item in items_of(LOGS / path) if isinstance(item, Row)]


def test_modded_nanogpt_with_losses():
    """Source code before the log is no step, a mean that is not yet known is no NaN, and times are cumulative."""
    assert rows_of("modded-nanogpt/2024.log") == [
        Row(0, {"loss": 10.9375}, split="validation"),
        Row(1, {"loss": 10.925, "elapsed_seconds": 74.5}),
        Row(2, {"loss": 8.6875, "elapsed_seconds": 75.75}),
        Row(400, {"loss": 3.5, "elapsed_seconds": 86.4, "mean_step_seconds": 0.21625}),
        Row(400, {"loss": 3.275}, split="validation"),
    ]
    assert Facts(target_steps=400) in items_of(LOGS / "modded-nanogpt/2024.log")


def test_modded_nanogpt_without_losses():
    """Since 2025 a step has its time only."""
    assert rows_of("modded-nanogpt/2026.log")[1:3] == [
        Row(1, {"elapsed_seconds": 0.101, "mean_step_seconds": 0.10125}),
        Row(2, {"elapsed_seconds": 0.137, "mean_step_seconds": 0.0685}),
    ]


def test_forks_of_modded_nanogpt():
    """Other words for the same; a NaN is a NaN; a line without a number of ours is no step."""
    first, second, result, last = rows_of("modded-nanogpt/forks.log")

    assert first.values == {
        "loss": 7.25,
        "elapsed_seconds": 0.152,
        "mean_step_seconds": 0.0152,
        "tokens_per_second": 3453869.0,
    }
    assert second.step == 50
    assert math.isnan(second.values["loss"])
    assert result == Row(60, {"loss": 2.4375, "bpb": 1.25}, split="validation")
    assert last == Row(70, {"total_tokens": 2.5e6, "loss": 2.25, "elapsed_seconds": 48.0, "mean_step_seconds": 0.224})


def test_results_are_steps_where_there_is_nothing_else():
    """A run that logs its validation only has progress all the same."""
    rows = rows_of("modded-nanogpt/results_only.log")

    assert [(row.step, row.values) for row in rows if not row.split] == [
        (125, {"elapsed_seconds": 20.25}),
        (250, {"elapsed_seconds": 40.5}),
    ]
    assert [row.values["loss"] for row in rows if row.split] == [10.8258, 4.5, 4.25]


def test_llmc_main_log():
    """Losses of training and validation, and the accuracy on HellaSwag."""
    assert rows_of("llm.c/main.log") == [
        Row(0, {"loss": 11.0125}, split="validation"),
        Row(0, {"loss": 11.025, "learning_rate": 4e-06, "grad_norm": 15.25}),
        Row(1, {"loss": 10.95, "learning_rate": 8e-06, "grad_norm": 15.5}),
        Row(250, {"accuracy": 0.25}, split="hellaswag"),
        Row(250, {"loss": 6.175}, split="validation"),
    ]


def test_llmc_printed():
    """An MFU of -100 % is unknown; results belong to the step before."""
    first, second, *results = rows_of("llm.c/printed.log")

    assert first == Row(
        1,
        {
            "loss": 11.0125,
            "grad_norm": 15.25,
            "learning_rate": 6.75e-07,
            "step_seconds": 1.4515,
            "tokens_per_second": 361000.0,
        },
    )
    assert second.step == 2
    assert math.isnan(second.values["loss"])
    assert second.values["grad_norm"] == math.inf
    assert second.values["mfu"] == 0.575
    assert results == [
        Row(None, {"loss": 10.5125}, split="validation"),
        Row(None, {"accuracy": 0.25244}, split="hellaswag"),
    ]


def test_torchtitan_in_colours():
    """Colours are cut out, thousands have commas, N/A is nothing, and the time is the log's."""
    first, second, saved, result = items_of(LOGS / "torchtitan/coloured.log")

    assert first._replace(time=None) == Row(
        9,
        {
            "loss": 3.125,
            "grad_norm": 0.875,
            "memory_bytes": 10200547328.0,
            "tokens_per_second_per_device": 7337.0,
            "flops_per_device": 5e11,
            "mfu": 0.001,
        },
        rank=0,
    )
    assert math.isnan(second.values["loss"])
    assert second.values["grad_norm"] == math.inf
    assert "mfu" not in second.values
    assert second.time - first.time == 1.5
    assert saved == Event(saved.time, "checkpoint", -1, {"action": "save", "ok": True, "seconds": 10.25})
    assert (result.step, result.split, result.values["loss"]) == (10, "validation", 3.0125)


def test_torchtitan_numbers_that_only_a_colour_parts():
    """Differences of words are shown like that; the first number counts."""
    from trainvitals.follow.text import clean

    assert clean(b"loss:  \x1b[31m6.7500\x1b[m\x1b[32m6.5000\x1b[m") == b"loss:  6.7500 6.5000"


def test_torchtitan_events():
    """Numbers have their rank and time; the rest of the events is left out."""
    assert rows_of("torchtitan-events/rank3.jsonl") == [
        Row(6, {"loss": 4.5}, 1709500001.25, 3),
        Row(6, {"global_valid_tokens": 65536.0}, 1709500001.5, 3),
    ]


def test_verl():
    """Rewards before the first step are results; a line that Ray broke keeps what is whole."""
    result, first, second = rows_of("verl/console.log")

    assert result == Row(0, {"val-aux/gsm8k/reward/mean@1": 0.5625, "gsm8k/acc/mean@1": 0.5}, split="validation")
    assert first.step == 1
    assert math.isnan(first.values.pop("critic/score/mean"))
    assert first.values == {
        "actor/entropy": 0.25,
        "actor/pg_loss": -0.0625,
        "grad_norm": 0.125,
        "learning_rate": 1e-06,
        "tokens_per_second_per_device": 812.5,
        "step_seconds": 74.5,
        "epoch": 0.0,
    }
    assert second == Row(2, {"actor/entropy": 0.125, "learning_rate": 1e-06})
