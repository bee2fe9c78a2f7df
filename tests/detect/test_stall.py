"""Stall: how long is too long depends on the phase and on what the run did before."""

from __future__ import annotations

import pytest

from trainvitals.detect.stall import Stall
from trainvitals.telemetry import Event, Step

START = 1_700_000_000.0


class Run:
    """A training and its clock."""

    def __init__(self) -> None:
        self.stall = Stall()
        self.time, self.step, self.count = START, 0, 0

    def go(self, steps: int, seconds: float) -> Run:
        """Do so many steps."""
        for _ in range(steps):
            self.time += seconds
            self.step += 1
            self.count += 1
            self.stall.observe(Step(self.step, self.count, self.time, {}))
        return self

    def pause(self, seconds: float, kind: str = "") -> Run:
        """Let time pass before the next step, with an event in it."""
        if kind:
            self.stall.observe_event(Event(self.time + 1.0, kind, self.step))
        self.time += seconds
        return self

    def after(self, seconds: float, phase: str = "train"):
        """The verdict so long after the last step."""
        return self.stall.verdict(self.time + seconds, phase=phase, since=self.time, step=self.step)


def test_fast_steps_are_stalled_after_two_minutes_and_critical_after_ten():
    """Of half a second each."""
    run = Run().go(1000, 0.5)
    assert not run.after(119.0).active
    assert run.after(119.0).ratio == pytest.approx(119.0 / 120.0)
    assert run.after(11.0).ratio == 0.0
    found = run.after(121.0)
    assert (found.severity, found.since_step) == ("warning", 1000)
    assert found.evidence == "since step 1000: no other step for more than 2 minutes (phase train)"
    assert run.after(601.0).severity == "critical"
    assert run.after(601.0).evidence == run.after(3000.0).evidence


def test_slow_steps_are_stalled_after_five_of_them():
    """BLOOM took 106 seconds for one."""
    run = Run().go(200, 106.0)
    assert not run.after(529.0).active
    assert run.after(531.0).severity == "warning"
    assert run.after(1061.0).severity == "critical"


def test_the_start_has_twenty_minutes():
    """Before the first step, whose batch may be what is waited for."""
    verdicts = [Stall().verdict(START + age, phase="data", since=START, step=None) for age in (1199.0, 1201.0, 2401.0)]
    assert [verdict.active for verdict in verdicts] == [False, True, True]
    assert [verdict.severity for verdict in verdicts[1:]] == ["warning", "critical"]
    assert verdicts[1].evidence == "no first step for more than 20 minutes (phase data)"


def test_compilation_of_the_first_steps_is_not_what_steps_take():
    """Two steps of five minutes."""
    run = Run().go(3, 300.0).go(100, 0.5)
    assert run.after(121.0).active


@pytest.mark.parametrize("phase", ["evaluation", "checkpoint"])
def test_an_evaluation_or_checkpoint_has_an_hour_or_five_times_what_it_took(phase):
    """And twice as much until it is critical."""
    run = Run().go(100, 0.5)
    assert not run.after(3599.0, phase).active
    assert run.after(3601.0, phase).severity == "warning"
    assert run.after(7201.0, phase).severity == "critical"
    run.pause(1000.0, phase).go(100, 0.5)
    assert not run.after(4999.0, phase).active
    assert run.after(5100.0, phase).active


def test_pauses_that_are_not_called_so_and_come_again_are_no_stall():
    """Evaluations of 200 seconds without a phase: from the third on nothing is said."""
    run = Run()
    for _ in range(2):
        run.go(1000, 0.5).pause(200.0)
    run.go(1000, 0.5)
    assert not run.after(300.0).active
    assert run.after(410.0).active


def test_one_long_hang_does_not_hide_the_next():
    """Three hours, and then steps again."""
    run = Run().go(1000, 0.5).pause(10_800.0).go(1000, 0.5)
    assert run.after(121.0).active


def test_the_time_between_two_processes_is_no_step():
    """A run that was down for a day."""
    run = Run().go(1000, 0.5).pause(86_400.0)
    run.count = 0
    run.go(100, 0.5)
    assert run.after(121.0).active


def test_a_clock_that_goes_back_is_no_stall():
    """An age below zero is none."""
    assert Run().go(1000, 0.5).after(-500.0).ratio == 0.0
