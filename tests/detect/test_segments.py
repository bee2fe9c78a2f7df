"""A change by plan begins another segment: baselines begin anew, and verdicts say why."""

from __future__ import annotations

import math
import random

import pytest
from tests.detect.helpers import noise

from trainvitals import detect
from trainvitals.detect.engine import Panel, Record
from trainvitals.detect.segments import Segment, Segments
from trainvitals.telemetry import Event, Step, Steps

START = 1_700_000_000.0


def steps(columns, *, first=1, seconds=1.0):
    """Return a block with these columns."""
    count = len(next(iter(columns.values())))
    numbers = list(range(first, first + count))
    return Steps(numbers, first, [START + seconds * number for number in numbers], columns)


def whys(values, name="global_batch_size"):
    """Return what begins in a run with these values, by step; each step alone and in blocks."""
    watch = Segments()
    alone = [(step.step, found.why) for step in steps({name: values}) for found in watch.observe(step)]
    for size in (1, 3, 64, 1000):
        watch, whole = Segments(), steps({name: values})
        blocks = [whole[begin : begin + size] for begin in range(0, len(values), size)]
        assert [(cut.at, cut.segment.why) for block in blocks for cut in watch.look_at(block)] == alone
    return alone


def test_another_batch_size_begins_a_segment_when_it_comes_twice():
    """Its words have both values and the step."""
    assert whys([512.0] * 50 + [1024.0] * 50) == [(52, "the batch size changed from 512 to 1024 at step 52")]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([512.0] * 200, id="constant"),
        pytest.param(([512.0] * 30 + [100.0]) * 5, id="last batch of each epoch"),
        pytest.param([float(400 + (7 * index) % 50) for index in range(200)], id="packed texts"),
        pytest.param([float(index) for index in range(100)], id="grows with each step"),
        pytest.param([512.0] * 10 + [1024.0] * 50, id="found in the first steps"),
        pytest.param([512.0] * 50 + [math.nan] * 20, id="nonsense"),
        pytest.param([512.0] * 50 + [0.0] * 20, id="zero"),
    ],
)
def test_what_is_no_setting_begins_nothing(values):
    """A smaller last batch, a number that is another with each step, and what is no number."""
    assert whys(values) == []


def test_each_step_of_a_ramp_begins_a_segment():
    """Where each of them stands for a while."""
    assert [step for step, _ in whys([256.0] * 40 + [512.0] * 40 + [1024.0] * 40)] == [42, 82]


@pytest.mark.parametrize("name", ["seq_length", "seqlen", "sequence_length", "seq_len"])
def test_the_sequence_length_has_several_names(name):
    """Those that frameworks write."""
    assert whys([2048.0] * 20 + [8192.0] * 5, name) == [
        (22, "the sequence length changed from 2048 to 8192 at step 22")
    ]


def found(*events):
    """Return kinds and words of what begins with events."""
    watch = Segments()
    return [(segment.kind, segment.why) for event in events for segment in watch.observe_event(event)]


def test_what_the_program_reports_of_its_data_begins_a_segment():
    """Of other things it does not."""
    events = [Event(START, "change", 70, {"name": name}) for name in ("mixture", "learning rate", "precision", "")]
    assert found(*events) == [
        ("data", "the data changed (mixture) at step 70"),
        ("precision", "the precision changed (precision) at step 70"),
    ]


def lineage(subject, hashed, **values):
    """Return an event about what a run is made of."""
    return Event(START, "lineage", -1, {"subject": subject, "hash": hashed, "values": values})


def test_another_attempt_with_other_data_or_precision_begins_a_segment():
    """By the tables of the lineage; the first attempt, and what is equal, begins none."""
    first = [
        lineage("dataset", "1"),
        lineage("config", "1", bf16="True", lr="1"),
        lineage("model", "1", dtype="bfloat16"),
    ]
    again = [
        lineage("dataset", "1"),
        lineage("config", "2", bf16="False", lr="2"),
        lineage("model", "1", dtype="float8"),
    ]
    other = [lineage("dataset", "2"), lineage("config", "3", bf16="False", lr="3")]
    assert found(*first, *again, *other) == [
        ("precision", "the precision changed (bf16 True -> False)"),
        ("data", "the data set changed"),
    ]


def test_odd_events_begin_nothing():
    """Whatever their fields are."""
    odd = [None, 5, [], {"a": 1}, "x" * 500]
    events = [Event(START, "change", 1, {"name": value}) for value in odd]
    events += [Event(START, "lineage", 1, {"subject": one, "hash": two, "values": one}) for one in odd for two in odd]
    assert (
        found(*events, Event(START, "change", 1), Event(START, "lineage", 1))
        == [("data", "the data changed ({'a': 1}) at step 1")][:0]
    )


class Heard:
    """A detector that notes what it is given."""

    signal, category, needs = "heard", "data", "nothing"
    segments = frozenset({"batch_size", "data"})

    def __init__(self):
        self.heard = []

    def observe(self, step):
        """Note a step."""
        self.heard.append(step.step)

    def begin_segment(self, segment):
        """Note a segment."""
        self.heard.append(segment.why)

    def verdict(self):
        """Say nothing."""


class HeardInBlocks(Heard):
    """The same in blocks, which it may leave early."""

    held = False

    def __init__(self, most=10**9):
        super().__init__()
        self._most = most

    def observe_all(self, block):
        """Note the first steps of a block."""
        taken = min(len(block), self._most)
        self.heard += block.numbers[:taken]
        return taken


BATCHES = {"global_batch_size": [512.0] * 100 + [1024.0] * 200, "world_size": [8.0] * 50 + [4.0] * 250}
EXPECTED = [*range(1, 102), "the batch size changed from 512 to 1024 at step 102", *range(102, 301)]


@pytest.mark.parametrize("make", [Heard, HeardInBlocks, lambda: HeardInBlocks(5), lambda: HeardInBlocks(1)])
@pytest.mark.parametrize("size", [1, 2, 50, 101, 102, 300])
def test_a_detector_hears_of_a_segment_before_its_first_step(make, size):
    """Once, wherever blocks end, and only of kinds that matter to it."""
    detector, whole = make(), steps(BATCHES)
    record = Record(Panel([detector], pytest.fail))
    record.feed(whole[begin : begin + size] for begin in range(0, 300, size))
    assert detector.heard == EXPECTED

    detector = make()
    record = Record(Panel([detector], pytest.fail))
    record.feed(list(whole))
    assert detector.heard == EXPECTED

    detector = make()
    panel = Panel([detector], pytest.fail)
    for step in whole:
        panel.observe(step)
    assert detector.heard == EXPECTED


def test_an_event_begins_a_segment_before_the_next_step():
    """A change of the data, which the program reports."""
    detector = Heard()
    panel = Panel([detector], pytest.fail)
    panel.observe(Step(1, 1, START, {}))
    panel.observe_event(Event(START, "change", 1, {"name": "mixture"}))
    panel.observe(Step(2, 2, START, {}))
    assert detector.heard == [1, "the data changed (mixture) at step 1", 2]


def test_a_detector_that_cannot_begin_anew_costs_itself_alone():
    """The others hear of it."""
    bad, good, told = Heard(), Heard(), []
    bad.begin_segment = None
    panel = Panel([bad, good], told.append)
    for step in steps(BATCHES):
        panel.observe(step)
    assert good.heard == EXPECTED
    assert len(told) == 1


def said(columns, events=(), seconds=1.0):
    """Return what the detectors say at the end, and what they said at their gravest."""
    complaints = []
    record = Record(Panel(detect.build(), complaints.append))
    whole = steps(columns, seconds=seconds)
    begin = 0
    for event in events:
        record.feed([whole[begin : event.step], event])
        begin = event.step
    record.feed([whole[begin:]])
    assert complaints == []
    return {outcome.signal: outcome for outcome in record.outcomes()}


def test_a_level_of_gradients_that_comes_with_another_batch_is_no_finding():
    """A batch that is an eighth has a norm that is larger; without the change it is found."""
    chance = random.Random(1)
    norms = [chance.lognormvariate(0.0, 0.2) for _ in range(500)] + [
        12.0 * chance.lognormvariate(0.0, 0.2) for _ in range(300)
    ]
    sizes = [1024.0] * 499 + [8.0] * 301
    with_change = said({"grad_norm": norms, "global_batch_size": sizes})["gradient_anomaly"]
    without = said({"grad_norm": norms, "global_batch_size": [8.0] * 800})["gradient_anomaly"]
    assert without.worst is not None
    assert with_change.worst is None


def test_a_slower_step_that_comes_with_longer_sequences_is_no_finding():
    """And the verdict says what was left out."""
    chance = random.Random(2)
    times = [chance.gauss(1.0, 0.05) for _ in range(1500)] + [chance.gauss(4.0, 0.3) for _ in range(900)]
    lengths = [2048.0] * 1500 + [8192.0] * 900
    with_change = said({"step_seconds": times, "seq_length": lengths})["slowdown"]
    without = said({"step_seconds": times})["slowdown"]
    assert without.worst is not None
    assert with_change.worst is None
    assert "the sequence length changed from 2048 to 8192 at step 1502" in with_change.last.gated


def test_a_slower_token_is_found_whatever_the_batch():
    """Where the source tells the tokens of a step, the cost of one is compared over the change."""
    chance = random.Random(3)
    times = [chance.gauss(1.0, 0.05) for _ in range(1500)] + [chance.gauss(8.0, 0.3) for _ in range(900)]
    tokens = [1000.0] * 1500 + [2000.0] * 900
    sizes = [64.0] * 1500 + [128.0] * 900
    assert said({"step_seconds": times, "tokens": tokens, "batch_size": sizes})["slowdown"].worst is not None


def test_a_plateau_begins_anew_with_another_batch():
    """What is flat behind the change is found again, and what was before is not counted in."""
    losses = [
        3.0 + 3.0 * math.exp(-index / 200) + value for index, value in enumerate(noise(6000, level=0.0, sigma=0.004))
    ]
    sizes = [256.0] * 4000 + [2048.0] * 2000
    found = said({"loss": losses, "global_batch_size": sizes})["plateau"]
    assert found.last.since_step > 4000
    assert "the batch size changed from 256 to 2048 at step 4002" in found.last.gated


def test_a_level_that_comes_with_other_data_is_neither_spike_nor_drift_nor_divergence():
    """The same rise without the change is each of them."""
    losses = [*noise(1500, level=1.0, sigma=0.01), *noise(1500, level=3.0, sigma=0.03, seed=2)]
    signals = ("loss_spike", "loss_drift", "loss_diverged")
    change = [Event(START, "change", 1500, {"name": "mixture", "old": "web", "new": "code"})]
    found, without = said({"loss": losses}, change), said({"loss": losses})
    assert [without[signal].worst is not None for signal in signals] == [True] * 3
    assert [found[signal].worst for signal in signals] == [None] * 3
    assert [found[signal].judged for signal in signals] == [True] * 3


def test_a_spike_behind_a_change_is_found():
    """As soon as there is a baseline again."""
    spike = [5.0] * 12
    losses = [*noise(1000, level=3.0), *noise(400, level=2.0, seed=2), *spike, *noise(100, level=2.0, seed=3)]
    lengths = [2048.0] * 1000 + [8192.0] * 512
    found = said({"loss": losses, "seq_length": lengths})["loss_spike"]
    assert found.worst.since_step == 1401


def test_a_change_in_an_episode_does_not_hide_it():
    """Somebody may have changed the batch to be rid of it."""
    losses = [*noise(1000, level=3.0), *noise(400, level=9.0, seed=2)]
    sizes = [256.0] * 1050 + [1024.0] * 350
    found = said({"loss": losses, "global_batch_size": sizes})
    assert found["loss_spike"].last.active
    assert found["loss_diverged"].last.active


def test_the_verdict_says_what_was_left_out_while_a_baseline_fills():
    """Only of those that could say something before."""
    sizes = [256.0] * 1000 + [1024.0] * 40
    found = said({"loss": noise(1040), "grad_norm": [0.5] * 1040, "global_batch_size": sizes})
    for signal in ("loss_spike", "loss_drift", "gradient_anomaly"):
        assert "the batch size changed from 256 to 1024 at step 1002" in found[signal].last.gated, signal
    young = said({"loss": noise(100), "global_batch_size": [256.0] * 50 + [512.0] * 50})
    assert young["loss_drift"].last is None


def test_detectors_name_kinds_that_there_are():
    """One that is misspelt would never be told."""
    kinds = {"batch_size", "sequence_length", "world_size", "precision", "data"}
    having = [make for make in detect.DETECTORS if hasattr(make, "segments")]
    assert having
    for make in having:
        assert make.segments <= kinds
        detector = make()
        detector.begin_segment(Segment("data", "the data changed"))
        detector.verdict()
