"""Megatron-LM and its forks, DeepSpeed, OpenMMLab's text and fairseq."""

from __future__ import annotations

import math

import pytest
from tests.follow.helpers import LOGS, items_of

from trainvitals.follow.base import Facts, Row
from trainvitals.follow.formats.megatron import Megatron
from trainvitals.telemetry import Event


def rows_of(path):
    """Return all rows of a fixture."""
    return [item for item in items_of(LOGS / path) if isinstance(item, Row)]


def test_megatron_iterations():
    """Units are ours, skipped iterations are counted, and timers belong to the step before."""
    first, second, *timers = [row for row in rows_of("megatron/run.log") if not row.split][:4]

    assert first.step == 10
    assert first.values["skipped"] == 10.0
    assert "loss" not in first.values
    assert second.step == 20
    assert second.values == {
        "total_samples": 160.0,
        "step_seconds": 5.4445,
        "flops_per_device": pytest.approx(240e12),
        "learning_rate": 8.5e-06,
        "global_batch_size": 8.0,
        "loss": 1.8125,
        "load_balancing_loss": 1.03125,
        "loss_scale": 1.0,
        "grad_norm": 1.375,
        "num_zeros": 0.0,
        "skipped": 3.0,
        "nan_iterations": 0.0,
    }
    assert [row.values for row in timers] == [
        {"timer/forward-compute_seconds": 0.1935, "timer/backward-compute_seconds": 0.07325},
        {"timer/evaluate_seconds": 1.37725},
    ]
    assert all(row.step is None for row in timers)


def test_megatron_leaves_out_a_loss_that_is_nan():
    """A line without a loss is a NaN, unless all of its iterations were skipped or the line is cut."""
    skipped, _, third = [row for row in rows_of("megatron/run.log") if row.step is not None and not row.split]

    assert "loss" not in skipped.values
    assert math.isnan(third.values["loss"])
    assert math.isnan(third.values["grad_norm"])
    cut = " iteration       40/     500 | consumed samples:          320 | elapsed time per iter"
    assert "loss" not in list(Megatron().parser().feed(cut))[-1].values


def test_megatron_life():
    """World size, begin and end, results of two sets, checkpoints that are whole."""
    items = items_of(LOGS / "megatron/run.log")
    facts = [item for item in items if isinstance(item, Facts)]

    assert facts[0] == Facts(world_size=16)
    assert facts[1].started is not None
    assert facts[-1].finished - facts[1].started == 120.0
    assert [row for row in rows_of("megatron/run.log") if row.split] == [
        Row(30, {"loss": 2.75, "ppl": 15.625}, split="validation"),
        Row(30, {"loss": 2.875, "ppl": 17.75}, split="test"),
    ]
    assert [item for item in items if isinstance(item, Event)] == [
        Event(0.0, "checkpoint", 30, {"action": "save", "ok": True, "path": "/ckpt"}),
        Event(0.0, "checkpoint", 30, {"action": "load", "ok": True, "path": "/ckpt"}),
    ]


def test_forks_of_megatron():
    """Seconds instead of milliseconds, signs instead of words, hyphens, a rank before the line."""
    first, second, third, result, straggler = rows_of("megatron/forks.log")

    assert (first.step, first.rank) == (71, 7)
    assert first.values["step_seconds"] == 215.75
    assert first.values["total_tokens"] == 297795584.0
    assert second.step == 72
    assert second.values["step_seconds"] == 29.5
    assert second.values["tokens_per_second_per_device"] == 4432.5
    assert (second.values["loss"], second.values["grad_norm"]) == (1.875, 6.375)
    assert (third.step, third.values["loss"]) == (73, 1.8125)
    assert result == Row(73, {"loss": 2.3125, "ppl": 10.0}, rank=7, split="validation")
    assert straggler.values == {
        "straggler/least_rtt_seconds": 3.4505,
        "straggler/least_rtt_rank": 8.0,
        "straggler/most_rtt_seconds": 3.4685,
        "straggler/most_rtt_rank": 0.0,
        "straggler/least_tmp_celsius": 52.0,
        "straggler/least_tmp_rank": 0.0,
        "straggler/most_utl_ratio": 1.03,
        "straggler/most_utl_rank": 6.0,
        "straggler/most_etpt_tf": 297.5,
        "straggler/most_etpt_rank": 8.0,
    }


def test_mindspeed():
    """Its prefix, its memory and its spelling; a line that was wrapped keeps what it has."""
    first, second = rows_of("megatron/mindspeed.log")

    assert first.values["max_memory_allocated_bytes"] == 20401094656.0
    assert second.values["global_batch_size"] == 8.0
    assert (second.step, second.values["loss"]) == (2, 12.0)


def test_deepspeed_engine():
    """Skipped steps are a total, of which the rise counts; a loss without a step belongs to the step before."""
    first, timer, times, loss, second, result = rows_of("deepspeed/engine.log")

    assert (first.step, first.values) == (10, {"learning_rate": 5e-05, "skipped": 4.0})
    assert (timer.step, timer.values) == (
        10,
        {
            "samples_per_second": 50.5,
            "memory_allocated_bytes": 10200547328.0,
            "max_memory_allocated_bytes": 23890755584.0,
        },
    )
    assert times == Row(None, {"timer/fwd_microstep_seconds": 0.6525, "timer/bwd_microstep_seconds": 2.1645})
    assert loss == Row(None, {"loss": 0.6875})
    assert (second.step, second.values) == (20, {"learning_rate": 4.5e-05, "skipped": 1.0})
    assert second.time - first.time == 20.0
    assert result == Row(None, {"ppl": 2.0625}, split="validation")


def test_deepspeed_of_old_and_its_pipeline():
    """The pipeline's engine is the only one that tells the loss."""
    old, pipeline = rows_of("deepspeed/old_and_pipeline.log")

    assert (old.step, old.values["samples_per_second"]) == (40, 83.25)
    assert pipeline == Row(50, {"loss": 2.3125, "step_seconds": 0.425, "samples_per_second": 77.5})


def test_deepspeed_with_two_engines():
    """Once the program counts, its steps are those of the run."""
    rows = rows_of("deepspeed/ppo.log")

    assert [row.step for row in rows] == [10, 11, None, 12]
    assert [row.values.get("loss") for row in rows] == [None, 0.0625, None, -0.03125]


def test_perplexity_tells_the_loss():
    """The loss is its logarithm."""
    rows = rows_of("deepspeed/perplexity.log")

    assert rows[1] == Row(3, {"loss": 0.0, "perplexity": 1.0})
    assert rows[2].step == 4
    assert math.isnan(rows[2].values["loss"])


def test_mmcv_text():
    """The length of an epoch is in the line, so steps go on over the epochs."""
    items = items_of(LOGS / "openmmlab/mmcv.log")
    first, result, second = rows_of("openmmlab/mmcv.log")

    assert (first.step, first.values) == (
        50,
        {
            "learning_rate": 0.00195,
            "step_seconds": 0.425,
            "data_seconds": 0.125,
            "memory_bytes": 2833252352.0,
            "loss_cls": 1.0,
            "loss": 1.4375,
            "epoch": 1.0,
        },
    )
    assert (result.step, result.split, result.values) == (50, "validation", {"mAP": 0.65})
    assert second.step == 6050
    assert math.isnan(second.values["loss"])
    assert second.time - first.time == 2420.0
    assert [item.kind for item in items if isinstance(item, Event)] == ["checkpoint"]


def test_mmengine_text():
    """Results have no times of iterations."""
    first, result = rows_of("openmmlab/mmengine.log")

    assert (first.step, first.values["loss"]) == (3010, 1.75)
    assert result.values == {"accuracy/top1": 41.5}


def test_runs_by_iterations():
    """They tell their target and the step of a checkpoint."""
    facts, row, saved = items_of(LOGS / "openmmlab/iterations.log")

    assert facts == Facts(target_steps=80000)
    assert (row.step, row.values["decode.loss_ce"]) == (50, 1.75)
    assert (saved.kind, saved.step) == ("checkpoint", 100)


def test_fairseq_with_hydra():
    """Numbers are strings; the summary of an epoch is no step."""
    first, result = rows_of("fairseq/hydra.log")

    assert (first.step, first.values) == (
        200,
        {
            "epoch": 1.0,
            "loss": 9.5,
            "tokens_per_second": 25389.5,
            "steps_per_second": 0.25,
            "learning_rate": 3.125e-06,
            "grad_norm": 1.875,
            "loss_scale": 64.0,
            "train_wall": 851.0,
            "elapsed_seconds": 873.0,
        },
    )
    assert (result.step, result.split) == (250, "validation")
    assert result.values == {"loss": 6.625, "accuracy": 0.25, "tokens_per_second": 26326.5}
    assert result.time - first.time == 20.0


def test_metaseq():
    """Under Slurm a line names its process."""
    first, second = rows_of("fairseq/metaseq.log")

    assert (first.step, first.rank, first.values["memory_allocated_bytes"]) == (1, 0, 20937965568.0)
    assert math.isnan(second.values["loss"])


def test_fairseq_simple():
    """Batches count over the epochs; results belong to the step before."""
    first, result = rows_of("fairseq/simple.log")

    assert (first.step, first.values["loss"], first.values["grad_norm"]) == (98000, 1.25, 2.125)
    assert result == Row(None, {"loss": 1.75, "ppl": 3.375}, split="validation")
