"""Odd steps that are odd again when the run comes by them once more are data; others are not spoken of."""

from __future__ import annotations

import math

import pytest
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.recurring import RecurringOutlier
from trainvitals.telemetry import Step, Steps


def losses(first, count, odd=(), *, seed=1, size=1.5):
    """Return losses around 3 from a step on; those at odd steps are higher by so much."""
    values = noise(count, level=3.0, sigma=0.03, seed=seed)
    for number in odd:
        values[number - first] += size
    return values


def test_the_same_step_in_another_attempt_is_data():
    """Step 400 is odd, the run goes back to 300, and it is odd again: the step, its count, and what to do."""
    tape = Tape(RecurringOutlier())
    assert first_active(tape.play(losses(1, 600, (400,)))) is None

    tape.roll_back(300)
    verdicts = tape.play(losses(301, 300, (400,), seed=2))
    found = first_active(verdicts)

    # It is known when the loss is back: a step later.
    assert 100 == found
    verdict = verdicts[found]
    assert ("warning", 400, (700,)) == (verdict.severity, verdict.since_step, verdict.counts)
    assert verdict.evidence.startswith("step 400: loss 4.")
    assert verdict.evidence.endswith(", and it was odd before as well")
    assert verdict.action.startswith("data: ")
    assert {"outliers": 2.0, "recurred": 1.0} == verdict.statistics


def test_a_restart_is_an_attempt_too():
    """The count begins again with the process; the step decides."""
    tape = Tape(RecurringOutlier())
    tape.play(losses(1, 600, (580,)))
    tape.restart(500)

    found = first_active(tape.play(losses(501, 150, (580,), seed=2)))

    assert 80 == found
    assert (80,) == tape.verdict.counts


def test_an_odd_step_that_does_not_come_again_is_chance():
    """Another step is odd the second time, or none: nothing is said."""
    for second in ((), (401,), (399,), (550,)):
        tape = Tape(RecurringOutlier())
        tape.play(losses(1, 600, (400,)))
        tape.roll_back(300)

        assert first_active(tape.play(losses(301, 300, second, seed=2))) is None


def test_a_run_that_never_went_back_says_so():
    """Odd steps alone are counted, and why nothing is said of them."""
    tape = Tape(RecurringOutlier())

    assert first_active(tape.play(losses(1, 900, (300, 400, 700)))) is None
    assert 3.0 == tape.verdict.statistics["outliers"]
    assert "has not gone back" in tape.verdict.gated


def test_a_spike_is_no_outlier():
    """Three losses in a row and more are a rise: an instability may come again at the same place too."""
    tape = Tape(RecurringOutlier())
    spike = (400, 401, 402, 403)
    tape.play(losses(1, 600, spike))
    tape.roll_back(300)

    assert first_active(tape.play(losses(301, 300, spike, seed=2))) is None
    assert 0.0 == tape.verdict.statistics["outliers"]


def test_nan_in_the_same_step_is_data():
    """A loss that is NaN in one step of both attempts, and a number in the next."""
    tape = Tape(RecurringOutlier())
    first, second = losses(1, 600), losses(301, 300, seed=2)
    first[399] = second[99] = math.nan
    tape.play(first)
    tape.roll_back(300)

    assert 100 == first_active(tape.play(second))
    assert "step 400: loss nan" in tape.verdict.evidence


def test_skipped_steps_are_left_out():
    """A loss scaler meets infinities at the same steps, and that is no data."""
    tape = Tape(RecurringOutlier())
    for first in (1, 301):
        tape.play(losses(first, 399 - first + 1, seed=first))
        tape.play([math.inf], skipped=1.0)
        tape.play(losses(401, 200, seed=first + 1))
        tape.roll_back(300)

    assert not tape.verdict.active


def test_coincidence_of_many_is_chance():
    """Where one step in twenty is odd, some fall together by chance."""
    many = range(201, 601, 20)
    tape = Tape(RecurringOutlier())
    tape.play(losses(1, 600, many))
    tape.roll_back(190)
    other = [number + 7 for number in many if number + 7 < 600]

    assert first_active(tape.play(losses(191, 410, [*other[:-1], 401], seed=2))) is None


def test_it_is_held_for_a_while():
    """Ten minutes and 100 steps, so that somebody sees it."""
    tape = Tape(RecurringOutlier(), seconds=10.0)
    tape.play(losses(1, 600, (400,)))
    tape.roll_back(300)
    verdicts = tape.play(losses(301, 300, (400,), seed=2))

    assert [True, True, False] == [verdicts[place].active for place in (100, 195, 250)]


@pytest.mark.parametrize("odd", [4.5, math.nan])
def test_the_same_numbers_twice_are_no_witness(odd):
    """A log that holds its run twice, or a replay of the same weights to the last digit, tells nothing new."""
    tape = Tape(RecurringOutlier())
    values = losses(1, 600)
    values[399] = odd
    tape.play(values)
    tape.restart(0)

    assert first_active(tape.play(values)) is None


def test_late_values_are_no_rollback():
    """A probe that tells the loss a step later repeats the number of its step."""
    detector = RecurringOutlier()
    for number, loss in enumerate(losses(1, 400, (300,)), 1):
        detector.observe(Step(number + 1, number + 1, number + 1.0, {}))
        detector.observe(Step(number, number, float(number), {"loss": loss}))

    assert "has not gone back" in detector.verdict().gated
    assert [300] == list(detector.outliers)


@pytest.mark.parametrize("size", [1, 7, 64, 150, 1_000])
def test_blocks_are_what_steps_are(size):
    """Columns give to the last digit what step by step gives, whatever their length."""
    alone, together = RecurringOutlier(), RecurringOutlier()
    count, time = 0, 0.0
    for first, values in ((1, losses(1, 600, (400, 550))), (301, losses(301, 400, (400, 480), seed=2))):
        for begin in range(0, len(values), size):
            part = values[begin : begin + size]
            numbers = list(range(first + begin, first + begin + len(part)))
            times = [time + place for place in range(1, len(part) + 1)]
            steps = Steps(numbers, count + 1, times, {"loss": part})
            count, time = count + len(part), times[-1]
            taken = 0
            while taken < len(steps):
                taken += together.observe_all(steps.part(taken, len(steps)))
            for step in steps:
                alone.observe(step)
            assert alone.verdict() == together.verdict()

    assert together.verdict().active
    assert [400, 480, 550] == sorted(together.outliers)
    assert 1_000 == together.points
