"""A loss that goes up and stays: found in few points, and quiet on bumps, noise and rewards."""

from __future__ import annotations

import math
import random

import pytest
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.diverged import LossDiverged
from trainvitals.telemetry import Event


@pytest.fixture
def tape() -> Tape:
    """Give a training at its first step."""
    return Tape(LossDiverged())


def test_a_loss_that_explodes_and_stays_is_found_after_five_points_of_a_short_log(tape):
    """3.3 to 2751 to 50, in a log with every fiftieth step."""
    tape.play(noise(25, level=3.4, sigma=0.1))
    verdicts = tape.play([2751.0, 756.0, 126.0, *noise(30, level=49.0, sigma=2.0)])
    assert first_active(verdicts) == 4
    verdict = tape.verdict
    assert (verdict.since_step, verdict.severity, verdict.confidence) == (26, "critical", 0.95)
    assert verdict.evidence.startswith("since step 26: loss went from 3.")
    assert len({verdict.evidence for verdict in verdicts if verdict.active}) == 2


def test_in_a_log_of_more_than_200_points_it_takes_ten(tape):
    """Fewer may be a burst of odd batches there."""
    tape.play(noise(225, level=3.4, sigma=0.1))
    assert first_active(tape.play(noise(30, level=49.0, sigma=2.0))) == 9


def test_a_table_of_epochs_is_judged_with_eight_bad_ones(tape):
    """Ten good epochs, and a group of 5 that holds the jump itself."""
    tape.play([2.1, 1.6, 1.3, 1.1, 1.0, 0.9, 0.85, 0.8, 0.75])
    assert first_active(tape.play([2.9, 4.1, 4.0, 4.2, 3.9, 4.1])) == 5
    assert tape.verdict.since_step == 11


def test_losses_that_come_in_two_kinds_do_not_jump(tape):
    """Where the 10 before had such losses too, five in a row are no jump."""
    assert first_active(tape.play([3.0, 1.0, 1.1, 2.9, 1.0, 1.1, 3.1, 2.8, 1.0, 3.0, 3.0, 2.9, 3.1, 2.9, 3.0])) is None


@pytest.mark.parametrize(("losses", "found"), [([31.9, 83.1, 43.9, 48.1, 15.3, 9.2, 6.5], 4), ([31.9, 9.1, 6.5], None)])
def test_a_run_that_blows_up_at_its_beginning_is_found_by_the_evaluation_before_it(tape, losses, found):
    """A line in 20 steps: five above twice what an untrained model costs.  It is over when the loss is back."""
    tape.detector.observe_event(Event(tape.time, "evaluation", 0, {"name": "validation", "values": {"loss": 6.93}}))
    verdicts = []
    for loss in losses:
        tape.step += 19
        verdicts += tape.play([loss])
    assert first_active(verdicts) == found
    if found:
        assert tape.verdict.severity == "warning"
        assert "loss went from 6.93 to 83.1, far above that of the untrained model" in tape.verdict.evidence
        tape.play([5.0] * 5)
        assert not tape.verdict.active


def test_a_bump_of_ten_steps_is_none(tape):
    """Healthy runs without a warm-up are there: a line in each step."""
    tape.detector.observe_event(Event(tape.time, "evaluation", 0, {"name": "validation", "values": {"loss": 6.93}}))
    losses = [6.9, 17.0, 24.0, 21.0, 18.0, 15.0, 14.5, 12.0, 9.0, 8.0, *(7.5 - 0.1 * n for n in range(30))]
    assert first_active(tape.play(losses)) is None


def test_an_evaluation_that_is_worse_than_that_of_the_untrained_model_is_found(tape):
    """6.94 before the first step, 8.92 behind the thirtieth; it ends with one that is no worse."""

    def evaluate(step: int, loss: float) -> None:
        values = {"name": "validation", "values": {"loss": loss}}
        tape.detector.observe_event(Event(tape.time, "evaluation", step, values))

    evaluate(0, 6.94)
    assert first_active(tape.play([6.94, 12.7, 12.6, 12.4, 12.2, 11.9, 11.7, 11.6, 11.2, 11.1, 9.5, 8.9])) is None
    evaluate(12, 8.92)
    assert tape.verdict.active
    assert tape.verdict.evidence == "since step 12: loss went from 6.94 to 8.92: worse than the untrained model"
    evaluate(12, 7.5)
    assert not tape.verdict.active


def test_an_evaluation_that_rises_while_the_training_falls_is_overfitting(tape):
    """The losses of the training are below the first evaluation."""
    tape.detector.observe_event(Event(tape.time, "evaluation", 0, {"name": "validation", "values": {"loss": 2.0}}))
    tape.play([1.9, 1.7, 1.5, 1.2, 1.0])
    tape.detector.observe_event(Event(tape.time, "evaluation", 5, {"name": "validation", "values": {"loss": 2.9}}))
    assert not tape.detector.held


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
    """Eight losses above twice the level are a spike, and another signal's, once that has enough losses."""
    tape.play(noise(225))
    assert first_active(tape.play([20.0] * 8 + noise(50))) is None


def test_a_spike_in_a_short_log_is_a_warning_and_over_when_it_recovers(tape):
    """No other signal can see it there."""
    tape.play(noise(50))
    assert first_active(tape.play([20.0] * 8)) == 4
    assert (tape.verdict.severity, tape.verdict.since_step) == ("warning", 51)
    assert tape.verdict.evidence == "since step 51: loss went from 2.988 to 20, and is there for 5 losses"
    tape.play(noise(10))
    assert not tape.verdict.active


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


def test_a_loss_beside_a_reward_may_grow_with_it(tape):
    """That of a value function does, in a healthy run."""
    assert first_active(tape.play([0.1 + 0.01 * place for place in range(300)], reward=0.5)) is None
    assert tape.detector.verdict() is None


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


@pytest.mark.parametrize(
    "beside",
    [{"reward": 1.0}, {"charts/episodic_return": 7.0}, {"g_loss": 2.0, "d_loss": 0.4}, {"errG": 2.0, "errD": 0.4}],
)
def test_losses_that_may_rise_are_not_judged(beside):
    """That of a value function grows with the rewards, and a generator's with its discriminator."""
    tape = Tape(LossDiverged())
    tape.play([1.0] * 50, **beside)
    assert tape.play([5.0] * 50, **beside)[-1] is None


def test_a_reward_that_is_logged_later_ends_what_was_found():
    """TensorBoard has a record for each value: the loss may come first."""
    tape = Tape(LossDiverged())
    tape.play([1.0] * 50)
    assert tape.play([5.0] * 50)[-1].active
    assert tape.play([None], reward=1.0)[-1] is None


def test_the_parts_of_a_loss_of_preferences_are_no_reward():
    """That loss falls, and what goes wrong with it is found."""
    tape = Tape(LossDiverged())
    tape.play([0.6] * 50, **{"rewards/margins": 0.1, "rewards/chosen": -1.0})
    assert tape.play([3.0] * 50, **{"rewards/margins": 0.1, "rewards/chosen": -1.0})[-1].active


@pytest.mark.parametrize("seed", range(4))
def test_batches_of_three_kinds_in_any_order_do_not_diverge(seed):
    """Five easy ones in a row are a low level by chance, and ten others are far above it."""
    numbers = random.Random(seed)
    losses = [numbers.choice((0.45, 1.8, 4.0)) * (1.0 + numbers.gauss(0.0, 0.05)) for _ in range(1500)]
    assert first_active(Tape(LossDiverged()).play(losses)) is None
