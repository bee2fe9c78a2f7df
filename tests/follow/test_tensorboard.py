"""Event files of TensorBoard."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
import time

import pytest
from tests.follow.binary import START, event, field, framed, scalar, tensor, tensorboard_file, version
from tests.follow.helpers import LOGS, items_of

from trainvitals.follow.base import Facts, Row
from trainvitals.follow.follower import Follower
from trainvitals.follow.formats.tensorboard import TensorBoard
from trainvitals.follow.sources import Source

pytest.importorskip("google.protobuf")
pytest.importorskip("google_crc32c")


def items(*records, path=""):
    """Return what records say, behind the version."""
    return list(TensorBoard().parser(path).feed(b"".join((version(), *records))))


def rows(*records, path=""):
    """Return steps, values and splits of the rows."""
    return [(row.step, row.values, row.split) for row in items(*records, path=path) if isinstance(row, Row)]


def test_scalars_of_both_kinds():
    """Plain scalars and tensors have step, name, value and time; texts and the axis of samples are left out."""
    found = items_of(LOGS / "tensorboard/events.out.tfevents.1772000000.node.1.0")

    assert found[:4] == [
        Facts(started=START + 2.5),
        Row(10, {"loss": 3.75}, START + 2.5),
        Row(10, {"learning_rate": 0.0009765625}, START + 2.5),
        Row(20, {"loss": 3.5}, START + 5.0),
    ]
    assert found[-3:] == [
        Row(50, {"grad_norm": 1.25}, START),
        Row(50, {"loss_scale": 1024.5}, START),
        Row(50, {"loss": 3.5}, START + 13, split="validation"),
    ]
    assert len(found) == 14


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("train/loss", ("loss", "")),
        ("Loss/train", ("loss", "")),
        ("Loss/Validation", ("loss", "validation")),
        ("lm loss", ("loss", "")),
        ("lm-loss-training/lm loss", ("loss", "")),
        ("lm loss validation", ("loss", "validation")),
        ("lm-loss-validation/lm loss validation ppl", ("loss ppl", "validation")),
        ("iteration-time/iteration-time", ("step_seconds", "")),
        ("loss-scale", ("loss_scale", "")),
        ("train_loss_step", ("loss", "")),
        ("val_loss", ("loss", "validation")),
        ("lr-AdamW", ("learning_rate", "")),
        ("epoch_loss", ("loss", "")),
        ("metrics/mAP_0.5", ("mAP_0.5", "validation")),
        ("gnorm", ("grad_norm", "")),
        ("Curvature/Param_0", ("Curvature/Param_0", "")),
    ],
)
def test_names(tag, expected):
    """What frameworks call ours has our name."""
    assert rows(scalar(7, tag, 0.5)) == [(7, {expected[0]: 0.5}, expected[1])]


@pytest.mark.parametrize(
    "tag", ["lm loss vs samples", "lm-loss-training/lm loss vs tokens", "hp_metric", "", "✕", b"\xff\xfe"]
)
def test_what_is_no_value_of_a_step(tag):
    """Other axes, constants and tags without a letter are left out."""
    assert rows(scalar(7, tag, 0.5)) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_finite(value):
    """NaN and infinity stay what they are."""
    ((step, values, _),) = rows(scalar(3, "loss", value))

    assert step == 3
    assert repr(values["loss"]) == repr(value)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (field(1, 1) + field(5, 1.5, single=True), 1.5),
        (field(1, 1) + field(5, struct.pack("<f", 1.75)), 1.75),
        (field(1, 2) + field(4, struct.pack("<d", -2.5)), -2.5),
        (field(1, 3) + field(7, 12), 12.0),
        (field(1, 9) + field(10, -7), -7.0),
        (field(1, 19) + field(13, 0x3E00), 1.5),
        (field(1, 14) + field(13, 0x3FC0), 1.5),
        (field(1, 14) + field(4, b"\xc0\x3f"), 1.5),
    ],
)
def test_tensors_of_one_number(body, expected):
    """A number is read in whatever type TensorFlow keeps it."""
    assert rows(tensor(1, "loss", body)) == [(1, {"loss": expected}, "")]


@pytest.mark.parametrize(
    "record",
    [
        tensor(1, "loss", field(1, 1) + field(4, struct.pack("<ff", 1.0, 2.0))),
        tensor(1, "loss", field(1, 7) + field(8, b"words")),
        tensor(1, "loss", field(1, 1) + field(4, struct.pack("<f", 1.0)), plugin="histograms"),
        event(1, field(1, "loss") + field(4, field(1, 640))),
        framed(field(1, START) + field(2, 5)),
    ],
)
def test_what_is_no_number(record):
    """Vectors, texts, histograms, pictures and empty records say nothing."""
    assert rows(record) == []


def test_the_plugin_is_named_once():
    """Of a tag that is no scalar, the later records do not say so."""
    body = field(1, 1) + field(4, struct.pack("<f", 1.0))

    assert rows(tensor(1, "pr", body, plugin="pr_curves"), tensor(2, "pr", body, plugin="")) == []


def test_the_means_at_the_end_of_a_training():
    """What the Hugging Face Trainer writes last is its end; the mean of all losses is none of the last step."""
    found = items(
        scalar(20, "train/loss", 1.5),
        scalar(25, "train/train_runtime", 60.5, START + 9),
        scalar(25, "train/train_loss", 2.5, START + 9),
        scalar(25, "train/total_flos", 1e15, START + 9),
    )

    assert found == [Facts(started=START), Row(20, {"loss": 1.5}, START), Facts(finished=START + 9)]


def test_an_epoch_is_no_step():
    """It stands beside results, too."""
    assert rows(scalar(10, "train/epoch", 0.5), scalar(10, "epoch", 1.0)) == [
        (None, {"epoch": 0.5}, ""),
        (None, {"epoch": 1.0}, ""),
    ]


def test_a_tag_of_its_own_pace_is_no_restart():
    """Only a tag that goes back itself tells of a run that was resumed."""
    found = rows(
        scalar(10, "loss", 3.0),
        scalar(20, "loss", 2.0),
        scalar(19, "lr", 0.5),
        scalar(0, "best", 0.25),
        scalar(10, "loss", 2.5),
        scalar(-1, "odd", 1.0),
    )

    assert [step for step, _, _ in found] == [10, 20, None, None, 10, None]


def test_ultralytics():
    """The loss is the sum of its parts, when all of them are there."""
    found = rows(
        scalar(4, "train/box_loss", 0.5),
        scalar(4, "train/cls_loss", 0.25),
        scalar(4, "metrics/recall", 0.75),
        scalar(4, "x/lr0", 0.01),
    )

    assert (4, {"loss": 0.75}, "") in found
    assert (4, {"recall": 0.75}, "validation") in found


@pytest.mark.parametrize(
    ("folder", "split"),
    [
        ("run1", ""),
        ("train", ""),
        ("train_inner", ""),
        ("valid", "validation"),
        ("validation", "validation"),
        ("test", "test"),
    ],
)
def test_folders_of_splits(folder, split):
    """Keras and fairseq write a file for each split, whose folder tells."""
    assert rows(scalar(9, "loss", 1.5), path=f"/runs/{folder}/events.out.tfevents.1") == [(9, {"loss": 1.5}, split)]


def test_the_epochs_of_fairseq(tmp_path):
    """Where the steps are in "train_inner", "train" has the means of epochs."""
    (tmp_path / "train_inner").mkdir()

    assert rows(scalar(9, "loss", 1.5), path=str(tmp_path / "train/events")) == [(9, {"loss": 1.5}, "train")]


# Damage --------------------------------------------------------------------------------------------------------------


def survivors(data):
    """Return the steps that are read of damaged records, and whether somebody complained."""
    parser, found = TensorBoard().parser(), []
    try:
        found.extend(parser.feed(data))
    except ValueError as error:
        return [row.step for row in found if isinstance(row, Row)], str(error)
    return [row.step for row in found if isinstance(row, Row)], ""


def test_a_damaged_record_costs_itself():
    """One whose checksum is wrong is passed over."""
    bad = bytearray(scalar(2, "loss", 1.0))
    bad[20] ^= 0x40

    assert survivors(version() + scalar(1, "loss", 1.0) + bad + scalar(3, "loss", 1.0)) == ([1, 3], "1 damaged records")


@pytest.mark.parametrize("hole", [b"\0" * 5000, b"\xff" * 100, struct.pack("<Q", 1 << 60) + bytes(4), b"x" * 13])
def test_a_hole_costs_itself(hole):
    """Behind what is no record the next whole one is found."""
    data = version() + scalar(1, "loss", 1.0) + hole + scalar(2, "loss", 1.0) + scalar(3, "loss", 1.0)

    assert survivors(data) == ([1, 2, 3], "1 damaged records")


def test_lengths_are_bounded():
    """A record of a terabyte, with the right checksum of its length, takes no memory."""
    from tests.follow.binary import masked

    for length in (1 << 30, 1 << 45, 1 << 60):
        head = struct.pack("<Q", length)
        parser = TensorBoard().parser()
        for _ in range(20):
            try:
                assert list(parser.feed(version() + head + masked(head) + bytes(100_000))) == []
            except ValueError:
                continue
        assert len(parser._buffer) < 200_000


def test_a_large_record_is_passed_over():
    """A picture of eight megabytes costs nothing but its bytes."""
    picture = event(1, field(1, "sample") + field(4, field(4, bytes(8_000_000))))

    assert survivors(version() + picture + scalar(2, "loss", 1.0)) == ([2], "")


# Real writers --------------------------------------------------------------------------------------------------------

WRITER = """
import sys, time
from {module} import SummaryWriter
writer = SummaryWriter(sys.argv[1], flush_secs=1)
for step in range(60):
    writer.add_scalar("train/loss", 4.0 - step / 16, step)
    writer.add_scalar("val/loss", 5.0 - step / 16, step)
    writer.flush()
    time.sleep(0.01)
writer.close()
"""


@pytest.mark.parametrize("module", ["tensorboardX", "torch.utils.tensorboard"])
def test_followed_while_it_is_written(tmp_path, module):
    """All steps of a program that writes come once and in order."""
    pytest.importorskip(module)
    with subprocess.Popen([sys.executable, "-c", WRITER.format(module=module), str(tmp_path)]) as process:
        follower = Follower([Source(str(tmp_path))], rate=math.inf, clock=lambda: clock[0])
        clock, losses, results = [2e9], [], []
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            has_ended = process.poll() is not None
            clock[0] += 11.0
            for run in follower.poll():
                losses += [(step.step, step.values["loss"]) for step in run.steps]
                results += [(e.step, e.fields["values"]["loss"]) for e in run.events if e.kind == "evaluation"]
            if has_ended:
                break
            time.sleep(0.02)
        follower.close()
        assert process.returncode == 0

    assert losses == [(step, 4.0 - step / 16) for step in range(60)]
    assert results == [(step, 5.0 - step / 16) for step in range(60)]


def test_the_library_reads_what_we_write(tmp_path):
    """The fixture is an event file for TensorBoard itself."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (tmp_path / "events.out.tfevents.1.node").write_bytes(tensorboard_file())
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()

    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [
        (10, 3.75), (20, 3.5), (30, 3.25), (40, 3.0), (50, 2.75),
    ]  # fmt: skip


# Files of one run ----------------------------------------------------------------------------------------------------


def follow(tmp_path, **more):
    """Return the runs below a folder."""
    clock = iter(range(2_000_000_000, 2_100_000_000, 11))
    follower = Follower([Source(str(tmp_path))], clock=lambda: float(next(clock)), **{"rate": math.inf, **more})
    runs = {}
    for _ in range(40):
        for run in follower.poll():
            told = runs.setdefault(run.name, ([], [], []))
            told[0].extend((step.step, step.values["loss"]) for step in run.steps)
            told[1].extend((e.fields["name"], e.fields["values"]) for e in run.events if e.kind == "evaluation")
            told[2].extend(e.fields["previous_step"] for e in run.events if e.kind == "restart")
    follower.close()
    return runs


@pytest.mark.parametrize("rate", [math.inf, 1000.0])
def test_a_run_that_was_resumed_in_another_file(tmp_path, rate):
    """All files of a folder are one run, in the order of their times; the step that goes back is an attempt."""
    first, second = ([scalar(step, "train/loss", 9.0 - step) for step in range(low, low + 40)] for low in (0, 30))
    folder = tmp_path / "run7"
    folder.mkdir()
    (folder / "events.out.tfevents.1772000000.node.11.0").write_bytes(version() + b"".join(first))
    (folder / "events.out.tfevents.1772009000.node.22.0").write_bytes(version() + b"".join(second))

    # That some losses are the same makes them no lines of another rank.
    steps = [(step, 9.0 - step) for step in (*range(40), *range(30, 70))]
    assert follow(tmp_path, rate=rate) == {"run7": (steps, [], [39])}


def test_a_run_with_a_folder_for_each_split(tmp_path):
    """Keras' training and its validation are one run."""
    for split, loss in (("train", 2.5), ("validation", 2.75)):
        (tmp_path / "fit" / split).mkdir(parents=True)
        body = field(1, 1) + field(4, struct.pack("<f", loss))
        data = version() + tensor(3, "epoch_loss", body)
        (tmp_path / "fit" / split / "events.out.tfevents.1772000000.node.1.v2").write_bytes(data)

    assert follow(tmp_path) == {"fit": ([(3, 2.5)], [("validation", {"loss": 2.75})], [])}


def curve(first, last, at, top=9.0, pause=10.0):
    """Return scalars of steps that begin at a time (seconds after START) and come every ``pause`` seconds."""
    return [scalar(n, "train/loss", top - n / 64, time=START + at + pause * (n - first)) for n in range(first, last)]


def test_a_run_that_goes_on_in_another_file_is_one_attempt(tmp_path):
    """Only steps that go back make another one."""
    folder = tmp_path / "run7"
    folder.mkdir()
    first, second = curve(0, 40, 0.0), curve(40, 70, 9000.0)
    (folder / "events.out.tfevents.1772000000.node.11.0").write_bytes(version() + b"".join(first))
    (folder / "events.out.tfevents.1772009000.node.22.0").write_bytes(version() + b"".join(second))

    assert follow(tmp_path) == {"run7": ([(n, 9.0 - n / 64) for n in range(70)], [], [])}


@pytest.mark.parametrize("rate", [math.inf, 1000.0])
def test_ranks_that_write_into_one_folder(tmp_path, rate):
    """One is heard, and no attempt is made of the others; the run that is resumed by all of them has two."""
    folder = tmp_path / "run7"
    folder.mkdir()
    for rank in range(3):
        ours, resumed = curve(0, 100, rank / 8, 9.0 + rank), curve(64, 120, 5000.0 + rank / 8, 9.0 + rank)
        (folder / f"events.out.tfevents.177200000{rank}.n{rank}.11.0").write_bytes(version() + b"".join(ours))
        (folder / f"events.out.tfevents.177200500{rank}.n{rank}.22.0").write_bytes(version() + b"".join(resumed))

    steps = [(n, 9.0 - n / 64) for n in (*range(100), *range(64, 120))]
    assert follow(tmp_path, rate=rate) == {"run7": (steps, [], [99])}


def test_ranks_that_write_into_one_folder_at_the_same_time(tmp_path):
    """Also while they write, and after a restart of the exporter in the middle."""
    folder, positions = tmp_path / "logs" / "run7", str(tmp_path / "positions.json")
    folder.mkdir(parents=True)
    records = [curve(0, 90, rank / 8, 9.0 + rank) for rank in range(2)]
    paths = [folder / f"events.out.tfevents.177200000{rank}.n{rank}.11.0" for rank in range(2)]
    for path in paths:
        path.write_bytes(version())
    clock = iter(range(2_000_000_000, 2_100_000_000, 11))
    steps, restarts = [], 0
    for begin in range(0, 90, 5):
        if begin % 30 == 0:
            follower = Follower(
                [Source(str(tmp_path / "logs"))], rate=math.inf, positions=positions, clock=lambda: float(next(clock))
            )
        for path, own in zip(paths, records, strict=True):
            with path.open("ab") as file:
                file.write(b"".join(own[begin : begin + 5]))
        (run,) = follower.poll()
        steps += [(step.step, step.values["loss"]) for step in run.steps]
        restarts += sum(event.kind == "restart" for event in run.events)
        follower.save()
        if begin % 30 == 25:
            follower.close()

    assert [(n, 9.0 - n / 64) for n in range(90)] == steps
    assert 0 == restarts == run.attempt


def test_values_that_are_written_beside_the_loss(tmp_path):
    """A second writer of the process, without a loss, is no attempt either."""
    folder = tmp_path / "run7"
    folder.mkdir()
    beside = [scalar(n, "gpu/power", 300.0, time=START + 10.0 * n + 1.0) for n in range(40)]
    (folder / "events.out.tfevents.1772000000.node.11.0").write_bytes(version() + b"".join(curve(0, 40, 0.0)))
    (folder / "events.out.tfevents.1772000001.node.11.1").write_bytes(version() + b"".join(beside))

    assert follow(tmp_path) == {"run7": ([(n, 9.0 - n / 64) for n in range(40)], [], [])}
