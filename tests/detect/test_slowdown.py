"""Slowdown: found within some points, and quiet on plans, pauses, hiccups and noise."""

from __future__ import annotations

import random

import pytest

from trainvitals.detect.slowdown import Slowdown
from trainvitals.telemetry import Step


class Clock:
    """A training whose steps take as long as it is told; ``told`` is what its source tells."""

    def __init__(self, *, told: str = "times", every: int = 1, **values: float) -> None:
        self.detector = Slowdown()
        self.told, self.every, self.values = told, every, values
        self.step = self.count = 0
        self.time, self.elapsed = 1_700_000_000.0, 0.0
        self._random = random.Random(3)

    def run(self, steps: int, seconds: float, *, noise: float = 0.03, **values: float) -> int | None:
        """Do so many steps; return the number of the first one at which there is a finding."""
        first = None
        for _ in range(steps):
            took = seconds * max(0.1, self._random.gauss(1.0, noise))
            self.step += 1
            self.time += took
            self.elapsed += took
            if self.step % self.every:
                continue
            self.count += 1
            known = {**self.values, **values}
            if self.told != "times":
                known[self.told] = took if self.told == "step_seconds" else self.elapsed
            self.detector.observe(Step(self.step, self.count, self.time, known))
            verdict = self.detector.verdict()
            if first is None and verdict is not None and verdict.active:
                first = self.step
        return first

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds
        self.elapsed += seconds


@pytest.mark.parametrize("told", ["times", "step_seconds", "elapsed_seconds"])
def test_steps_that_take_more_than_twice_as_long_and_are_uneven_are_a_warning(told):
    """Whatever tells the time; found within 100 steps."""
    clock = Clock(told=told)
    assert clock.run(1000, 1.0) is None
    found = clock.run(400, 2.3, noise=0.3)
    onset = 1000 if told == "step_seconds" else 1001
    assert found is not None
    assert found <= 1120
    verdict = clock.detector.verdict()
    assert (verdict.severity, verdict.since_step) == ("warning", onset)
    assert verdict.evidence.startswith(f"since step {onset}: a step takes ")
    assert verdict.statistics["baseline_seconds"] == pytest.approx(1.0, rel=0.02)


def test_steps_that_take_five_times_as_long_are_critical_even_when_they_are_even():
    """No schedule of batches makes a step so much longer at once."""
    clock = Clock()
    clock.run(1000, 1.0)
    assert clock.run(200, 5.0, noise=0.001) <= 1061
    assert clock.detector.verdict().severity == "critical"


def test_half_as_long_again_for_ten_minutes_is_no_news():
    """Somebody else's job on a shared machine."""
    clock = Clock()
    clock.run(1000, 1.0)
    assert clock.run(400, 1.6, noise=0.2) is None
    assert clock.run(1000, 1.0) is None


def test_a_third_more_is_news_after_twenty_minutes():
    """Others who use the machine for a moment are no news."""
    clock = Clock()
    clock.run(1000, 1.0)
    found = clock.run(2000, 1.33, noise=0.2)
    assert 1000 + 1200 / 1.33 <= found <= 1000 + 1800
    assert clock.detector.verdict().severity == "info"


def test_the_finding_ends_when_steps_are_as_fast_as_before():
    """And its words stay the same until then."""
    clock = Clock()
    clock.run(1000, 1.0)
    clock.run(300, 2.3, noise=0.3)
    before = clock.detector.verdict().evidence
    clock.run(300, 2.3, noise=0.3)
    assert clock.detector.verdict().evidence == before
    clock.run(100, 1.0)
    assert not clock.detector.verdict().active


def test_a_schedule_of_batches_that_nobody_tells_is_no_finding():
    """Longer from one step to the next, and as even as before: that is a plan; it is said that it was taken for one."""
    clock = Clock()
    clock.run(700, 0.033, noise=0.01)
    assert clock.run(700, 0.060, noise=0.01) is None
    assert clock.run(700, 0.088, noise=0.01) is None
    assert clock.detector.verdict().gated == (
        "from step 1401 on a step takes 1.47 times as long, and as evenly as before (0.06 s then): taken for a planned "
        "change of batch or sequence length"
    )


def test_a_plan_with_a_pause_for_compilation_is_no_finding():
    """A log of every hundredth step, in which the step after the change takes half a minute."""
    clock = Clock(every=100)
    clock.run(5000, 0.131, noise=0.005)
    clock.pause(60.0)
    assert clock.run(5000, 0.272, noise=0.005) is None


def test_more_tokens_in_a_step_are_no_slowdown():
    """The time of a token counts, however uneven."""
    clock = Clock(tokens=1000.0)
    clock.run(1000, 1.0)
    assert clock.run(1000, 4.0, noise=0.2, tokens=4000.0) is None


def test_as_many_tokens_in_twice_the_time_are_a_slowdown_though_it_is_even():
    """Where the source tells what a step is made of, an even level is no excuse."""
    clock = Clock(tokens=1000.0)
    clock.run(1000, 1.0)
    assert clock.run(200, 2.1, noise=0.005) <= 1120


def test_hiccups_are_no_slowdown():
    """Steps of 24 ms with one of two seconds in every three hundred."""
    clock = Clock()
    for _ in range(60):
        assert clock.run(300, 0.024, noise=0.1) is None
        assert clock.run(1, 2.1) is None


@pytest.mark.parametrize("every", [1, 10, 50])
def test_evaluations_and_checkpoints_are_no_slowdown(every):
    """A minute in every hundred steps of half a second, in logs of each, each tenth and each fiftieth step."""
    clock = Clock(every=every)
    for _ in range(60):
        assert clock.run(100, 0.5) is None
        clock.pause(60.0)


def test_a_run_that_is_slow_now_and_then_is_itself():
    """Every tenth point takes twice as long, from the start."""
    clock = Clock()
    for _ in range(60):
        assert clock.run(180, 1.0) is None
        assert clock.run(20, 2.0) is None


def test_noise_is_no_slowdown():
    """Ten thousand steps whose durations vary by a half."""
    assert Clock().run(10_000, 1.0, noise=0.5) is None


def test_compilation_at_the_start_is_not_the_baseline_and_no_finding():
    """The first steps take a minute."""
    clock = Clock()
    assert clock.run(5, 60.0) is None
    assert clock.run(1000, 1.0) is None
    assert clock.detector.verdict().statistics["baseline_seconds"] == pytest.approx(1.0, rel=0.02)


def test_a_restart_opens_a_new_baseline():
    """It may go on with another batch, on other machines."""
    clock = Clock()
    clock.run(1000, 1.0)
    clock.step, clock.count = 900, 0
    clock.pause(600.0)
    assert clock.run(1000, 2.5, noise=0.3) is None


def test_a_log_without_times_says_nothing():
    """All steps are of one time when a file is read in one go."""
    detector = Slowdown()
    for step in range(1, 2000):
        detector.observe(Step(step, step, 1_700_000_000.0, {"loss": 3.0}))
    assert detector.verdict() is None


def test_late_values_and_odd_numbers_do_no_harm():
    """Repeated counts, NaN, infinities and durations below zero."""
    clock = Clock(told="step_seconds")
    clock.run(1000, 1.0)
    for value in (float("nan"), float("inf"), -5.0, 0.0, 1e300):
        clock.detector.observe(Step(clock.step, clock.count, clock.time, {"grad_norm": 1.0}))
        clock.step += 1
        clock.count += 1
        clock.detector.observe(Step(clock.step, clock.count, clock.time, {"step_seconds": value, "tokens": value}))
    assert clock.run(1000, 1.0) is None
    assert clock.detector.verdict().statistics["times"] == pytest.approx(1.0, rel=0.05)
