"""From the data that a training watches to findings that name files, through the real collectors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.helpers import Node, run_trainer

from trainvitals.collect import data
from trainvitals.collect.data import RankData, in_words, rank_names
from trainvitals.rankfile import ledger
from trainvitals.telemetry import Event

NOW = 1_700_000_000.0

#: A loss that jumps for eight steps, on the samples of one shard.
SPIKE = """
    import itertools, sys, time
    import trainvitals

    def batches():
        for number in range(900):
            shard = number // 10
            keys = [f"{number:04d}/{index}" for index in range(4)]
            yield {"__url__": [f"/data/shard-{shard:05d}.tar"] * 4, "__key__": keys, "bad": shard == 85}

    trainvitals.init()
    for number, batch in enumerate(trainvitals.data(batches())):
        loss = 2.0 + (number * 7919 % 101) / 1000
        trainvitals.step(number, loss=3 * loss if batch["bad"] else loss)
    trainvitals.finish()
"""

NAN = """
    import trainvitals

    trainvitals.init()
    loader = trainvitals.data([{"idx": [number, number + 100]} for number in range(20)])
    for number, batch in enumerate(loader):
        trainvitals.step(number, loss=float("nan") if number == 7 else 1.0)
"""

ERRORS = """
    import trainvitals

    class Loader:
        def __iter__(self):
            self.left = iter(range(6))
            return self

        def __next__(self):
            number = next(self.left)
            if number in (2, 4):
                raise OSError(5, "Input/output error", f"/data/{number}.bin")
            return [number] * 3

    trainvitals.init()
    for batch in trainvitals.data(Loader(), on_error="skip"):
        trainvitals.step(loss=1.0)
"""


def findings(scrape):
    """Return location and evidence of each finding."""
    found = {}
    for series in scrape:
        if series.startswith("trainvitals_finding_info{"):
            labels = dict(part.split("=", 1) for part in series[25:-2].split('",'))
            labels = {name: value.strip('"') for name, value in labels.items()}
            found[labels["signal"]] = (labels["category"], labels["location"], labels["evidence"])
    return found


def test_a_spike_is_traced_to_its_shard(spool):
    """The detector of the exporter names the file that all of its steps have in common, and then their samples."""
    assert run_trainer(SPIKE, spool).returncode == 0

    category, location, evidence = findings(Node(spool).scrape())["loss_spike"]
    assert category == "parameter"
    assert location.startswith("rank 0; files /data/shard-00085.tar, 0850/0, 0850/1")
    assert evidence.startswith("since step 850: ")


def test_a_nan_is_traced_to_its_samples(spool):
    """Numbers where the data has no names."""
    assert run_trainer(NAN, spool).returncode == 0

    _, location, evidence = findings(Node(spool).scrape())["loss_nonfinite"]
    assert location == "rank 0; samples 7, 107"
    assert evidence.startswith("since step 7: loss is NaN in 1 step")


def test_files_that_cannot_be_read_are_a_finding(spool):
    """Which files, how many errors, and the first of them; all counted."""
    assert run_trainer(ERRORS, spool).returncode == 0

    node = Node(spool)
    scrape = node.scrape()
    assert findings(scrape)["data_error"] == (
        "data",
        "rank 0; files /data/2.bin, /data/4.bin",
        "2 or more errors in the data; first: OSError: [Errno 5] Input/output error: '/data/2.bin'",
    )
    assert scrape['trainvitals_signal_ratio{run="test",signal="data_error"}'] == 2.0
    assert scrape['trainvitals_data_errors_total{rank="0",run="test"}'] == 2.0
    assert scrape['trainvitals_batches_total{rank="0",run="test"}'] == 4.0
    assert scrape['trainvitals_batch_samples_total{rank="0",run="test"}'] == 12.0
    assert scrape['trainvitals_batch_bytes_total{rank="0",run="test"}'] == 0.0

    node.ahead = 601.0
    scrape = node.scrape()
    assert "data_error" not in findings(scrape)
    assert scrape['trainvitals_signal_ratio{run="test",signal="data_error"}'] == 0.0
    assert scrape['trainvitals_data_errors_total{rank="0",run="test"}'] == 2.0


def test_without_watching_there_are_no_series(spool):
    """What nobody watches is absent, not 0."""
    assert run_trainer("import trainvitals; trainvitals.init(); trainvitals.step(loss=1.0)", spool).returncode == 0

    assert not [name for name in Node(spool).scrape() if "batch" in name or "data_error" in name]


@pytest.mark.parametrize(
    "damage", [lambda p: os.truncate(p, 100), lambda p: (os.unlink(p), os.symlink("/etc/passwd", p))]
)
def test_a_bad_data_file_costs_itself(spool, damage):
    """It is counted; all else of the rank is shown."""
    assert run_trainer(ERRORS, spool).returncode == 0
    (name,) = [name for name in os.listdir(spool) if name.endswith(".data")]
    damage(str(spool / name))

    node = Node(spool)
    assert node.rejected() == {"data": 1.0}
    assert node.scrape()['trainvitals_steps_total{rank="0",run="test"}'] == 4.0


def test_the_data_file_goes_with_its_rank_file(spool):
    """And with the file of its events and that of its orders: the exporter removes all after an hour."""
    assert run_trainer(NAN, spool).returncode == 0
    assert len(os.listdir(spool)) == 4
    node = Node(spool)
    node.scrape()
    node.ahead = 3601.0
    node.scrape()

    assert os.listdir(spool) == []


TORCH = """
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset
    import trainvitals

    class Slow(Dataset):
        def __len__(self):
            return 30

        def __getitem__(self, index):
            time.sleep(0.01)
            return torch.tensor([float(index)])

    trainvitals.auto(run="test")
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    loader = trainvitals.data(DataLoader(Slow(), batch_size=3, shuffle=True))
    for epoch in range(2):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    print(len(loader))
"""


def test_what_two_watch_is_counted_once(spool):
    """The adapter for PyTorch watches every DataLoader as well: waiting is one time, batches are one number."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    done = run_trainer(TORCH, spool)
    assert done.returncode == 0, done.stderr

    scrape = Node(spool).scrape()
    assert scrape['trainvitals_batches_total{rank="0",run="test"}'] == 20.0
    assert scrape['trainvitals_batch_samples_total{rank="0",run="test"}'] == 60.0
    assert scrape['trainvitals_probe_errors_total{rank="0",run="test"}'] == 0.0
    seconds = {name: value for name, value in scrape.items() if "phase_seconds_total" in name}
    wall = (
        scrape['trainvitals_heartbeat_timestamp_seconds{rank="0",run="test"}']
        - (scrape['trainvitals_start_timestamp_seconds{rank="0",run="test"}'])
    )
    waiting = seconds['trainvitals_phase_seconds_total{phase="data",rank="0",run="test"}']
    assert 0.6 <= waiting <= wall
    assert sum(seconds.values()) == pytest.approx(wall, rel=0.03)


def test_the_example_names_both_files(spool):
    """One that cannot be read, and one with wrong numbers in it."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    script = Path(__file__).parents[2] / "examples" / "data.py"
    done = run_trainer(script.read_text(), spool)
    assert done.returncode == 0, done.stderr

    found = findings(Node(spool).scrape())
    assert found["data_error"][1].endswith("/damaged.txt")
    assert "/poisoned.txt, " in found["loss_nonfinite"][1]


# Words --------------------------------------------------------------------------------------------------------------


def test_what_is_in_most_steps_comes_first():
    """A shard before the samples of single steps; a name twice in a batch counts once."""
    assert rank_names([["a", "s", "a"], ["b", "s"], ["c", "s"]]) == ("s", "a", "b", "c")
    assert rank_names([]) == ()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({}, ""),
        ({0: ()}, ""),
        ({0: (7,)}, "sample 7"),
        ({0: ("a.tar",)}, "file a.tar"),
        ({0: ("a.tar", 7)}, "files a.tar, 7"),
        ({3: tuple(range(20))}, "samples 0, 1, 2, 3, 4, 5 and 14 more"),
        ({0: ("a",), 2: ("b", "c", "d", "e")}, "file a (rank 0); files b, c, d and 1 more (rank 2)"),
        ({0: ("line\nbreak",)}, "file line break"),
        ({0: ("/x/" + "y" * 300,)}, "file ..." + "y" * 117),
        ({0: ("a" * 100, "b" * 100)}, "files " + "a" * 100 + " and 1 more"),
    ],
)
def test_names_in_words(names, words):
    """Few enough for a label of 256 characters."""
    assert in_words(names) == words
    assert len(words) <= 190


# Errors and steps ---------------------------------------------------------------------------------------------------


def error(time=NOW, step=-1, **fields):
    """Return an event about an error."""
    return Event(time, "data_error", step, {"type": "OSError", "message": "gone", **fields})


def test_errors_are_a_finding_for_ten_minutes():
    """From the last one on; then the next begins a new one."""
    known = RankData()
    known.update("", 0, 0.0, NOW)
    assert known.verdict(NOW).ratio == 0.0

    known.take(error(step=3, file="/a"), NOW)
    known.update("", 0, 1.0, NOW)
    known.update("", 0, 15.0, NOW + 500)
    verdict = known.verdict(NOW + 1099)
    assert (verdict.ratio, verdict.since_step, known.bad()) == (15.0, 3, ("/a",))
    assert verdict.evidence == "10 or more errors in the data; first: OSError: gone"

    known.update("", 0, 15.0, NOW + 1101)
    assert not known.verdict(NOW + 1101).active
    known.take(error(NOW + 2000, file="/b"), NOW + 2000)
    known.update("", 0, 16.0, NOW + 2000)
    assert (known.verdict(NOW + 2000).ratio, known.bad()) == (1.0, ("/b",))


def test_errors_of_long_ago_are_no_news():
    """An exporter that is started anew reads old lines and high counters."""
    known = RankData()
    known.take(error(NOW - 700, file="/a"), NOW)
    known.update("", 0, 500.0, NOW)

    assert known.verdict(NOW).ratio == 0.0
    known.update("", 0, 501.0, NOW + 5)
    assert known.verdict(NOW + 5).evidence == "1 error in the data"


@pytest.mark.parametrize("value", [None, True, 1.5, {"a": 1}, [[]], [None, 2.0], "x" * 5000, list(range(5000))])
def test_hostile_events_are_bounded(value):
    """Any JSON may stand in a line."""
    known = RankData()
    for number in range(300):
        known.take(error(file=value, index=value, ids=value, step=number), NOW)
        known.take(Event(NOW, "data", 1, {"batches": [{"count": number, "ids": value}, value]}), NOW)
        known.take(Event(NOW, "data", 1, {"batches": value}), NOW)
    known.update("", 0, 1.0, NOW)

    assert len(known._names) <= 64 + 1024
    assert len(known._told) <= 65
    assert len(known.verdict(NOW).evidence) <= 240
    assert len(in_words({0: known.bad()})) <= 190
    assert len(in_words({0: known.suspects("s", (299,))})) <= 190


def test_what_the_training_told_is_preferred(spool):
    """It knows the files behind the numbers."""
    path = str(spool / "x.data")
    writer = ledger.LedgerWriter(path)
    writer.add(5, [17], 1)
    writer.add(6, [18], 1)
    known = RankData()
    known.update(path, os.getuid(), 0.0, NOW)
    known.take(Event(NOW, "data", 5, {"batches": [{"count": 5, "ids": ["/d/17.jpg"]}]}), NOW)

    assert known.suspects("loss_spike", (5, 6, 7)) == ("/d/17.jpg", 18)


def test_a_finding_keeps_its_names(spool):
    """The ring goes on, and a new process counts its steps from 1 again."""
    path = str(spool / "x.data")
    writer = ledger.LedgerWriter(path)
    writer.add(5, ["old"], 1)
    known = RankData()
    known.update(path, os.getuid(), 0.0, NOW)
    assert known.suspects("loss_spike", (5,)) == ("old",)
    for number in range(600):
        writer.add(1000 + number, ["other"], 1)
    assert known.suspects("loss_spike", (5,)) == ("old",)

    other = str(spool / "y.data")
    ledger.LedgerWriter(other).add(5, ["new"], 1)
    known.update(other, os.getuid(), 0.0, NOW)
    assert known.suspects("loss_spike", (5,)) == ("old",)
    assert known.suspects("loss_nonfinite", (5,)) == ("new",)


def test_a_data_file_that_is_gone_names_nothing():
    """Nor does one without a path, nor a finding without steps."""
    known = RankData()
    assert known.suspects("loss_spike", (1,)) == ()
    known.update("/nowhere/x.data", 0, 0.0, NOW)
    assert known.suspects("loss_spike", (2,)) == ()
    assert known.suspects("loss_spike", ()) == ()
    assert data.read_counters("/nowhere/x.rank", 0) is None
