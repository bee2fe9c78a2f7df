"""What the Hugging Face Trainer and those built upon it print; PaddleNLP and MindFormers."""

from __future__ import annotations

import math

from tests.follow.helpers import LOGS, items_of, items_of_pieces

from trainvitals.follow.base import Facts, Row
from trainvitals.follow.formats.transformers import Transformers
from trainvitals.telemetry import Event


def rows_of(path):
    """Return all rows of a fixture."""
    return [item for item in items_of(LOGS / path) if isinstance(item, Row)]


def steps_of(text):
    """Return the steps of the rows of training in a text."""
    items = items_of_pieces(Transformers(), [text.encode()])
    return [item.step for item in items if isinstance(item, Row) and not item.split]


def test_the_bar_tells_the_step():
    """A line of loss has the step of the training's bar before it; the bar of an evaluation is another one."""
    rows = rows_of("transformers/bars.log")

    assert rows[:3] == [
        Row(10, {"loss": 3.5, "grad_norm": 1.25, "learning_rate": 0.0002, "epoch": 0.25}),
        Row(20, {"loss": 3.25, "grad_norm": 1.5, "learning_rate": 0.0004, "epoch": 0.5}),
        Row(None, {"loss": 3.375, "runtime": 2.5, "samples_per_second": 12.0}, split="validation"),
    ]
    assert rows[3].step == 30
    assert math.isnan(rows[3].values["grad_norm"])


def test_life_of_a_run():
    """Begin, target, checkpoint and end are known; the mean of all losses is no step."""
    items = items_of(LOGS / "transformers/bars.log")

    assert items[:2] == [Facts(started=0.0), Facts(target_steps=1200)]
    assert Event(0.0, "checkpoint", 20, {"action": "save", "ok": True, "path": "out/checkpoint-20"}) in items
    assert items[-1] == Facts(finished=0.0)


def test_version_5_writes_strings():
    """NaN and infinity come as strings, and a printed configuration is no step."""
    first, second, result = rows_of("transformers/version5.log")

    assert first == Row(1, {"loss": 1.038, "grad_norm": 0.7215, "learning_rate": 4.8e-05, "epoch": 0.05})
    assert second.step == 2
    assert math.isnan(second.values["loss"])
    assert second.values["grad_norm"] == math.inf
    assert result == Row(None, {"loss": 0.9825, "runtime": 12.5}, split="validation")


def test_without_bars_lines_are_counted():
    """Standard output alone has no bars."""
    assert steps_of("{'loss': 2.5, 'epoch': 0.1}\n{'loss': 2.25, 'epoch': 0.2}\n{'loss': 2.0, 'epoch': 0.3}\n") == [
        1,
        2,
        3,
    ]


def test_a_bar_that_lags_behind_is_passed():
    """Two lines of loss behind one drawing of the bar are two steps, and the bar is believed when it moves."""
    bar = "  1%|1         | {}/900 [00:05<09:55,  2.00it/s]\r"
    loss = "{'loss': 2.5, 'epoch': 0.1}\n"

    assert steps_of(bar.format(7) + loss + bar.format(7) + loss + bar.format(12) + loss) == [7, 8, 12]


def test_a_bar_that_goes_back_is_a_run_that_was_resumed():
    """The core makes an attempt of it."""
    bar = "  1%|1         | {}/900 [00:05<09:55,  2.00it/s]\r"
    loss = "{'loss': 2.5, 'epoch': 0.1}\n"

    assert steps_of(bar.format(70) + loss + bar.format(51) + loss) == [70, 51]


def test_an_evaluation_with_more_batches_than_the_training_has_steps():
    """Its bar is not taken for that of the training."""
    bar = "  1%|1         | {}/{} [00:05<09:55,  2.00it/s]\r"
    loss = "{'loss': 2.5, 'epoch': 0.1}\n"
    evaluation = bar.format(4000, 4000) + "{'eval_loss': 2.5, 'epoch': 0.1}\n"

    assert steps_of(bar.format(7, 90) + loss + evaluation + bar.format(9, 90) + loss) == [7, 9]


def test_source_code_is_no_step():
    """Programs print themselves, and dicts with names instead of numbers."""
    assert steps_of("log = {'loss': loss.item(), 'epoch': epoch}\nprint({'lr': lr, 'epoch': e})\n") == []


def test_axolotl():
    """Memory comes in GiB."""
    assert rows_of("transformers/axolotl.log") == [
        Row(
            1,
            {
                "loss": 2.25,
                "grad_norm": 9.5,
                "learning_rate": 5e-06,
                "memory_active_bytes": 27380416512.0,
                "memory_reserved_bytes": 32480690176.0,
                "epoch": 1.0,
            },
        )
    ]


def test_ms_swift_prints_its_step():
    """Where a record has a step, nothing is counted."""
    facts, row = items_of(LOGS / "transformers/swift.log")

    assert facts == Facts(target_steps=80)
    assert row.step == 8
    assert row.values["elapsed_seconds"] == 64.0


def test_paddlenlp():
    """Steps, results and checkpoints with their times; units are converted."""
    first, saved, result, last = items_of(LOGS / "paddlenlp/pretrain.log")

    assert first.step == 5
    assert first.values == {
        "loss": 11.0625,
        "learning_rate": 2e-06,
        "memory_allocated_bytes": 8053063680.0,
        "max_memory_reserved_bytes": 8858370048.0,
        "interval_seconds": 1.25,
        "samples_per_second": 0.875,
        "tokens_per_second_per_device": 889.5,
        "flops_per_device": 2.5e12,
        "steps_per_second": 0.75,
        "epoch": 0.125,
    }
    assert (saved.kind, saved.step) == ("checkpoint", 5)
    assert saved.time - first.time == 60.25
    assert (result.split, result.values) == ("validation", {"loss": 10.5, "ppl": 36315.5, "runtime": 9.5})
    assert last.step == 10
    assert math.isnan(last.values["loss"])


def test_mindformers():
    """Steps go on over the epochs; a norm that is no number is left out; an overflow is a step that was skipped."""
    first, second, third = rows_of("mindformers/callback.log")

    assert first.step == 4
    assert first.values == {
        "epoch": 1.0,
        "loss": 10.625,
        "step_seconds": 1.75,
        "learning_rate": 1e-05,
        "loss_scale": 1.0,
        "flops_per_device": 170.5e12,
    }
    assert second.step == 24
    assert (second.values["grad_norm"], second.values["skipped"]) == (10.5, 1.0)
    assert third.step == 25
    assert (third.values["loss"], third.values["step_seconds"]) == (2.25, 1.9515)
    assert Facts(target_steps=40) in items_of(LOGS / "mindformers/callback.log")


def test_mindformers_of_2022():
    """Outputs are loss, overflow and scale; the time of a step stands in the line behind."""
    assert rows_of("mindformers/outputs.log") == [
        Row(10, {"epoch": 0.0, "loss": 0.1852, "skipped": 1.0, "loss_scale": 4194300.0}),
        Row(None, {"step_seconds": 2.35}),
    ]


def test_the_monitor_of_mindspore():
    """Its steps begin anew in each epoch."""
    rows = rows_of("mindformers/monitor.log")

    assert [row.step for row in rows] == [3, 6, 9]
    assert math.isnan(rows[2].values["loss"])
