"""Waiting for data, which is in every step: known to the file by one word, and in the books like any phase."""

from __future__ import annotations

import os
import struct
import sys
from types import SimpleNamespace

import pytest

from trainvitals import rankfile
from trainvitals.probe import phases, quick
from trainvitals.probe.recorder import Recorder


@pytest.fixture
def clock(monkeypatch):
    """Give a clock that stands still."""
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    for module in (phases, quick, sys.modules[Recorder.__module__]):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def training(spool, clock):
    """Give a recorder with one step behind it, and its clock."""
    recorder = Recorder(str(spool), {"run": "test", "rank": 0})
    recorder.state.phase_since = clock.now
    recorder.step(0, {"loss": 1.0})
    yield recorder
    recorder.finish("ok")


def published(recorder):
    """Return the phase, its begin, and the seconds of all that have some, as the exporter reads them."""
    reader = rankfile.Reader(recorder.writer.path)
    state = reader.read_state()
    reader.close()
    seconds = {name: value for name, value in zip(rankfile.PHASES, state.phase_seconds, strict=False) if value}
    return rankfile.PHASES[state.phase], state.phase_since, seconds


def test_a_wait_is_seen_while_it_lasts(training, clock):
    """A loader that hangs: the exporter sees the phase and since when, without another call."""
    clock.now += 0.5
    training.phases.begin_wait()
    clock.now += 100.0

    assert published(training) == ("data", 1000.5, {"train": 0.5})


def test_short_waits_are_published_together(training, clock):
    """After a tenth of a second at the latest; until then they are in the books and not in the file."""
    for _ in range(3):
        clock.now += 0.01
        training.phases.begin_wait()
        clock.now += 0.02
        training.phases.end_wait()
        assert published(training)[0] == "train"
        assert published(training)[2] == {}
    clock.now += 0.01
    training.phases.begin_wait()
    clock.now += 0.5
    training.phases.end_wait()

    phase, since, seconds = published(training)
    assert (phase, since) == ("train", pytest.approx(1000.6))
    assert seconds == {"train": pytest.approx(0.04), "data": pytest.approx(0.56)}


def test_phases_within_a_wait_are_parts_of_it(training, clock):
    """The wait becomes a phase like others; when all have ended, the one before goes on."""
    clock.now += 1.0
    training.phases.begin_wait()
    clock.now += 2.0
    training.begin_phase("checkpoint")
    clock.now += 4.0
    training.end_phase()
    assert published(training) == ("data", 1007.0, {"train": 1.0, "data": 2.0, "checkpoint": 4.0})
    clock.now += 8.0
    training.phases.end_wait()

    assert published(training) == ("train", 1015.0, {"train": 1.0, "data": 10.0, "checkpoint": 4.0})


def test_the_end_of_a_process_within_a_wait(training, clock):
    """The wait has its time, and what is left is "other"."""
    clock.now += 1.0
    training.phases.begin_wait()
    clock.now += 2.0
    training.finish("failed")

    assert published(training) == ("other", 1003.0, {"train": 1.0, "data": 2.0})


def test_tokens_and_samples_of_quick_steps_are_seen_at_once(training):
    """As are their steps: a process that is killed loses none."""
    reader = rankfile.Reader(training.writer.path)
    for number in range(1, 5):
        training.step(number, {"loss": 1.0, "tokens": 8, "samples": 3})
    assert len(reader.read_records(0)[0]) == 5

    assert (reader.read_state().tokens, reader.read_state().samples) == (32.0, 12.0)
    reader.close()


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1.0, 5.0])
def test_amounts_that_make_no_sense_are_not_believed(training, amount):
    """They stand for what was added since the state was written, so they are finite and greater."""
    training.step(1, {"loss": 1.0, "tokens": 8})
    training.finish("ok")
    with open(training.writer.path, "r+b") as file:
        file.seek(rankfile.AMOUNTS_OFFSET)
        file.write(struct.pack("<dd", amount, amount))
    reader = rankfile.Reader(training.writer.path)

    assert reader.read_state().tokens == 8.0
    reader.close()


@pytest.mark.parametrize("more", [0, 2, 11])
def test_records_of_the_quick_way_have_the_check_of_the_slow_way(training, more):
    """The same bytes, with whatever values, few or many, and after a full turn of the ring."""
    values = {"loss": 2.5, "b": -1e-9, "a": 1e300, "whole": 7, "flag": True, **{f"v{i}": i / 3 for i in range(more)}}
    place = rankfile.RING_OFFSET + 4 * rankfile.RECORD_AREA
    written = []
    for number in range(1, 4 + 2 * rankfile.RING_RECORDS):
        training.step(number - 2**40, values)
        if training.state.records % rankfile.RING_RECORDS == 4:
            written.append(bytes(training.writer.map[place : place + rankfile.RECORD_AREA]))
    assert len(written) == 3
    sequence, count, step, now, mask, *numbers = rankfile.RECORD.unpack_from(written[-1])
    assert (sequence, count, step) == (8196, 8196, 8195 - 2**40)
    training.writer.write_record(sequence, count, step, now, dict(enumerate(numbers[: mask.bit_count()])))

    assert bytes(training.writer.map[place : place + rankfile.RECORD_AREA]) == written[-1]


def test_nothing_is_written_after_the_end(training):
    """The file may be gone: a call that comes too late fails, which its caller counts, and touches nothing."""
    path = training.writer.path
    training.finish("ok")
    before = os.stat(path).st_mtime_ns
    for call in (training.phases.begin_wait, training.phases.end_wait, lambda: training.step(1, {"loss": 1.0})):
        with pytest.raises((TypeError, ValueError), match=r"released|closed|mmap"):
            call()

    assert os.stat(path).st_mtime_ns == before
