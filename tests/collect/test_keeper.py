"""What detectors know survives a restart of the exporter: nothing is judged twice, nothing in between is lost."""

from __future__ import annotations

import json
import math
import os
import random
import re
import struct
import sys

import pytest
from tests.helpers import Scrape

from trainvitals import detect, rankfile
from trainvitals.collect import states
from trainvitals.collect.base import Sink, Tally
from trainvitals.collect.keeper import Keeper
from trainvitals.collect.logs import LogsCollector
from trainvitals.collect.ranks import RanksCollector
from trainvitals.collect.runs import Runs
from trainvitals.collect.spool import Spool
from trainvitals.config import load

THEN = 1_700_000_000.0
CHANCE = random.Random(7)
LOSSES = [2.0 + 3.0 * math.exp(-index / 100) + CHANCE.gauss(0.0, 0.02) for index in range(2000)]


class Recorder:
    """A detector that says what it was told."""

    signal, category, needs = "recorder", "data", "nothing"

    def __init__(self):
        self.told = []

    def observe(self, step):
        """Take a step."""
        self.told.append((step.step, step.values.get("loss")))

    def observe_event(self, event):
        """Take an event."""
        if event.kind != "phases":
            self.told.append(event.kind)

    def verdict(self):
        """Say nothing."""


class Recorders:
    """Makes detectors of which the last is a recorder; its class passes for one of the package."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(Recorder, "__module__", "trainvitals.detect.recorder")
        monkeypatch.setitem(sys.modules, "trainvitals.detect.recorder", sys.modules[__name__])

    def __call__(self):
        """Make them."""
        return [*detect.build(), Recorder()]


class Node:
    """Collectors with a keeper, on a spool and a folder of logs, with a clock of their own."""

    def __init__(self, folder, make=detect.build):
        self.spool, self.logs_folder = folder / "spool", folder / "logs"
        self.state = folder / "state"
        self.spool.mkdir()
        self.logs_folder.mkdir()
        self.make = make
        self.now = THEN
        self.start()

    def start(self):
        """Start the exporter, also after it was killed."""
        settings = load(None, {}, {"sources.paths": [str(self.logs_folder)]})
        positions, kept = self.state / "logs.json", self.state / "judgement.state"
        self.logs = LogsCollector.from_settings(settings.sources, str(positions), self.clock)
        self.keeper = Keeper(str(kept), logs=self.logs, clock=self.clock, monotonic=self.clock)
        self.runs = Runs(self.make, self.keeper)
        spool = Spool([str(self.spool)], keep=3600.0, remove=False, clock=self.clock, monotonic=self.clock)
        self.ranks = RanksCollector(spool, self.runs, self.clock, self.logs.poll)

    def stop(self):
        """Stop it as it should be."""
        self.logs.stop()
        self.runs.keep(now=True)

    def clock(self):
        """Return the time."""
        return self.now

    def scrape(self, after=5.0):
        """Take a snapshot, some seconds later."""
        self.now += after
        sink = Sink(Tally(), limit=2000, collector="ranks")
        self.logs.collect(sink)
        self.ranks.collect(sink)
        return Scrape(sink.families())

    def told(self):
        """Return what the recorder of the only rank was told."""
        (rank,) = self.runs.ranks()
        return rank.detectors[-1].told

    def signals(self):
        """Return what is said of the signals now."""
        found = {name: value for name, value in self.scrape(0.0).items() if "signal" in name or "finding" in name}
        return {name: value for name, value in found.items() if "stall" not in name}

    def write(self, text, name="train.log", after=5.0):
        """Append to a log."""
        self.now += after
        path = self.logs_folder / name
        with path.open("a") as file:
            file.write(text)
        os.utime(path, (self.now, self.now))


class Trainer:
    """A rank file that a test writes."""

    def __init__(self, node, name="a", **identity):
        self.node = node
        self.path = node.spool / f"{name}.rank"
        self.writer = rankfile.Writer(str(self.path), {"run": "test", "rank": 0, **identity})
        self.started = self.writer.state.heartbeat
        self.count = 0

    def steps(self, losses, seconds=1.0):
        """Report a step for each loss."""
        writer = self.writer
        if "loss" not in writer.names:
            writer.names.append("loss")
            writer.write_text()
        for loss in losses:
            self.count += 1
            moment = self.started + seconds * self.count
            writer.write_record(self.count, self.count, self.count, moment, {writer.names.index("loss"): loss})
            writer.state.count = writer.state.step = writer.state.records = self.count
        writer.write_state()
        return self

    def event(self, kind, **fields):
        """Append an event."""
        now = self.node.now
        with self.path.with_suffix(".events").open("a") as file:
            file.write(json.dumps({"kind": kind, "step": self.count, "time": now, **fields}) + "\n")
        return self


def lines(first, last, loss=None):
    """Return lines of a log."""
    return "".join(
        f"iter {step}: loss {LOSSES[step] if loss is None else loss:.4f}, time 250.00ms, mfu 31.00%\n"
        for step in range(first, last + 1)
    )


@pytest.fixture
def node(tmp_path):
    """A node with the real detectors."""
    return Node(tmp_path)


@pytest.fixture
def recording(tmp_path, monkeypatch):
    """A node whose detectors include one that says what it was told."""
    return Node(tmp_path, Recorders(monkeypatch))


def test_a_rank_file_goes_on_after_a_stop(recording):
    """Each step and event is judged once, though the whole ring and all events are read again."""
    node = recording
    trainer = Trainer(node).steps(LOSSES[:100]).event("evaluation", name="validation", values={"loss": 2.5})
    node.scrape()
    trainer.steps(LOSSES[100:120])
    node.scrape()
    node.stop()
    trainer.event("checkpoint", action="save", ok=True).steps(LOSSES[120:130])
    node.start()
    scrape = node.scrape()
    trainer.steps(LOSSES[130:140])
    node.scrape()

    told = node.told()
    assert [item[0] for item in told if isinstance(item, tuple)] == list(range(1, 141))
    assert [item for item in told if isinstance(item, str)] == ["evaluation", "checkpoint"]
    # What is shown of the rank is made of all that was read.
    assert scrape['trainvitals_evaluation{name="loss",rank="0",run="test",split="validation"}'] == 2.5
    assert scrape['trainvitals_events_total{kind="evaluation",rank="0",run="test"}'] == 1.0
    assert scrape['trainvitals_step{rank="0",run="test"}'] == 130.0


def test_what_the_ring_forgot_is_still_known(node):
    """Detectors know the level of long ago: what they say is what one that was never stopped says."""
    trainer = Trainer(node)
    other = Runs(detect.build)
    spool = Spool([str(node.spool)], keep=3600.0, remove=False, clock=node.clock, monotonic=node.clock)
    for begin in range(0, 1600, 100):
        trainer.steps(LOSSES[begin : begin + 100])
        trainer.event("evaluation", name="validation", values={"loss": LOSSES[begin] + 0.01 * begin / 100})
        node.scrape()
        other.update(spool.poll(), node.now)
        if begin in {400, 900, 1300}:
            node.stop()
            node.start()
            node.scrape()

    def said(runs):
        return {one.signal: one.verdict for one in runs.findings(runs.ranks(), node.now) if one.signal != "stall"}

    assert repr(said(node.runs)) == repr(said(other))
    assert len(said(other)) > 5


def test_an_exporter_that_was_killed_judges_what_came_since_the_last_save(recording):
    """It is saved every minute; what was judged behind that is read from the ring again."""
    node = recording
    trainer = Trainer(node)
    for begin in range(0, 400, 10):
        trainer.steps(LOSSES[begin : begin + 10])
        if begin % 100 == 0:
            trainer.event("evaluation", name="validation", values={"loss": 2.5})
        node.scrape()
    saved = node.scrape()["trainvitals_state_saved_timestamp_seconds"]
    assert THEN + 120.0 < saved < node.now
    node.start()
    node.scrape()

    told = node.told()
    assert [item[0] for item in told if isinstance(item, tuple)] == list(range(1, 401))
    assert told.count("evaluation") == 4


def test_a_log_goes_on_after_a_stop(recording):
    """Evaluations that were told long ago are known, and none is told twice."""
    node = recording
    node.write("step 0: train loss 4.0000, val loss 4.1250\n" + lines(1, 300))
    node.scrape()
    node.scrape()
    node.write(lines(301, 320) + "step 320: train loss 2.0000, val loss 2.2500\n")
    node.scrape()
    node.stop()
    node.write(lines(321, 330) + "step 330: train loss 2.0000, val loss 2.1250\n")
    node.start()
    node.scrape()
    node.write(lines(331, 340))
    node.scrape()

    told = node.told()
    assert [item[0] for item in told if isinstance(item, tuple)] == list(range(1, 341))
    assert told.count("evaluation") == 3


@pytest.mark.parametrize("seed", range(5))
def test_a_log_goes_on_after_a_kill(recording, seed):
    """At any moment between two saves: each step and each evaluation is judged once."""
    node, chance = recording, random.Random(seed)
    step = evaluations = 0
    for _ in range(60):
        count = chance.randrange(1, 15)
        text = lines(step + 1, step + count)
        step += count
        if chance.random() < 0.3:
            text += f"step {step}: train loss 2.0000, val loss 2.2500\n"
            evaluations += 1
        node.write(text)
        for _ in range(chance.randrange(1, 3)):
            node.scrape(chance.choice([5.0, 20.0]))
        if chance.random() < 0.1:
            node.start()
    node.scrape()
    node.scrape()

    told = node.told()
    assert [item[0] for item in told if isinstance(item, tuple)] == list(range(1, step + 1))
    assert told.count("evaluation") == evaluations


def test_a_log_is_never_remembered_further_than_it_was_judged(node):
    """Its position is written behind the states, once a minute."""
    node.write(lines(1, 10))
    node.scrape()
    node.scrape()
    assert not (node.state / "logs.json").exists()
    node.scrape(60.0)
    assert (node.state / "logs.json").exists()
    assert (node.state / "judgement.state").exists()


def test_a_log_that_began_anew_without_its_position_is_judged_anew(recording):
    """Where the position is lost nobody knows what the marks mean."""
    node = recording
    node.write(lines(1, 50))
    node.scrape()
    node.scrape()
    node.stop()
    (node.state / "logs.json").unlink()
    node.start()
    node.scrape()

    assert [item[0] for item in node.told()] == list(range(1, 51))
    assert node.keeper.errors == {}


def test_an_error_of_a_log_is_still_a_finding(node):
    """It was told once, before the restart."""
    node.write(lines(1, 30) + "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n")
    node.scrape()
    node.scrape()
    before = [name for name in node.signals() if name.startswith("trainvitals_finding_info")]
    node.stop()
    node.start()
    node.scrape()
    assert len(before) == 1
    assert [name for name in node.signals() if name.startswith("trainvitals_finding_info")] == before


def test_another_process_with_the_file_of_before_goes_on_in_the_run(recording):
    """The training was restarted while the exporter was away: the detectors see it go on."""
    node = recording
    Trainer(node, "a").steps(LOSSES[:50]).writer.close()
    node.scrape()
    node.stop()
    second = Trainer(node, "b", attempt=1)
    second.steps(LOSSES[50:60])
    node.start()
    node.scrape()
    assert [item[0] for item in node.told()] == [*range(1, 51), *range(1, 11)]


def test_a_file_in_the_place_of_another_is_another(recording):
    """The same path and name, and another start."""
    node = recording
    first = Trainer(node)
    first.steps(LOSSES[:50])
    node.scrape()
    node.stop()
    first.writer.close()
    first.path.unlink()
    node.now += 10.0
    Trainer(node).steps(LOSSES[50:70])
    node.start()
    node.scrape()
    assert [item[1] for item in node.told()] == LOSSES[50:70]


def test_a_rank_that_comes_back_later_is_known(recording):
    """The spool may be mounted after the exporter was started; what was kept is kept on."""
    node = recording
    trainer = Trainer(node).steps(LOSSES[:50])
    node.scrape()
    node.stop()
    hidden = trainer.path.with_suffix(".hidden")
    trainer.path.rename(hidden)
    for _ in range(2):
        node.start()
        Trainer(node, "other", rank=3).steps(LOSSES[:5]).writer.close()
        node.scrape()
        node.scrape(120.0)
    hidden.rename(trainer.path)
    trainer.steps(LOSSES[50:60])
    node.scrape()
    rank = next(rank for rank in node.runs.ranks() if rank.identity.rank == 0)
    assert [item[0] for item in rank.detectors[-1].told] == list(range(1, 61))


def damage(path, how):
    """Damage the file of the states."""
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    elif how == "other":
        path.write_bytes(b"hello\n" * 100)
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "huge":
        path.write_bytes(data[:8] + struct.pack("<II", 2**32 - 1, 0))
    elif how == "folder":
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize("how", ["cut", "flipped", "other", "empty", "huge", "folder"])
def test_a_damaged_file_is_counted_and_logged_once(recording, how, caplog):
    """All is judged afresh, from what the ring holds."""
    node = recording
    trainer = Trainer(node).steps(LOSSES[:50])
    node.scrape()
    node.stop()
    damage(node.state / "judgement.state", how)
    node.start()
    trainer.steps(LOSSES[50:60])
    scrape = node.scrape()
    node.scrape(120.0)

    assert [item[0] for item in node.told()] == list(range(1, 61))
    assert sum(value for name, value in scrape.items() if name.startswith("trainvitals_state_errors_total")) == 1.0
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1 + (how == "folder")


def test_a_full_disk_is_counted_and_logged_once(node, caplog, monkeypatch):
    """The exporter goes on, and saves as soon as there is room."""
    Trainer(node).steps(LOSSES[:50])

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("trainvitals.collect.states.replace_file", full)
        node.scrape()
        for _ in range(3):
            scrape = node.scrape(61.0)
    assert scrape['trainvitals_state_errors_total{reason="save"}'] == 3.0
    assert "trainvitals_state_saved_timestamp_seconds" not in scrape
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    node.scrape(61.0)
    assert node.scrape()["trainvitals_state_bytes"] > 1000.0


def test_a_detector_that_cannot_be_restored_costs_itself_alone(node, monkeypatch):
    """It begins afresh, from what the ring still holds, and is counted."""
    Trainer(node).steps(LOSSES[:400])
    node.scrape()
    before = node.signals()
    node.stop()
    restored = detect.state.restore
    monkeypatch.setattr("trainvitals.detect.state.restore", lambda *given: [*restored(*given), "plateau"])
    node.start()
    node.scrape()
    after = node.signals()
    assert node.keeper.errors == {"detector": 1}
    assert after == before
    node.stop()
    node.start()
    # What a rank file does not hold any more is known by the others only.
    monkeypatch.setattr("trainvitals.rankfile.Reader.read_records", lambda *_: ([], 0))
    node.scrape()

    def without(found):
        return {name: value for name, value in found.items() if 'signal="plateau"' not in name}

    assert without(node.signals()) == without(before)
    assert node.signals() != before


def test_a_state_that_breaks_its_rank_costs_the_state_alone(recording, monkeypatch):
    """A mistake of ours must not take the series of all runs with it."""
    node = recording
    trainer = Trainer(node).steps(LOSSES[:50])
    node.scrape()
    node.stop()

    def broken(*_):
        raise AttributeError("what nobody thought of")

    monkeypatch.setattr("trainvitals.collect.rank.state.restore", broken)
    node.start()
    trainer.steps(LOSSES[50:60])
    node.scrape()
    assert [item[0] for item in node.told()] == list(range(1, 61))
    assert node.keeper.errors == {"rank": 1}


def test_ranks_that_say_nothing_new_cost_nothing(node, monkeypatch):
    """A state is made only of what was judged since."""
    Trainer(node).steps(LOSSES[:50]).writer.close()
    node.scrape()
    node.scrape(61.0)
    calls = []
    monkeypatch.setattr("trainvitals.collect.rank.state.save", lambda *given: calls.append(given))
    node.scrape(61.0)
    node.scrape(61.0)
    assert calls == []


def test_many_ranks_are_saved_over_several_polls(node, monkeypatch):
    """The rest of them waits, so that no snapshot comes late; then all are in the file."""
    for number in range(3):
        Trainer(node, str(number), rank=number).steps(LOSSES[:50])
    node.scrape()
    # Each look at the time costs 0.15 seconds: one rank or two at a poll.
    seconds = iter(range(1000))
    monkeypatch.setattr("trainvitals.collect.keeper.time.thread_time", lambda: next(seconds) * 0.15)
    path = node.state / "judgement.state"
    node.scrape(61.0)
    node.scrape()
    assert not path.exists()
    node.scrape()
    assert path.exists()
    node.start()
    node.scrape()
    assert len(node.runs.ranks()) == 3
    assert node.keeper.errors == {}


def test_without_a_path_nothing_is_kept(tmp_path):
    """A command that follows for a while leaves nothing behind."""
    node = Node(tmp_path)
    node.keeper = Keeper("", monotonic=node.clock)
    node.runs = Runs(detect.build, node.keeper)
    Trainer(node).steps(LOSSES[:10])
    node.stop()
    node.runs.keep(now=True)
    assert not (node.state / "judgement.state").exists()


class Pair:
    """Two ranks of a run in lockstep, of which the second works longer and the first waits for it."""

    def __init__(self, node):
        self.node = node
        self.ranks = [Trainer(node, f"rank{rank}", rank=rank).steps(LOSSES[:3]) for rank in range(2)]

    def train(self, minutes):
        """Train so long, seen every 30 seconds."""
        train, communication = (rankfile.PHASES.index(name) for name in ("train", "communication"))
        scrape = {}
        for _ in range(2 * minutes):
            for trainer, work in zip(self.ranks, (15.0, 27.0), strict=True):
                state = trainer.writer.state
                state.phase_seconds[train] += work
                state.phase_seconds[communication] += 30.0 - work
                state.heartbeat = state.phase_since = self.node.now + 30.0
                trainer.writer.write_state()
            scrape = self.node.scrape(30.0)
        return [
            re.search('location="(.*?)"', name)[1] for name in scrape if "finding_info" in name and "straggler" in name
        ]


@pytest.fixture
def pair(node, monkeypatch):
    """Give two ranks that live; the lock of one's own process cannot be seen."""
    monkeypatch.setattr(rankfile.Reader, "writer", lambda _: 0)
    return Pair(node)


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_what_compares_ranks_goes_on_after_a_restart(node, pair, kill):
    """A straggler that was found is one at once; one of which three windows of five were seen needs two more."""
    assert pair.train(7) == []
    if not kill:
        node.stop()
    node.start()
    assert pair.train(2) == []
    assert pair.train(3) == ["rank 1"]
    if not kill:
        node.stop()
    node.start()

    assert pair.train(1) == ["rank 1"]
    assert node.keeper.errors == {}


def test_a_comparison_that_cannot_be_restored_begins_anew(node, pair, caplog):
    """A window begins anew where counters fell; all of them where a state makes no sense, and it is said."""
    pair.train(12)
    node.stop()
    node.start()
    for trainer in pair.ranks:
        trainer.writer.state.phase_seconds = [0.0] * 16
    assert pair.train(1) == ["rank 1"]

    node.stop()
    path = node.state / "judgement.state"
    broken = [
        states.make({**record.document, "state": {}}, record.sources) if record.subject == "run" else record
        for record in states.load(str(path), print)
    ]
    states.store(str(path), broken)
    node.start()

    assert pair.train(1) == []
    assert dict(node.keeper.errors) == {"run": 1}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert pair.train(11) == ["rank 1"]
