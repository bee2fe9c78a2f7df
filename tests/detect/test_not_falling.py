"""A loss that does not fall: stuck from the beginning, and everything that only looks like it."""

from __future__ import annotations

import math
import random

import pytest
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.not_falling import LossNotFalling
from trainvitals.telemetry import Event, Step


def play_epochs(losses, detector=None):
    """Feed an epoch for each loss, with its evaluation; return the verdicts."""
    detector = detector or LossNotFalling()
    verdicts = []
    for epoch, loss in enumerate(losses):
        detector.observe(Step(epoch, epoch + 1, 60.0 * epoch, {"loss": loss}))
        detector.observe_event(
            Event(60.0 * epoch, "evaluation", epoch, {"name": "validation", "values": {"loss": 1.0}})
        )
        verdicts.append(detector.verdict())
    return verdicts


def play_logged(losses, *, every=50, detector=None, **values):
    """Feed a loss for every so many steps; return the verdicts."""
    detector = detector or LossNotFalling()
    verdicts = []
    for index, loss in enumerate(losses, 1):
        detector.observe(Step(index * every, index, float(index * every), {"loss": loss, **values}))
        verdicts.append(detector.verdict())
    return verdicts


def learning(count, *, first=7.5, last=4.0, pace=15.0, sigma=0.05, seed=3):
    """Return a loss that falls as it should."""
    numbers = random.Random(seed)
    return [last + (first - last) * math.exp(-i / pace) + numbers.gauss(0.0, sigma) for i in range(count)]


@pytest.mark.parametrize(("classes", "text"), [(2, "0.6931"), (10, "2.303")])
def test_guessing_is_found_after_twenty_epochs(classes, text):
    """A loss at ln C with the noise of an epoch."""
    level = math.log(classes)
    verdicts = play_epochs(noise(30, level=level, sigma=0.0002 * level))
    assert first_active(verdicts) == 19
    verdict = verdicts[-1]
    assert verdict.evidence == f"since step 0: the loss stays where all of {classes} classes are guessed, {text}"
    assert (verdict.since_step, verdict.severity, verdict.confidence) == (0, "warning", 0.9)
    assert verdict.action.startswith("data: check that labels")


def test_guessing_is_found_though_the_first_losses_were_larger():
    """Bad initial weights give a large first loss; coming down from there to ln C is no learning."""
    verdicts = play_epochs([2.9, 2.4, 2.31, *noise(37, level=math.log(10), sigma=0.0005)])
    assert verdicts[-1].active


def test_a_language_model_that_is_stuck_is_found():
    """At 7.4, the level of counting words: every fiftieth step has a loss, so twenty points are a thousand steps."""
    verdicts = play_logged(noise(40, level=7.42, sigma=0.06))
    assert first_active(verdicts) == 19
    assert verdicts[-1].evidence.startswith("since step 50: the loss is still near 7.4")
    assert len({verdict.evidence for verdict in verdicts if verdict is not None and verdict.active}) == 1


def test_a_fine_tune_that_falls_by_a_tenth_in_all_is_no_warning():
    """At its twentieth loss it is 3 % down, and noise is 2 %: slow or stuck, nobody knows yet."""
    losses = [
        1.4 * (1.0 - 0.1 * (place / 120) ** 0.7) + odd for place, odd in enumerate(noise(120, level=0.0, sigma=0.02))
    ]
    verdicts = play_logged(losses)
    assert {verdict.severity for verdict in verdicts if verdict is not None and verdict.active} <= {"info"}


def test_a_loss_beside_a_reward_need_not_fall():
    """What is learnt is the reward."""
    detector = LossNotFalling()
    for place, loss in enumerate(noise(60, level=0.21, sigma=0.001), 1):
        detector.observe(Step(50 * place, place, 1.7e9 + place, {"loss": loss, "rollout/ep_rew_mean": 0.1 * place}))
    assert detector.verdict() is None


def test_a_loss_that_is_exactly_constant_is_found_after_200_steps():
    """An optimizer that is not stepped: ln of the vocabulary, to the last digit."""
    verdicts = play_logged([10.8259] * 260, every=1)
    assert first_active(verdicts) == 199
    assert verdicts[-1].ratio == 10.0


def test_a_run_that_learns_is_quiet():
    """At no point of it."""
    verdicts = play_logged(learning(200))
    assert first_active(verdicts) is None
    assert verdicts[18] is None
    assert verdicts[-1].ratio == 0.0


def test_a_slow_but_steady_run_is_quiet():
    """0.06 % in an epoch, below ln 2 from the tenth on: it has begun to know something."""
    assert first_active(play_epochs([0.6975 - 0.0004 * i for i in range(300)])) is None


def test_a_late_start_is_quiet_or_released():
    """Flat for 13 epochs and then falling: never on.  Flat for 40: on, and off when it falls."""
    early = play_epochs([2.306] * 13 + [2.2 - 0.02 * i for i in range(37)])
    assert first_active(early) is None
    late = play_epochs([*noise(40, level=2.3026, sigma=0.0005), *(2.2 - 0.03 * i for i in range(40))])
    assert first_active(late) == 19
    last = max(index for index, verdict in enumerate(late) if verdict is not None and verdict.active)
    assert last <= 52
    assert late[-1].ratio == 0.0


def test_a_run_that_has_learnt_is_never_judged_again():
    """A late flat stretch is a plateau, and a loss that comes back up is another signal."""
    verdicts = play_logged([*learning(100), *noise(300, level=4.0, sigma=0.02), *noise(100, level=7.5, sigma=0.02)])
    assert first_active(verdicts) is None


def test_a_fall_by_a_tenth_within_the_noise_is_quiet():
    """A fine-tuning: from 1.4 to 1.2 with 5 % of noise."""
    verdicts = play_logged(learning(60, first=1.4, last=1.2, pace=12.0, sigma=0.06), every=10)
    assert first_active(verdicts) is None


def test_noise_that_hides_a_fall_gives_no_finding():
    """30 % of noise in 24 points: whether there is a fall of 5 % cannot be seen."""
    assert first_active(play_logged(noise(24, level=1.0, sigma=0.3))) is None


def test_warm_up_is_not_judged():
    """Nothing falls as long as the learning rate is next to nothing; from its peak on, twenty points count."""
    detector = LossNotFalling()
    for step in range(1, 601):
        rate = 1e-3 * min(step / 500, 1.0)
        detector.observe(Step(step, step, float(step), {"loss": 10.9, "learning_rate": rate}))
        if step < 690 and step <= 500:
            assert detector.verdict() is None
    for step in range(601, 800):
        detector.observe(Step(step, step, float(step), {"loss": 10.9, "learning_rate": 1e-3}))
    verdict = detector.verdict()
    assert verdict.active
    assert verdict.gated.startswith("judged from step 49")


def test_skipped_steps_teach_nothing():
    """The search of a loss scaler is not a flat loss."""
    assert play_logged([10.9] * 300, every=1, skipped=1.0) == [None] * 300


def test_a_run_without_its_beginning_is_not_judged():
    """A log that begins at step 37,550 every 50 steps: its loss may have fallen for long."""
    detector = LossNotFalling()
    for index, loss in enumerate(noise(150, level=0.39, sigma=0.01)):
        detector.observe(Step(37_550 + 50 * index, index + 1, float(index), {"loss": loss}))
        assert detector.verdict() is None


def test_a_second_attempt_that_goes_on_with_what_was_learnt_is_quiet():
    """It numbers its steps anew, and begins at the level that the first had got to."""
    detector = LossNotFalling()
    play_logged(learning(100), detector=detector)
    verdicts = play_logged(noise(100, level=4.0, sigma=0.02), detector=detector)
    assert first_active(verdicts) is None


def test_a_second_attempt_that_is_stuck_is_found():
    """Where it begins as high as the first had."""
    detector = LossNotFalling()
    play_logged(learning(100), detector=detector)
    verdicts = play_logged(noise(100, level=7.5, sigma=0.02), detector=detector)
    assert first_active(verdicts) == 19


def test_a_rollback_forgets_what_was_behind_it():
    """The steps that are repeated do not count twice."""
    detector = LossNotFalling()
    play_logged(noise(18, level=7.4, sigma=0.02), detector=detector)
    for index, loss in enumerate(noise(9, level=7.4, sigma=0.02, seed=2)):
        detector.observe(Step(500 + 50 * index, 19 + index, 0.0, {"loss": loss}))
    assert detector.verdict() is None


def test_rewards_are_not_judged():
    """A loss of both signs has no share of itself to fall by."""
    assert play_logged(noise(300, level=0.0, sigma=1.0), every=10)[40:] == [None] * 260


def test_nan_is_left_out():
    """It is another signal's."""
    assert play_logged([math.nan, math.inf] * 100) == [None] * 200


def test_a_rising_loss_is_another_signals():
    """From 4 to 8."""
    assert first_active(play_logged([4.0 + 0.04 * i for i in range(100)])[40:]) is None


def test_without_a_loss_there_is_no_verdict():
    """Silence is not health."""
    tape = Tape(LossNotFalling())
    assert tape.play([None] * 300, learning_rate=1e-3) == [None] * 300


def test_a_flat_stretch_is_information_until_it_is_three_times_as_long():
    """A fine-tune that falls by 8 % in all may be flat for a fifth of its way; one that is stuck still is, later."""
    slow = [1.2, *noise(24, level=1.2, sigma=0.02), *(1.2 - 0.004 * i for i in range(25))]
    verdicts = play_logged(slow)
    assert {verdict.severity for verdict in verdicts if verdict is not None and verdict.active} == {"info"}
    stuck = play_logged(noise(60, level=1.2, sigma=0.02))
    said = [verdict.severity for verdict in stuck if verdict is not None and verdict.active]
    assert (said[0], said[-1]) == ("info", "warning")


def test_the_sum_of_two_losses_against_each_other_need_not_fall():
    """Where a generator gets better, its discriminator gets worse."""
    detector = LossNotFalling()
    for place, loss in enumerate(noise(60, level=2.1, sigma=0.01), 1):
        values = {"loss": loss, "loss_G": 1.4, "loss_D": 0.7}
        detector.observe(Step(50 * place, place, 1.7e9 + place, values))
    assert detector.verdict() is None
