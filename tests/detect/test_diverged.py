"""A loss that goes up and stays: found in few points, and quiet on bumps, noise and rewards."""

from __future__ import annotations

import math
import random

import pytest
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.diverged import LossDiverged


@pytest.fixture
def tape() -> Tape:
    """Give a training at its first step."""
    return Tape(LossDiverged())


def test_a_loss_that_explodes_and_stays_is_found_after_ten_points(tape):
    """3.3 to 2751 to 50, in a log with every fiftieth step."""
    tape.play(noise(25, level=3.4, sigma=0.1))
    verdicts = tape.play([2751.0, 756.0, 126.0, *noise(30, level=49.0, sigma=2.0)])
    assert first_active(verdicts) == 9
    verdict = tape.verdict
    assert (verdict.since_step, verdict.severity, verdict.confidence) == (26, "critical", 0.95)
    assert verdict.evidence.startswith("since step 26: loss went from 3.")
    assert len({verdict.evidence for verdict in verdicts if verdict.active}) == 1


def test_a_loss_that_rises_on_and_on_is_found(tape):
    """12 to 48, down to 11.7 and up to 20 again: the second rise."""
    first = [12.4, 12.4, 44.2, 48.1, *(48.0 - 1.4 * i for i in range(26))]
    assert first_active(tape.play(first)) is None
    verdicts = tape.play([11.7, 11.8, 12.0, *(12.2 + 0.28 * i for i in range(40))])
    assert first_active(verdicts) is not None
    assert tape.verdict.severity == "warning"
    assert tape.verdict.evidence.startswith("since step 4")


def test_it_ends_when_the_loss_is_half_of_the_way_back(tape):
    """1.5 times the lowest level, for a finding at twice."""
    tape.play(noise(30))
    tape.play(noise(30, level=9.0, seed=2))
    assert tape.verdict.active
    assert tape.play(noise(10, level=4.8, seed=3))[-1].active
    assert not tape.play(noise(10, level=3.2, seed=4))[-1].active


def test_an_early_bump_is_quiet(tape):
    """Without a warm-up: 6.9 to 17 and back within some steps."""
    assert first_active(tape.play([6.94, 17.3, 9.6, 6.7, 6.7, 6.5, 6.4, 6.2, 6.0, 5.9, 5.3, 4.7, *noise(40)])) is None


def test_a_bump_that_is_still_coming_down_is_quiet(tape):
    """12 to 44 and back to 8, in fifty steps."""
    losses = [12.4, 12.4, 43.0, *(33.0 * math.exp(-i / 8) + 8.0 for i in range(47))]
    assert first_active(tape.play(losses)) is None


def test_a_spike_that_recovers_is_quiet(tape):
    """Eight losses above twice the level are a spike, and another signal's."""
    tape.play(noise(50))
    assert first_active(tape.play([20.0] * 8 + noise(50))) is None


def test_noise_of_the_size_of_the_loss_is_quiet(tape):
    """The loss of single samples: two thirds of the losses are below, others above, twice the lowest level."""
    numbers = random.Random(5)
    assert first_active(tape.play([math.exp(numbers.gauss(0.0, 0.8)) for _ in range(20_000)])) is None


def test_a_loss_near_zero_may_double(tape):
    """0.004 to 0.009, after a beginning at 0.45."""
    tape.play([0.45 * math.exp(-i / 5) + 0.004 for i in range(60)])
    assert first_active(tape.play([0.009] * 60)) is None


def test_a_higher_level_that_does_not_rise_is_quiet(tape):
    """A harder mixture: 40 % higher, and flat."""
    tape.play(noise(100))
    assert first_active(tape.play(noise(100, level=4.2, seed=2))) is None


def test_rewards_are_not_judged(tape):
    """A loss of both signs has no level to be a multiple of."""
    assert tape.play(noise(200, level=0.0, sigma=1.0))[20:] == [None] * 180


def test_a_rollback_ends_it(tape):
    """What was behind it is superseded; the lowest level stays."""
    tape.play(noise(60))
    tape.play(noise(20, level=9.0, seed=2))
    tape.roll_back(40)
    assert not any(verdict is not None and verdict.active for verdict in tape.play(noise(30)))
    assert first_active(tape.play(noise(20, level=9.0, seed=3))) is not None


def test_a_run_that_begins_again_has_a_lowest_level_of_its_own(tape):
    """Its loss begins where the first had begun."""
    tape.play([10.0 * math.exp(-i / 20) + 2.0 for i in range(100)])
    tape.restart(0)
    assert first_active(tape.play([10.0 * math.exp(-i / 20) + 2.0 for i in range(100)])) is None


def test_huge_and_non_finite_losses_do_no_harm(tape):
    """NaN is another signal's; the ratio stays finite."""
    tape.play(noise(20))
    verdicts = tape.play([math.nan, math.inf, 1e300] * 20)
    assert verdicts[-1].active
    assert math.isfinite(verdicts[-1].ratio)
