"""Logs on disk become series: what is shown of them, over growth, restarts of the exporter, errors and silence."""

from __future__ import annotations

import math
import os
import time

import pytest
from tests.helpers import Scrape, trainer

from trainvitals import detect
from trainvitals.collect.base import NoData, Sink, Tally
from trainvitals.collect.logs import LogsCollector
from trainvitals.collect.ranks import RanksCollector
from trainvitals.collect.runs import Runs
from trainvitals.collect.spool import Spool
from trainvitals.config import ConfigError, load

#: When the first lines were written.
THEN = 1_700_000_000.0


def lines(first, last, loss="2.5000"):
    """Return lines of nanoGPT without times."""
    return "".join(f"iter {step}: loss {loss}, time 250.00ms, mfu 31.00%\n" for step in range(first, last + 1))


class Node:
    """An exporter's collectors of logs and ranks on a folder of logs, with a clock of its own."""

    def __init__(self, folder, positions="", **settings):
        self.folder = folder
        self.positions = str(positions)
        self.now = THEN
        self.settings = load(None, {}, {"sources.paths": [str(folder)], **settings})
        self.start()

    def start(self):
        """Start the exporter, or start it again."""
        self.logs = LogsCollector.from_settings(self.settings.sources, self.positions, self.clock)
        self.runs = Runs(detect.build)
        spool = Spool([], keep=60.0, remove=False, clock=self.clock)
        self.ranks = RanksCollector(spool, self.runs, self.clock, self.logs.poll)

    def clock(self):
        """Return the time of day."""
        return self.now

    def write(self, text, name="train.log", after=5.0):
        """Append to a log, some seconds later."""
        self.now += after
        path = self.folder / name
        with path.open("a") as file:
            file.write(text)
        os.utime(path, (self.now, self.now))

    def scrape(self, after=5.0):
        """Take a snapshot, some seconds later."""
        self.now += after
        sink = Sink(Tally(), limit=1000, collector="logs")
        self.logs.collect(sink)
        self.ranks.collect(sink)
        return Scrape(sink.families())


@pytest.fixture
def node(tmp_path):
    """A node whose exporter remembers what it read."""
    (tmp_path / "logs").mkdir()
    return Node(tmp_path / "logs", tmp_path / "state" / "logs.json")


def test_a_log_has_the_series_of_a_run(node):
    """All of them, with their values; what a log does not tell is absent."""
    node.write("step 0: train loss 4.0000, val loss 4.1250\n" + lines(1, 3))
    written = node.now
    scrape = node.scrape()

    rank = 'rank="0",run="train"'
    fixed = {name: value for name, value in scrape.items() if 'run="train"' in name and "duration" not in name}
    size = (node.folder / "train.log").stat().st_size
    assert fixed == {
        'trainvitals_log_info{format="nanogpt",run="train"}': 1.0,
        'trainvitals_log_grown_timestamp_seconds{run="train"}': written,
        'trainvitals_log_newest_timestamp_seconds{run="train"}': written,
        'trainvitals_log_silence_seconds{run="train"}': 600.0,
        'trainvitals_log_read_bytes_total{run="train"}': size,
        'trainvitals_log_pending_bytes{run="train"}': 0.0,
        'trainvitals_log_parse_errors_total{run="train"}': 0.0,
        'trainvitals_run_info{attempt="0",framework="nanogpt",run="train",world_size="1"}': 1.0,
        'trainvitals_world_size{run="train"}': 1.0,
        f'trainvitals_rank_info{{attempt="0",local_rank="0",node_rank="",pci_bus_id="",{rank},uuid=""}}': 1.0,
        f"trainvitals_rank_up{{{rank}}}": 1.0,
        f'trainvitals_rank_state{{{rank},state="running"}}': 1.0,
        f'trainvitals_rank_state{{{rank},state="finished"}}': 0.0,
        f'trainvitals_rank_state{{{rank},state="silent"}}': 0.0,
        f'trainvitals_rank_state{{{rank},state="failed"}}': 0.0,
        f"trainvitals_start_timestamp_seconds{{{rank}}}": written - 0.5,
        f"trainvitals_heartbeat_timestamp_seconds{{{rank}}}": written,
        f"trainvitals_last_step_timestamp_seconds{{{rank}}}": written,
        f"trainvitals_step{{{rank}}}": 3.0,
        f"trainvitals_steps_total{{{rank}}}": 3.0,
        f"trainvitals_skipped_steps_total{{{rank}}}": 0.0,
        f"trainvitals_nonfinite_steps_total{{{rank}}}": 0.0,
        f"trainvitals_loss{{{rank}}}": 2.5,
        f'trainvitals_value{{name="step_seconds",{rank}}}': 0.25,
        f'trainvitals_value{{name="mfu",{rank}}}': pytest.approx(0.31),
        f'trainvitals_evaluation{{name="train_loss",{rank},split="validation"}}': 4.0,
        f'trainvitals_evaluation{{name="loss",{rank},split="validation"}}': 4.125,
        f'trainvitals_evaluation_step{{{rank},split="validation"}}': 0.0,
        f"trainvitals_checkpoints_total{{{rank}}}": 0.0,
        f"trainvitals_checkpoint_failures_total{{{rank}}}": 0.0,
        f'trainvitals_events_total{{kind="evaluation",{rank}}}': 1.0,
        'trainvitals_signal_ratio{run="train",signal="loss_nonfinite"}': 0.0,
        'trainvitals_signal_statistic{run="train",signal="loss_nonfinite",statistic="steps"}': 0.0,
        'trainvitals_signal_ratio{run="train",signal="evaluation_mismatch"}': 0.103125,
        'trainvitals_signal_statistic{run="train",signal="evaluation_mismatch",statistic="evaluations"}': 1.0,
        'trainvitals_signal_statistic{run="train",signal="evaluation_mismatch",statistic="factor"}': 1.03125,
        'trainvitals_signal_statistic{run="train",signal="evaluation_mismatch",statistic="nonfinite"}': 0.0,
    }
    assert scrape['trainvitals_log_files{state="followed"}'] == 1.0


def test_steps_are_shown_as_the_log_grows(node):
    """At each snapshot what came since; half a line waits for its other half."""
    node.write(lines(1, 3) + "iter 4: loss 2.")
    assert 3.0 == node.scrape()['trainvitals_step{rank="0",run="train"}']

    node.write("7500, time 250.00ms, mfu 31.00%\n")
    scrape = node.scrape()

    assert (4.0, 2.75) == (
        scrape['trainvitals_step{rank="0",run="train"}'],
        scrape['trainvitals_loss{rank="0",run="train"}'],
    )
    assert 4.0 == scrape['trainvitals_steps_total{rank="0",run="train"}']


def test_a_restart_of_the_exporter_neither_loses_nor_repeats_a_step(node):
    """What was counted before it is not counted again; what was written while it was away is."""
    node.write(lines(1, 3))
    assert 3.0 == node.scrape()['trainvitals_steps_total{rank="0",run="train"}']
    node.logs.stop()
    node.write(lines(4, 5, "2.2500"))

    node.start()
    scrape = node.scrape()

    assert (5.0, 2.25) == (
        scrape['trainvitals_step{rank="0",run="train"}'],
        scrape['trainvitals_loss{rank="0",run="train"}'],
    )
    assert 2.0 == scrape['trainvitals_steps_total{rank="0",run="train"}']
    node.write(lines(6, 6))
    assert 3.0 == node.scrape()['trainvitals_steps_total{rank="0",run="train"}']


def test_a_restart_keeps_step_loss_and_finding(node):
    """Also when the log says nothing more; and the finding is the same one, with the same words."""
    node.write(lines(1, 9) + lines(10, 10, "nan"))
    before = node.scrape()
    node.logs.stop()

    node.start()
    after = node.scrape()

    finding = [name for name in before if name.startswith("trainvitals_finding_info")]
    assert len(finding) == 1
    assert finding == [name for name in after if name.startswith("trainvitals_finding_info")]
    assert 10.0 == after['trainvitals_step{rank="0",run="train"}']
    assert math.isnan(after['trainvitals_loss{rank="0",run="train"}'])
    assert 0.0 == after['trainvitals_nonfinite_steps_total{rank="0",run="train"}']


def test_an_exporter_that_was_killed_loses_no_step(node):
    """It had no time to say how far it was, and still knows it from the last snapshot."""
    node.write(lines(1, 3))
    node.scrape()
    node.scrape()
    node.write(lines(4, 4))

    node.start()
    scrape = node.scrape()

    assert 4.0 == scrape['trainvitals_step{rank="0",run="train"}']
    assert 1.0 == scrape['trainvitals_steps_total{rank="0",run="train"}']


def test_an_exporter_that_was_killed_knows_how_far_a_busy_log_was_read(node):
    """A log that has news at every snapshot is remembered as well, up to the last but one of them."""
    node.write(lines(1, 3))
    node.scrape()
    node.write(lines(4, 5))
    node.scrape()

    node.start()
    node.write(lines(6, 6))
    scrape = node.scrape()

    assert 6.0 == scrape['trainvitals_step{rank="0",run="train"}']
    assert 3.0 == scrape['trainvitals_steps_total{rank="0",run="train"}']


def test_a_log_with_names_without_end_has_a_limited_number_of_series(node):
    """A log that calls its values anew in each line does not fill the database; the first names are shown."""
    rows = [f'{{"step": {step}, "loss": 2.5, "lr": 0.5, "made_up_{step}": 1.5}}\n' for step in range(600)]
    node.write("".join(rows[:300]), "odd.jsonl")
    node.scrape()
    node.write("".join(rows[300:]), "odd.jsonl")

    scrape = node.scrape()

    assert 599.0 == scrape['trainvitals_step{rank="0",run="odd"}']
    assert 2.5 == scrape['trainvitals_loss{rank="0",run="odd"}']
    assert 1.5 == scrape['trainvitals_value{name="made_up_7",rank="0",run="odd"}']
    assert 254 == sum(name.startswith("trainvitals_value{") for name in scrape)


def test_two_logs_are_two_runs(node):
    """Each under its name."""
    node.write(lines(1, 3), "a.log")
    node.write(lines(1, 7), "b.log")

    scrape = node.scrape()

    assert (3.0, 7.0) == tuple(scrape[f'trainvitals_step{{rank="0",run="{run}"}}'] for run in "ab")


def test_a_long_log_is_read_over_several_snapshots(tmp_path):
    """At the rate that is set, so that the training keeps its cores."""
    node = Node(tmp_path, **{"sources.rate": "1MB"})
    node.write(lines(1, 2) + "nothing that anybody knows\n" * 200_000 + lines(3, 5))

    first = node.scrape()
    assert 0 < first['trainvitals_log_pending_bytes{run="train"}'] < 5_400_000
    for _ in range(4):
        last = node.scrape()

    assert 0.0 == last['trainvitals_log_pending_bytes{run="train"}']
    assert 5.0 == last['trainvitals_step{rank="0",run="train"}']


def test_a_silent_log_is_shown_as_silent_and_forgotten_after_a_day(node):
    """Whether its process lives is not known, so nothing says so."""
    node.write(lines(1, 3))
    node.scrape()

    scrape = node.scrape(after=3600.0)
    assert 1.0 == scrape['trainvitals_rank_state{rank="0",run="train",state="silent"}']
    assert 'trainvitals_rank_up{rank="0",run="train"}' not in scrape
    assert 'trainvitals_rank_state{rank="0",run="train",state="died"}' not in scrape

    assert 'trainvitals_step{rank="0",run="train"}' not in node.scrape(after=86400.0)


def test_an_error_in_a_log_is_counted_and_found(node):
    """By category and cause, with its place."""
    node.write(lines(1, 3) + "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n")

    scrape = node.scrape()

    counts = {name: value for name, value in scrape.items() if name.startswith("trainvitals_log_errors_total")}
    assert counts == {'trainvitals_log_errors_total{category="resource",cause="device_out_of_memory",run="train"}': 1.0}
    finding = next(name for name in scrape if "finding_info" in name)
    assert 'category="resource"' in finding
    assert 'location="rank 5"' in finding
    assert "CUDA out of memory" in finding


def test_a_file_that_nobody_knows_is_counted(tmp_path):
    """Where it was named; a folder is full of files that are no logs."""
    (tmp_path / "notes.txt").write_text("hello\n" * 10)
    node = Node(tmp_path / "notes.txt")

    scrape = node.scrape()

    assert 1.0 == scrape['trainvitals_log_files{state="unknown"}']
    assert [(str(tmp_path / "notes.txt"), "no format that is known")] == node.logs.complaints()


def test_a_path_that_is_not_there_is_counted(tmp_path):
    """And followed once it is there."""
    node = Node(tmp_path / "later")
    assert 1.0 == node.scrape()['trainvitals_log_files_rejected{reason="missing"}']

    (tmp_path / "later").mkdir()
    node.write(lines(1, 2))

    assert 2.0 == node.scrape(after=30.0)['trainvitals_step{rank="0",run="train"}']


def test_without_sources_there_is_nothing():
    """A node that follows no log pays nothing for it."""
    logs = LogsCollector.from_settings(load(None, {}, {}).sources)

    with pytest.raises(NoData):
        logs.collect(Sink(Tally(), limit=10, collector="logs"))
    assert [] == logs.poll() == logs.complaints()
    logs.stop()


def test_a_format_that_nobody_knows_is_a_mistake():
    """One line names those that are like it, and where the list is."""
    settings = load(None, {}, {"sources.paths": [{"path": "/x", "format": "megatronn"}]})

    with pytest.raises(
        ConfigError, match=r"^sources\.paths: format: unknown format 'megatronn'; did you mean megatron"
    ):
        LogsCollector.from_settings(settings.sources)


def test_a_log_whose_clock_is_ahead_is_no_younger(tmp_path):
    """Times of another zone, hours ahead, must not hide that it stands still."""
    path = tmp_path / "log.jsonl"
    now = 1_790_000_000.0
    path.write_text("".join(f'{{"step": {n}, "loss": 2.5, "time": {now + 28800 + n}}}\n' for n in range(1, 9)))
    os.utime(path, (now, now))
    settings = load(None, {}, {"sources.paths": [str(path)]})
    logs = LogsCollector.from_settings(settings.sources, clock=lambda: now + 5.0)
    logs.read()

    (log,) = logs.poll()
    logs.stop()

    assert now + 60.0 == log.last_activity


@pytest.mark.parametrize("is_log_first", [True, False])
def test_a_log_that_is_called_as_a_run_with_the_probe_is_another_run(spool, tmp_path, is_log_first):
    """Whoever had the name first keeps it; neither counts the steps of the other."""
    path = tmp_path / "t.log"
    path.write_text("".join(f"iter {n}: loss 2.5000, time 250.00ms, mfu 31.00%\n" for n in range(1, 6)))
    settings = load(None, {}, {"sources.paths": [{"path": str(path), "run": "test"}]})
    logs = LogsCollector.from_settings(settings.sources)
    files, runs = Spool([str(spool)], keep=3600.0, remove=False), Runs(list)
    if is_log_first:
        logs.read()
        runs.update([*files.poll(), *logs.poll()], time.time())
    script = """
        import trainvitals
        trainvitals.init()
        for step in range(1, 9):
            trainvitals.step(step, loss=1.5)
        print("ready", flush=True)
        input()
    """
    with trainer(script, spool):
        if not is_log_first:
            runs.update(files.poll(), time.time())
        for _ in range(2):
            logs.read()
            runs.update([*files.poll(), *logs.poll()], time.time())
        found = {name: (ranks[0].counters["steps"], ranks[0].values["loss"]) for name, ranks in runs.by_run().items()}
    logs.stop()

    log, probed = (5.0, 2.5), (8.0, 1.5)
    assert {"test": log, "test~2": probed} == found if is_log_first else {"test": probed, "test~2": log} == found
