"""Files of W&B and SwanLab, which have the same framing."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time

import pytest
from tests.follow.binary import BLOCK, START, SWANLAB, WANDB, blocks, field, history, swan, wandb_file
from tests.follow.helpers import LOGS, items_of

from trainvitals.follow.base import Facts, Row
from trainvitals.follow.follower import Follower
from trainvitals.follow.formats.swanlab import SwanLab
from trainvitals.follow.formats.wandb import Wandb
from trainvitals.follow.leveldb import Pieces
from trainvitals.follow.sources import Source

pytest.importorskip("google.protobuf")


def test_wandb():
    """Steps, time, settings and the end; a picture costs nothing; NaN and infinity stay what they are."""
    found = items_of(LOGS / "wandb/run-abcd1234.wandb")

    assert found[0] == Facts(started=START, target_steps=40)
    assert found[1] == Row(0, {"loss": 2.5, "learning_rate": 0.001, "elapsed_seconds": 1.25}, 1772000001.5)
    assert (found[2].step, found[2].time) == (1, 1772000002.5)
    assert math.isnan(found[2].values["loss"])
    assert "picture" not in found[2].values
    assert found[3] == Row(2, {"loss": 2.25, "learning_rate": math.inf, "elapsed_seconds": 3.25}, 1772000003.5)
    assert found[4] == Row(3, {"loss": 2.75}, 1772000004.5, split="validation")
    assert found[5] == Facts(finished=1772000004.5)


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ({"_step": "7"}, 7),
        ({"_step": "7", "train/global_step": "70"}, 70),
        ({"_step": "7", "trainer/global_step": "71"}, 71),
    ],
)
def test_the_step_of_the_program_counts(values, step):
    """W&B's own is a count of calls."""
    (row,) = Wandb().parser().feed(blocks(WANDB, history(**values, loss="1.5")))

    assert (row.step, row.values["loss"]) == (step, 1.5)


def test_the_step_beside_the_values():
    """A history may hold its step in a field of its own."""
    record = field(2, field(1, field(1, "loss") + field(16, "1.5")) + field(2, field(1, 12)))

    assert list(Wandb().parser().feed(blocks(WANDB, record))) == [Row(12, {"loss": 1.5})]


def test_settings_that_come_later():
    """The number of steps may be told with a later change of the settings."""
    record = field(5, field(1, field(1, "max_steps") + field(16, "500")))

    assert list(Wandb().parser().feed(blocks(WANDB, record))) == [Facts(target_steps=500)]


def test_swanlab():
    """Steps, times and the end; readings of the machine are left out."""
    found = items_of(LOGS / "swanlab/run-wxyz.swanlab")

    assert found[:3] == [
        Facts(started=START),
        Row(0, {"loss": 3.0}, START),
        Row(0, {"learning_rate": 0.001953125}, START),
    ]
    assert found[-2:] == [Row(3, {"loss": 3.25}, START + 4, split="validation"), Facts(finished=START + 5)]
    assert len(found) == 11


def test_swanlab_before_messages():
    """Files of older versions hold JSON."""
    begin, first, second, third, end = items_of(LOGS / "swanlab/backup.swanlab")

    assert (begin, end) == (Facts(started=START), Facts(finished=START + 9.25))
    assert first == Row(0, {"loss": 2.5}, START + 0.25)
    assert math.isnan(second.values["loss"])
    assert third == Row(2, {"loss": 2.25}, START + 2.25)


# The framing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size", [0, 1, BLOCK - 28, BLOCK - 22, BLOCK - 21, BLOCK - 20, BLOCK - 14, BLOCK, 3 * BLOCK + 5]
)
@pytest.mark.parametrize("cut", [1 << 20, 4099])
def test_records_of_any_size(size, cut):
    """A record that ends anywhere in a block comes whole, and so does the one behind it."""
    data = blocks(WANDB, b"first", b"x" * size, b"last")
    pieces = Pieces()
    found = [record for start in range(0, len(data), cut) for record in pieces.feed(data[start : start + cut])]

    assert found == [b"first", b"x" * size, b"last"]
    assert pieces.bad == 0


def test_damage_costs_the_rest_of_its_block():
    """Where a checksum is wrong, reading goes on at the next block."""
    data = bytearray(blocks(WANDB, *(b"%05d" % number * 20 for number in range(1000))))
    data[200] ^= 1
    pieces = Pieces()
    found = list(pieces.feed(bytes(data)))

    assert pieces.bad == 1
    assert found[0] == b"00000" * 20
    assert [int(record[:5]) for record in found[1:]] == list(range(int(found[1][:5]), 1000))
    assert 306 <= int(found[1][:5]) <= 308


def test_large_records_are_bounded():
    """Of a record that never ends, no more than 16 MiB are kept."""
    first = blocks(WANDB, b"x" * (3 * BLOCK))[: 2 * BLOCK]
    middle = first[BLOCK:]
    pieces = Pieces()
    assert list(pieces.feed(first)) == []
    for _ in range(700):
        assert list(pieces.feed(middle)) == []

    assert pieces.bad == 0
    assert sum(map(len, pieces._parts or ())) <= 1 << 24


@pytest.mark.parametrize("log_format", [Wandb(), SwanLab()])
def test_a_damaged_record_is_told(log_format):
    """It costs itself, and the others are read."""
    header, good = (
        (WANDB, history(_step="4", loss="1.5")) if log_format.name == "wandb" else (SWANLAB, swan(4, "loss", 1.5))
    )
    items = log_format.parser().feed(blocks(header, good, b"\xff\xff\xff", good))
    found = []

    with pytest.raises(ValueError, match="1 damaged"):
        found.extend(items)

    assert [(row.step, row.values["loss"]) for row in found] == [(4, 1.5), (4, 1.5)]


# Real writers --------------------------------------------------------------------------------------------------------

WRITER = """
import sys, time, wandb
run = wandb.init(project="demo", dir=sys.argv[1], config={"max_steps": 400}, settings=wandb.Settings(console="off"))
for step in range(400):
    values = {"train/loss": 8.0 - step / 64, "inner": {"x": 0.5}}
    if step == 150:
        values["train/loss"] = float("nan")
    run.log(values)
    time.sleep(0.001)
run.finish()
"""


def test_followed_while_wandb_writes(tmp_path):
    """All steps of a program that writes come once and in order, and so does the end."""
    pytest.importorskip("wandb")
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], env=environment) as process:
        follower = Follower(
            [Source(str(tmp_path / "wandb/offline-run-*/*.wandb"))], rate=math.inf, clock=lambda: clock[0]
        )
        clock, losses, runs, polls = [2e9], [], [], 0
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            has_ended = process.poll() is not None
            clock[0] += 11.0
            runs = follower.poll()
            new = [(step.step, step.values["loss"]) for run in runs for step in run.steps]
            losses += new
            polls += bool(new)
            if has_ended:
                break
            time.sleep(0.02)
        follower.close()
        assert process.returncode == 0

    expected = [(step, 8.0 - step / 64) for step in range(400)]
    assert [loss for loss in losses if loss[0] != 150] == [loss for loss in expected if loss[0] != 150]
    assert math.isnan(losses[150][1])
    (run,) = runs
    assert run.identity.target_steps == 400
    assert run.finished is not None
    assert run.values["inner/x"] == 0.5


def test_wandb_knows_the_messages_as_we_describe_them():
    """The numbers of the fields are those of the package."""
    wandb_internal_pb2 = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    records = [wandb_internal_pb2.Record.FromString(record) for record in Pieces().feed(wandb_file())]

    assert records[0].run.start_time.nanos == 250_000_000
    assert json.loads(records[0].run.config.update[0].value_json) == {"value": 40}
    assert [item.key or "/".join(item.nested_key) for item in records[1].history.item][:4] == [
        "_step", "_timestamp", "_runtime", "train/loss",
    ]  # fmt: skip
    assert records[5].WhichOneof("record_type") == "exit"
