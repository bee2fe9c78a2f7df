"""What the exporter sees is in the journal, once, however often the exporter is restarted."""

from __future__ import annotations

import json
import logging
import os
import threading
from types import SimpleNamespace

import pytest
from tests.helpers import PATIENCE, Node, run_trainer, wait_until

from trainvitals.collect import scribe as scribes
from trainvitals.collect.base import NoData, Sink, Tally
from trainvitals.collect.faults import FaultSeen
from trainvitals.collect.journal import JournalCollector
from trainvitals.collect.ranks import RanksCollector
from trainvitals.collect.runs import Finding
from trainvitals.collect.scribe import Scribe
from trainvitals.collect.scribe_node import NodeWatch
from trainvitals.collect.scribe_runs import _Seen
from trainvitals.detect import Verdict
from trainvitals.detect.changes import ChangeWatch
from trainvitals.journal import Entry, Journal
from trainvitals.telemetry import DeviceSample

_TRAINER = """
    import math, trainvitals as tv
    tv.init(run="llama", target_steps=100, rank={rank}, world_size=2)
    for step in range(40):
        if step == 10:
            tv.event("change", name="batch_size", old=8, new=16)
        tv.step(step, loss=math.nan if step >= 30 else 2.0, learning_rate=1e-3)
        if step % 20 == 19:
            with tv.checkpoint(step, path="/ckpt/%d" % step):
                pass
            tv.evaluate(step, loss=1.5, accuracy=0.5)
    tv.event("note_of_mine", "hello \\x1b[31m", answer=42)
    {end}
"""


class Here:
    """An exporter's collector of ranks with a journal, on one spool; it can be started again."""

    def __init__(self, spool, path, **options):
        self.spool, self.path, self.options = spool, path, options
        self.start()

    def start(self):
        """Start it, also after it was killed."""
        self.node = Node(self.spool)
        self.journal = Journal(str(self.path), clock=self.node.clock, node="n1")
        watch = self.options.get("watch") or NodeWatch()
        keep = self.options.get("keep", 1e7)
        self.scribe = Scribe(self.journal, watch, keep=keep, size=10**8, clock=self.node.clock)
        self.node.collector = RanksCollector(
            self.node.spool, self.node.runs, self.node.clock, scribe=self.scribe
        )  # fmt: skip

    def round(self):
        """Poll the sources, and write."""
        self.node.scrape()
        self.scribe.write()

    def rows(self):
        """Return all that is in the journal, comparable."""
        found = [repr(entry) for entry in self.journal.events(None)]
        return sorted(found), [(a.rank, a.attempt, a.began) for a in self.journal.attempts("llama")]


@pytest.fixture
def two_ranks(spool):
    """Give a spool in which two ranks of a run ended, one of them by an exception."""
    assert 0 == run_trainer(_TRAINER.format(rank=0, end=""), spool).returncode
    assert 1 == run_trainer(_TRAINER.format(rank=1, end="raise ValueError('bad batch')"), spool).returncode
    return spool


def test_all_that_a_run_tells_is_in_the_journal(two_ranks, tmp_path):
    """Events of each rank, changes of the run, its findings, its attempts and how far it came."""
    here = Here(two_ranks, tmp_path / "journal.db")
    here.round()

    entries = here.journal.events("llama")
    checkpoints = [(e.rank, e.step) for e in entries if e.kind == "checkpoint"]
    assert sorted(checkpoints) == [(0, 19), (0, 39), (1, 19), (1, 39)]
    (text,) = {e.text for e in entries if e.kind == "evaluation"}
    assert "validation loss 1.5, accuracy 0.5" == text
    changes = [(e.step, e.text) for e in entries if e.kind == "change"]
    assert (9, "batch size 8 -> 16 at step 9") in changes
    (error,) = [e for e in entries if e.kind == "error"]
    assert (1, "ValueError: bad batch") == (error.rank, error.text)
    own = [e for e in entries if e.kind == "event" and e.details["kind"] == "note_of_mine"]
    assert [42, 42] == [e.details["answer"] for e in own]
    finding = next(e for e in entries if e.kind == "finding" and e.details["signal"] == "loss_nonfinite")
    assert (30, "parameter", "n1") == (finding.step, finding.details["category"], finding.node)
    attempts = here.journal.attempts("llama")
    assert [(0, "finished", 0, 39, 40), (1, "failed", 0, 39, 40)] == [
        (a.rank, a.state, a.first_step, a.last_step, a.steps) for a in attempts
    ]
    assert all(a.ended is not None and a.phases for a in attempts)
    (run,) = here.journal.runs()
    assert ("llama", "n1", "failed", 39, 100, 2) == (
        *(run.run, run.node, run.state, run.step, run.target, run.world_size),
    )


def test_an_exporter_that_is_killed_and_started_again_writes_nothing_twice(two_ranks, tmp_path):
    """The ring and the events are read from their begin: nothing new is in the journal."""
    here = Here(two_ranks, tmp_path / "journal.db")
    here.round()
    here.round()
    before = here.rows()
    for _ in range(3):
        here.start()
        here.round()
        here.round()

    assert before == here.rows()


def test_a_scrape_writes_nothing(two_ranks, tmp_path):
    """What is found waits for the end of the round."""
    here = Here(two_ranks, tmp_path / "journal.db")
    here.node.scrape()

    assert [] == here.journal.events(None)
    here.scribe.write()
    assert here.journal.events(None)


def test_what_is_older_than_the_journal_remembers_is_left_out(two_ranks, tmp_path):
    """An old log that is read for the first time must not fill it with what is removed at once."""
    here = Here(two_ranks, tmp_path / "journal.db", keep=3600.0)
    here.node.ahead = 4000.0
    here.round()

    assert [] == here.journal.events("llama", kinds=("checkpoint", "evaluation", "event"))


def test_a_flood_of_events_is_bounded(spool, tmp_path):
    """A training that tells of everything costs itself, and it is counted."""
    script = "import trainvitals as tv\ntv.init(run='flood')\nfor i in range(700): tv.event('tick', str(i))"
    assert 0 == run_trainer(script, spool).returncode
    here = Here(spool, tmp_path / "journal.db")
    here.round()

    told = here.journal.events("flood", kinds=["event"])
    assert 499 == len(told)  # The first of the 500 events is its start, which the attempts tell.
    assert 201 == here.scribe.left_out


def test_a_finding_begins_and_ends_once(spool, tmp_path):
    """It is over in the journal when it is over, also if the exporter was down then."""
    here = Here(spool, tmp_path / "journal.db")

    lead = SimpleNamespace(changes=SimpleNamespace(watch=ChangeWatch()), last_step=SimpleNamespace(step=50))

    def look(*signals):
        seen = here.scribe._runs._runs.setdefault("llama", _Seen())
        verdicts = [(signal, Verdict(ratio=2.0, since_step=since, evidence="e")) for signal, since in signals]
        found = [Finding(signal, "data", verdict, (3, 4)) for signal, verdict in verdicts]
        here.scribe._runs._findings("llama", seen, lead, found, here.node.clock())
        here.scribe.write()

    look(("loss_spike", 7))
    look(("loss_spike", 7), ("stall", None))
    here.start()
    look(("loss_spike", 7), ("stall", None))
    here.start()
    look(("stall", None))
    look()
    look(("loss_spike", 60))

    told = [(e.kind, e.details["signal"], e.step) for e in here.journal.events("llama")]
    assert [
        ("finding", "loss_spike", 7), ("finding", "stall", None), ("over", "loss_spike", 50), ("over", "stall", 50),
        ("finding", "loss_spike", 60),
    ] == told  # fmt: skip


def test_devices_and_the_kernel_are_watched(spool, tmp_path):
    """Each fault and each change of a device is there once, whatever restarts the exporter makes."""
    state = {"up": True, "faults": [], "kernel": []}

    def devices():
        sample = DeviceSample(index=3, uuid="GPU-3", vendor="nvidia", name="H200")
        return [sample if state["up"] else sample.down("lost")]

    def watch():
        return NodeWatch(devices, lambda: state["faults"], lambda: state["kernel"])

    here = Here(spool, tmp_path / "journal.db", watch=watch())
    now = here.node.clock()

    def again():
        here.options["watch"] = watch()
        here.start()

    here.round()
    assert [] == here.journal.events(None)
    state["up"] = False
    state["faults"] = [FaultSeen(now, "3", 79, 1, "critical", "fallen off the bus", "0000:05:00.0")]
    state["kernel"] = [("oom_kill", "python", now + 1.0)]
    here.round()
    again()
    state["faults"] = [FaultSeen(now + 2.0, "0000:05:00.0", 79, 1, "critical", "fallen off the bus", "0000:05:00.0")]
    here.round()
    state["up"] = True
    state["faults"] = [FaultSeen(now + 90.0, "3", 79, 2, "critical", "fallen off the bus", "0000:05:00.0")]
    here.round()
    again()
    here.round()

    told = sorted(e.text for e in here.journal.events(""))
    assert [
        "XID 79 on device 3: fallen off the bus", "XID 79 on device 3: fallen off the bus", "device 3 answers again",
        "device 3 does not answer: lost", "oom kill (python)",
    ] == told  # fmt: skip


def test_a_disk_that_takes_nothing_hurts_no_scrape(two_ranks, tmp_path, caplog):
    """The families are there, one line is told, and what waits is written later."""
    folder = tmp_path / "file"
    folder.write_text("no folder")
    with caplog.at_level(logging.WARNING):
        here = Here(two_ranks, folder / "journal.db")
        here.round()
        scrape = here.node.scrape()
        here.scribe.write()

    assert scrape['trainvitals_step{rank="0",run="llama"}'] == 39
    assert 1 == len([record for record in caplog.records if "journal.db" in record.getMessage()])
    assert here.journal.waiting > 10
    os.unlink(folder)
    here.scribe.write()
    assert 0 == here.journal.waiting
    assert here.journal.events("llama")


def test_a_file_system_that_hangs_stops_no_round(two_ranks, tmp_path, monkeypatch):
    """Rounds go on, what waits is bounded, and the end of the exporter does not wait for it."""
    monkeypatch.setattr(scribes, "_MOST_WAITING", 20)
    monkeypatch.setattr(scribes, "_LAST_WORDS", 0.01)
    here = Here(two_ranks, tmp_path / "journal.db")
    hangs, released = threading.Event(), threading.Event()

    def extend(rows):
        hangs.set()
        assert released.wait(PATIENCE)
        return Journal.extend(here.journal, rows)

    here.journal.extend = extend
    here.node.scrape()
    here.scribe.wake()
    assert hangs.wait(PATIENCE)
    for step in range(50):
        here.scribe.entry(Entry(kind="note", run="llama", time=here.node.clock(), step=step))
        here.node.scrape()
        here.scribe.wake()
    assert 20 == len(here.scribe._rows)
    assert 30 <= here.scribe.left_out
    here.scribe.close()
    released.set()
    wait_until(lambda: here.journal.events("llama", kinds=["checkpoint"]))


def test_interruptions_are_series(spool, tmp_path):
    """By run and cause, with what they cost as far as it is known; nothing is 0 that is unknown."""
    here = Here(spool, tmp_path / "journal.db")
    journal = here.journal
    journal.record_incident("llama", "killed", detected=100.0, steps_lost=5, seconds_lost=2.5)
    journal.record_incident("llama", "killed", detected=200.0, steps_lost=7)
    journal.record_incident("llama", "hang", detected=150.0)
    sink = Sink(Tally(), limit=1000, collector="journal")

    JournalCollector(here.scribe).collect(sink)

    found = {
        (sample.name, *sample.labels.values()): sample.value for family in sink.families() for sample in family.samples
    }
    assert 2 == found["trainvitals_incidents_total", "llama", "killed"]
    assert 12 == found["trainvitals_incident_steps_lost_total", "llama", "killed"]
    assert 2.5 == found["trainvitals_incident_seconds_lost_total", "llama", "killed"]
    assert 200.0 == found["trainvitals_last_incident_timestamp_seconds", "llama", "killed"]
    assert 1 == found["trainvitals_incidents_total", "llama", "hang"]
    assert ("trainvitals_incident_steps_lost_total", "llama", "hang") not in found
    assert 0 == found["trainvitals_journal_rows_waiting",]
    assert json.dumps(found["trainvitals_journal_bytes",]) != "0"


def test_without_a_journal_there_is_nothing():
    """Switched off, or unusable: that is no failure of the collector."""
    with pytest.raises(NoData):
        JournalCollector(None).collect(Sink(Tally(), limit=10, collector="journal"))
