"""The forecast of the time that is left: a mean with its pauses, and an interval that is wide where the run varies."""

from __future__ import annotations

import math
import random

import pytest

from trainvitals.detect.eta import Eta
from trainvitals.telemetry import Step


class Run:
    """A training whose steps take as long as it is told."""

    def __init__(self) -> None:
        self.eta = Eta()
        self.step = self.count = 0
        self.time = 1_700_000_000.0
        self.random = random.Random(5)

    def go(self, steps: int, seconds: float, *, noise: float = 0.03, pause: float = 0.0, every: int = 1) -> Run:
        """Do so many steps, with a pause after each hundredth, that are told ``every`` so many."""
        for _ in range(steps):
            self.step += 1
            self.time += seconds * max(0.1, self.random.gauss(1.0, noise)) + (pause if self.step % 100 == 0 else 0.0)
            if self.step % every == 0:
                self.count += 1
                self.eta.observe(Step(self.step, self.count, self.time, {"loss": 3.0}))
        return self


def test_nothing_is_said_before_there_are_four_blocks():
    """And nothing without a target, or when it is reached."""
    run = Run().go(205, 1.0)
    assert run.eta.remaining(10_000) is None
    run.go(10, 1.0)
    assert run.eta.remaining(10_000) is not None
    assert run.eta.remaining(None) is None
    assert run.eta.remaining(215) is None
    assert run.eta.remaining(100) is None


def test_a_steady_run_is_known_within_two_percent():
    """9,000 steps of 2 seconds."""
    remaining = Run().go(1000, 2.0).eta.remaining(10_000)
    assert remaining.p50 == pytest.approx(18_000.0, rel=0.005)
    assert 17_600 < remaining.p10 < remaining.p50 < remaining.p90 < 18_400


def test_pauses_count():
    """50 seconds after each hundredth step of a second: half as long again; a median would not know."""
    remaining = Run().go(2000, 1.0, pause=50.0).eta.remaining(10_000)
    assert remaining.p50 == pytest.approx(12_000.0, rel=0.03)


def test_compilation_does_not_count():
    """Ten steps of a minute at the start."""
    run = Run().go(10, 60.0).go(500, 1.0)
    assert run.eta.remaining(1510).p50 == pytest.approx(1000.0, rel=0.02)


def test_a_change_is_forgotten_when_as_much_has_passed_again():
    """1,000 steps of 1 second, then 1,200 of 2."""
    run = Run().go(1000, 1.0).go(1200, 2.0)
    assert run.eta.remaining(3200).p50 == pytest.approx(2000.0, rel=0.02)


def test_the_interval_is_wide_where_the_run_changed():
    """What came before may come again."""
    steady = Run().go(2200, 2.0).eta.remaining(3200)
    changed = Run().go(1000, 1.0).go(1200, 2.0).eta.remaining(3200)
    assert (steady.p90 - steady.p10) / steady.p50 < 0.04
    assert (changed.p90 - changed.p10) / changed.p50 > 0.4


def test_four_of_five_outcomes_lie_between_the_tenths():
    """Of 100 runs with pauses at random; the interval is no formality."""
    within = 0
    for seed in range(100):
        run = Run()
        run.random = random.Random(seed)
        ends = []
        for _ in range(4000):
            run.go(1, 0.5, noise=0.1)
            run.time += run.random.expovariate(1 / 30.0) if run.random.random() < 0.01 else 0.0
            ends.append(run.time)
            if run.step == 1000:
                remaining = run.eta.remaining(4000)
        within += remaining.p10 <= ends[-1] - ends[999] <= remaining.p90
    assert 72 <= within <= 96


def test_the_time_between_attempts_and_work_done_twice_do_not_count():
    """Half an hour of downtime, and 100 steps that are done again."""
    run = Run().go(1000, 1.0)
    run.step, run.count = 900, 0
    run.time += 1800.0
    run.go(500, 1.0)
    assert run.eta.remaining(2400).p50 == pytest.approx(1000.0, rel=0.02)


def test_few_lines_of_a_log_are_enough():
    """A line in 50 steps: 25 lines."""
    assert Run().go(1250, 1.0, every=50).eta.remaining(2250).p50 == pytest.approx(1000.0, rel=0.02)


def test_late_values_and_a_million_steps_cost_nothing():
    """Repeated counts are no steps; there are never more than 64 blocks."""
    eta = Eta()
    for number in range(1, 20_001):
        eta.observe(Step(number, number, number * 0.5, {}))
        eta.observe(Step(number, number, number * 0.5, {"grad_norm": 1.0}))
    assert eta.remaining(30_000).p50 == pytest.approx(5000.0, rel=0.001)
    assert len(eta._blocks) < 64


def test_a_log_without_times_has_no_forecast():
    """All steps are of one time when a file is read in one go; clocks that make no sense do no harm."""
    eta = Eta()
    for number in range(1, 1000):
        eta.observe(Step(number, number, 5.0, {}))
    assert eta.remaining(2000) is None
    for number, moment in enumerate((math.inf, math.nan, -1e9, 1e300), 1000):
        eta.observe(Step(number, number, moment, {}))
    assert eta.remaining(2000) is None
