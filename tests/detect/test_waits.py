"""What a training waits for: data, communication, and the answer to "more devices, or better data?"."""

from __future__ import annotations

import pytest

from trainvitals.detect.bottleneck import Bottleneck
from trainvitals.detect.communication_bound import CommunicationBound
from trainvitals.detect.data_starvation import DataStarvation
from trainvitals.telemetry import Event, Step


class Probe:
    """A rank whose phases are read every ten seconds."""

    def __init__(self, detector) -> None:
        self.detector = detector
        self.time, self.step = 1_700_000_000.0, 0
        self.seconds = {
            "init": 300.0,
            "data": 0.0,
            "train": 0.0,
            "communication": 0.0,
            "device": 0.0,
            "evaluation": 0.0,
        }

    def run(self, seconds: float, **shares: float) -> Probe:
        """Train for so long; ``shares`` of the time go into phases, the rest into train."""
        for _ in range(int(seconds / 10)):
            self.time += 10.0
            self.step += 7
            for phase, share in shares.items():
                self.seconds[phase] += 10.0 * share
            self.seconds["train"] += 10.0 * (1.0 - sum(shares.values()))
            self.detector.observe_event(Event(self.time, "phases", self.step, dict(self.seconds)))
        return self

    @property
    def verdict(self):
        """The verdict now."""
        return self.detector.verdict()


def log(detector, lines, *, data, step_seconds, every=10, first=0):
    """Feed lines of a log that tells of each tenth step."""
    for number in range(1, lines + 1):
        step = first + number * every
        detector.observe(Step(step, number, 0.0, {"data_seconds": data, "step_seconds": step_seconds}))


def test_a_log_whose_steps_wait_for_a_third_is_advice():
    """Data first; the number of the step and the share are in the evidence."""
    detector = DataStarvation()
    log(detector, 100, data=0.3, step_seconds=0.9)
    verdict = detector.verdict()
    assert verdict.statistics["share"] == pytest.approx(1 / 3)
    assert verdict.ratio == pytest.approx(1 / 3 / 0.2)
    assert verdict.severity == "info"
    assert verdict.evidence == "since step 20: 33% of the time of training is waiting for data"


@pytest.mark.parametrize(("data", "severity"), [(0.55, "info"), (0.7, "warning")])
def test_two_thirds_of_the_time_are_a_warning(data, severity):
    """Half of it is what healthy public logs of detection show."""
    detector = DataStarvation()
    log(detector, 100, data=data, step_seconds=1.0)
    assert detector.verdict().severity == severity


def test_a_wait_that_is_longer_than_the_step_was_timed_beside_it():
    """The share is never above 1."""
    detector = DataStarvation()
    log(detector, 200, data=0.9, step_seconds=0.5)
    assert detector.verdict().statistics["share"] == pytest.approx(1.0)


def test_a_twentieth_is_no_finding():
    """It is a statistic."""
    detector = DataStarvation()
    log(detector, 100, data=0.05, step_seconds=1.0)
    assert detector.verdict().ratio == pytest.approx(0.25)


def test_the_first_batches_do_not_count():
    """Workers start: two lines of a minute each."""
    detector = DataStarvation()
    log(detector, 2, data=60.0, step_seconds=61.0)
    log(detector, 200, data=0.05, step_seconds=1.0, first=20)
    assert detector.verdict().ratio == pytest.approx(0.25)


def test_nothing_is_said_before_two_minutes():
    """Nor without the wait, nor of numbers that make no sense."""
    detector = DataStarvation()
    log(detector, 13, data=0.9, step_seconds=1.0)
    assert detector.verdict() is None
    for data, seconds in ((float("nan"), 1.0), (1.0, float("inf")), (-1.0, 1.0), (1e300, 1.0)):
        log(DataStarvation(), 100, data=data, step_seconds=seconds)
        detector.observe(Step(1, 1, 0.0, {"data_seconds": data, "step_seconds": seconds}))
    detector.observe(Step(900, 900, 0.0, {"step_seconds": 1000.0}))
    assert detector.verdict() is None


def test_an_epoch_that_begins_is_no_starvation():
    """Thirty seconds of waiting in each ten minutes."""
    probe = Probe(DataStarvation())
    for _ in range(6):
        probe.run(30, data=1.0).run(570, data=0.01)
        assert not probe.verdict.active


def test_phases_of_the_probe_tell_it_as_well_and_an_evaluation_is_no_training():
    """A quarter of what is not evaluation, which takes most of the time."""
    probe = Probe(DataStarvation()).run(2000, evaluation=0.6, data=0.1)
    assert probe.verdict.statistics["share"] == pytest.approx(0.25)
    assert probe.verdict.severity == "info"


def test_starvation_ends_ten_minutes_after_it_has():
    """And one text is one label: it does not change with the share."""
    probe = Probe(DataStarvation()).run(1000, data=0.3)
    before = probe.verdict.evidence
    assert probe.run(200, data=0.35).verdict.evidence == before
    assert not probe.run(610, data=0.01).verdict.active


def test_counters_that_fall_begin_anew():
    """Another process without a word."""
    probe = Probe(DataStarvation()).run(1000, data=0.3)
    probe.seconds["data"] = 0.0
    assert probe.run(20).verdict is None


def test_a_restart_begins_anew():
    """What was before is no share of what is now."""
    for make in (DataStarvation, CommunicationBound, Bottleneck):
        probe = Probe(make()).run(1000, data=0.3, communication=0.3)
        probe.detector.observe_event(Event(probe.time, "restart", 5))
        assert probe.verdict is None


def test_communication_that_nothing_hides_is_advice_and_more_than_half_a_warning():
    """From 20 % on."""
    assert not Probe(CommunicationBound()).run(700, communication=0.15).verdict.active
    found = Probe(CommunicationBound()).run(700, communication=0.25).verdict
    assert (found.severity, found.statistics["share"]) == ("info", pytest.approx(0.25))
    assert Probe(CommunicationBound()).run(700, communication=0.55).verdict.severity == "warning"


def test_a_rank_that_tells_no_communication_is_not_judged():
    """0 is what the file says where nobody measures."""
    assert Probe(CommunicationBound()).run(700, data=0.5).verdict is None


@pytest.mark.parametrize(
    ("shares", "answer"),
    [
        ({"data": 0.3, "device": 0.6}, "data"),
        ({"data": 0.25, "communication": 0.35, "device": 0.3}, "communication"),
        ({"data": 0.05, "communication": 0.05, "device": 0.3}, "the host, which does not give its devices enough work"),
        ({"data": 0.05, "communication": 0.05, "device": 0.85}, "its devices"),
    ],
)
def test_the_bottleneck_is_what_holds_the_training_up(shares, answer):
    """An answer and no alarm."""
    verdict = Probe(Bottleneck()).run(700, **shares).verdict
    assert verdict.evidence == f"held up by {answer}"
    assert not verdict.active
    assert ("More or faster devices" in verdict.action) == (answer == "its devices")


def test_without_a_device_there_is_no_answer_but_for_waits():
    """What the host does without one is not told apart."""
    assert Probe(Bottleneck()).run(700, data=0.1).verdict is None
    assert Probe(Bottleneck()).run(700, data=0.3).verdict.evidence == "held up by data"
