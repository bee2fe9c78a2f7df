"""What changed before a finding: found in steps and events, one by one or in blocks, and said in words that stay."""

from __future__ import annotations

import math
import random

import pytest

from trainvitals.detect.changes import ChangeWatch, in_words
from trainvitals.telemetry import Event, Identity, Step, Steps

START = 1_700_000_000.0


def play(watch, curves, *, first=1, count=1, seconds=1.0):
    """Feed steps whose values are given as columns."""
    rows = zip(*curves.values(), strict=True)
    for place, row in enumerate(rows):
        moment = START + seconds * (count + place)
        watch.observe(Step(first + place, count + place, moment, dict(zip(curves, row, strict=True))))


def words(watch, step):
    """Return the changes before a step, in words."""
    return [str(change) for change in watch.before(step)]


def test_the_last_three_changes_are_named_nearest_first():
    """With their steps, and what was before and after; those behind the step are none of its causes."""
    watch = ChangeWatch()
    rates = [1e-3] * 100 + [1e-4] * 100 + [3e-4] * 100 + [3e-5] * 100
    sizes = [512.0] * 150 + [1024.0] * 250
    play(watch, {"learning_rate": rates, "global_batch_size": sizes})
    watch.observe_event(Event(START, "change", 240, {"name": "data", "old": "v2", "new": "v3"}))

    assert words(watch, 299) == [
        "data v2 -> v3 at step 240",
        "learning rate 0.0001 -> 0.0003 at step 201",
        "batch size 512 -> 1024 at step 151",
    ]
    assert words(watch, 301)[0] == "learning rate 0.0003 -> 3e-05 at step 301"
    assert words(watch, 120) == ["learning rate 0.001 -> 0.0001 at step 101"]
    assert words(watch, 50) == []


def test_a_schedule_is_no_change():
    """A learning rate that decays with each step says nothing, in steps as in blocks."""
    cosine = [1e-3 * (1.0 + math.cos(math.pi * step / 5000)) / 2.0 for step in range(5000)]
    one, block = ChangeWatch(), ChangeWatch()
    play(one, {"learning_rate": cosine})
    for begin in range(0, 5000, 256):
        part = cosine[begin : begin + 256]
        numbers = list(range(begin, begin + len(part)))
        block.observe_all(Steps(numbers, begin + 1, [float(number) for number in numbers], {"learning_rate": part}))
    # The end of a cosine halves within two steps of 5000.
    assert [change for change in one.recent if change.step < 4990] == []
    assert [change for change in block.recent if change.step < 4990] == []


@pytest.mark.parametrize("seed", range(20))
def test_blocks_find_what_steps_find(seed):
    """The same changes, steps and words, whatever the blocks."""
    chance = random.Random(seed)
    rate, size, length, world = 1e-3, 512.0, 2048.0, 8.0
    columns = {"learning_rate": [], "global_batch_size": [], "seq_length": [], "world_size": [], "loss_scale": []}
    scale = 65536.0
    for _ in range(600):
        rate *= chance.choice([1.0] * 50 + [0.99] * 50 + [0.1, 3.0])
        size = chance.choice([size] * 100 + [size * 2])
        length = chance.choice([length] * 200 + [4096.0, math.nan])
        scale = chance.choice([scale] * 30 + [scale * 2, scale / 2])
        for name, value in zip(columns, (rate, size, length, world, scale), strict=True):
            columns[name].append(value)
    one, block = ChangeWatch(), ChangeWatch()
    play(one, columns)
    begin = 0
    while begin < 600:
        end = min(600, begin + chance.choice([1, 2, 7, 64, 200]))
        numbers = list(range(1 + begin, 1 + end))
        times = [START + number for number in numbers]
        block.observe_all(
            Steps(numbers, 1 + begin, times, {name: values[begin:end] for name, values in columns.items()})
        )
        begin = end
    assert sorted(map(repr, block.recent)) == sorted(map(repr, one.recent))
    assert block.counts == one.counts


def test_a_restart_is_a_change_of_the_step_where_it_began():
    """The attempt before it had got further."""
    watch = ChangeWatch()
    play(watch, {"loss": [1.0] * 500})
    watch.observe_event(Event(START, "restart", 451, {"attempt": 1, "previous_step": 500}))
    play(watch, {"loss": [1.0] * 50}, first=451, count=501)
    assert words(watch, 470) == ["restart (attempt 1) at step 451"]
    assert watch.last["attempt"].step == 500


def test_a_restart_is_told_once():
    """By the identity of the source and by its event."""
    watch = ChangeWatch()
    play(watch, {"loss": [1.0] * 5})
    watch.compare(Identity(run="a", world_size=8), Identity(run="a", world_size=6, attempt=1), START)
    watch.observe_event(Event(START, "restart", 4, {"attempt": 1}))
    assert dict(watch.counts) == {"attempt": 1, "world_size": 1}


def test_a_restart_with_another_learning_rate_is_told_with_it():
    """However smoothly it would have gone on."""
    watch = ChangeWatch()
    play(watch, {"learning_rate": [1e-3] * 50})
    watch.observe_event(Event(START, "restart", 40, {"attempt": 1}))
    play(watch, {"learning_rate": [3e-3] * 50}, first=40, count=51)
    assert words(watch, 45) == ["learning rate 0.001 -> 0.003 at step 40", "restart (attempt 1) at step 40"]


def test_another_data_set_is_named_by_what_differs():
    """The table of the lineage, the row, and both values; many rows are counted."""
    watch = ChangeWatch()
    rows = {f"key{number}": "a" for number in range(5)}
    watch.observe_event(Event(START, "lineage", -1, {"subject": "dataset", "hash": "1", "values": {"version": "v2"}}))
    watch.observe_event(Event(START, "lineage", -1, {"subject": "config", "hash": "1", "values": rows}))
    play(watch, {"loss": [1.0] * 10})
    watch.observe_event(Event(START, "lineage", -1, {"subject": "dataset", "hash": "2", "values": {"version": "v3"}}))
    others = dict.fromkeys(rows, "b")
    watch.observe_event(Event(START, "lineage", -1, {"subject": "config", "hash": "2", "values": others}))
    play(watch, {"loss": [1.0] * 10}, first=8, count=11)
    assert words(watch, 12) == [
        "config key0 a -> b, config key1 a -> b and 3 more at step 8",
        "dataset version v2 -> v3 at step 8",
    ]


def test_a_falling_loss_scale_is_a_symptom():
    """It is counted, and named as the cause of nothing."""
    watch = ChangeWatch()
    play(watch, {"loss_scale": [65536.0] * 10 + [32768.0] * 10})
    assert dict(watch.counts) == {"loss_scale": 1}
    assert words(watch, 20) == []


def test_samples_of_steps_tell_another_batch():
    """Where a log tells them for each step, in blocks or not."""
    watch = ChangeWatch()
    for begin in range(1, 400, 40):
        numbers = list(range(begin, begin + 40))
        amounts = [32.0 if number <= 200 else 64.0 for number in numbers]
        block = Steps(numbers, begin, [START + number for number in numbers], {"samples": amounts})
        watch.observe_all(block)
        watch.measure_all(block if begin % 80 else list(block))
    assert words(watch, 300) == ["batch size 32 -> 64 at step 201"]


def test_the_time_of_a_step_is_known_about():
    """To some seconds near the end, and between its neighbours elsewhere, however long ago."""
    watch = ChangeWatch()
    play(watch, {"loss": [1.0] * 20_000}, seconds=2.0)
    for step in (3, 5_001, 17_503, 19_990):
        assert abs(watch.time_of(step) - (START + 2.0 * step)) < 12.0
    assert len(watch._times) <= 512
    assert ChangeWatch().time_of(3) is None


def test_errors_of_the_log_within_the_minute_are_named():
    """Those that are no consequence of others."""
    watch = ChangeWatch()
    for seconds, cause, root in ((10.0, "nccl_timeout", True), (12.0, "killed", False), (500.0, "disk_full", True)):
        watch.observe_event(Event(START + seconds, "log_error", 5, {"cause": cause, "root": root}))
    assert watch.errors_near(START + 40.0) == ["nccl timeout"]


def test_a_sentence_has_changes_and_faults():
    """Each only where there is one."""
    watch = ChangeWatch()
    play(watch, {"learning_rate": [1e-4] * 10 + [3e-4] * 10})
    changes = watch.before(15)
    assert in_words(changes, ["XID 63 on device 2"]) == (
        "before it: learning rate 0.0001 -> 0.0003 at step 11; in the same minute: XID 63 on device 2"
    )
    assert in_words(changes) == "before it: learning rate 0.0001 -> 0.0003 at step 11"
    assert in_words([]) == ""


def test_odd_values_cost_nothing():
    """NaN, infinity and negative numbers change nothing, and what is remembered is bounded."""
    watch = ChangeWatch()
    odd = [math.nan, math.inf, -1.0, 0.0, 1e-3, math.nan]
    play(watch, {"learning_rate": odd, "batch_size": odd, "world_size": odd})
    numbers = list(range(10, 16))
    columns = {name: list(odd) for name in ("learning_rate", "batch_size", "seqlen", "samples")}
    block = Steps(numbers, 10, [math.nan] * 6, columns)
    watch.observe_all(block)
    watch.measure_all(block)
    watch.observe_all(Steps([], 16, [], {}))
    for number in range(5000):
        watch.observe_event(Event(START, "change", number, {"name": "x" * 500, "old": [], "new": None}))
        watch.observe_event(Event(START, "log_error", number, {"cause": "x" * 500, "root": True}))
    assert len(watch.recent) <= 256
    assert len(in_words(watch.before(9000))) < 800
