"""What was agreed beforehand: silent without a rule, and never before the decay of the learning rate had its chance."""

from __future__ import annotations

import math

import pytest
from tests.detect.evaluated import Course
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.stop_loss import StopLoss, StopLossSettings
from trainvitals.telemetry import Step


def agreed(**rules):
    """Return the detector under some rules."""
    return StopLoss(StopLossSettings(**rules))


def scheduled(detector, rate, loss, *, steps=4_000, seconds=36.0, sigma=0.002):
    """Feed steps of 36 seconds with a learning rate and a loss by the share of the run; return the verdicts."""
    tape = Tape(detector, seconds=seconds)
    odd = noise(steps, level=0.0, sigma=sigma, seed=3)
    return [
        tape.play(
            [loss(number / steps) + odd[number]], **({} if rate is None else {"learning_rate": rate(number / steps)})
        )[0]
        for number in range(steps)
    ]


def flat(share):
    """Return a loss that has fallen to 3 after a fifth of the run, and stays."""
    return 3.0 + 4.0 * math.exp(-share * 40.0)


def late(share):
    """Return a loss that is flat until the last tenth, and falls by 0.1 there: a decay at the end."""
    return flat(share) - 0.1 * max(0.0, share - 0.9) / 0.1


def stable_decay(share):
    """Return a rate that is constant, and comes down to 0 in the last tenth."""
    return 0.01 * min(1.0, (1.0 - share) / 0.1)


def step_down(share):
    """Return a rate that is a tenth from two fifths of the run on."""
    return 0.01 if share < 0.4 else 0.001


def test_without_a_rule_nothing_is_said():
    """By default nothing was agreed: a run that is flat for ever is no business of this signal."""
    verdicts = scheduled(StopLoss(), step_down, flat)

    assert [None] * 4_000 == verdicts


def test_a_gain_that_is_too_small_is_said():
    """Flat at a rate that came down: one device-hour (100 steps) buys less than the agreed 0.01, from 55 % on."""
    verdicts = scheduled(agreed(least_gain_per_device_hour=0.01), step_down, flat)
    found = first_active(verdicts)

    assert 1_600 < found < 2_800
    verdict = verdicts[-1]
    assert verdict.severity == "warning"
    assert verdict.evidence == (
        f"since step {verdict.since_step}: one more device-hour buys less than the agreed 0.01 of the loss"
    )
    assert verdict.statistics["device_hours"] == pytest.approx(40.0, abs=0.1)
    assert -0.001 < verdict.statistics["gain"] < 0.001
    assert verdict.statistics["gain_upper"] < 0.01
    assert len({one.evidence for one in verdicts[found:] if one.active}) == 1


def test_more_devices_buy_less_each():
    """The same run on eight devices: what is 0.004 in an hour is 0.0005 in one of a device."""

    def falls(share):
        return flat(share) - 0.16 * share

    rule = {"least_gain_per_device_hour": 0.002}
    alone = scheduled(agreed(**rule), step_down, falls)
    many = scheduled(agreed(**rule, devices=8), step_down, falls)

    assert first_active(alone) is None
    assert first_active(many) is not None
    assert alone[-1].statistics["gain"] == pytest.approx(0.004, rel=0.1)
    assert many[-1].statistics["gain"] == pytest.approx(0.0005, rel=0.1)


def test_the_same_by_steps():
    """1,000 steps buy 0.02 where less than 0.05 is too little, and no times are needed."""
    verdicts = scheduled(agreed(least_gain_per_1000_steps=0.05), step_down, lambda s: flat(s) - 0.08 * s, seconds=0.0)

    assert first_active(verdicts) is not None
    assert verdicts[-1].statistics["gain"] == pytest.approx(0.02, rel=0.1)
    assert "one more 1,000 steps buys less than the agreed 0.05" in verdicts[-1].evidence


@pytest.mark.parametrize("loss", [flat, late])
def test_a_decay_that_is_to_come_is_waited_for(loss):
    """The stable phase of a schedule with a late decay is flat, and no reason to stop: the decay brings 0.1."""
    verdicts = scheduled(agreed(least_gain_per_device_hour=0.01, patience_evaluations=3), stable_decay, loss)

    assert first_active(verdicts[:3_900]) is None
    assert "the learning rate has not come down yet" in verdicts[3_000].gated


def test_a_cosine_is_given_its_last_phase():
    """A cosine to a tenth: before its last 15 % nothing is said, whatever the loss does."""

    def cosine(share):
        return 0.001 + 0.009 * 0.5 * (1.0 + math.cos(math.pi * share))

    verdicts = scheduled(agreed(least_gain_per_device_hour=0.01), cosine, flat)

    assert first_active(verdicts[: int(0.85 * 4_000)]) is None
    assert first_active(verdicts) is not None


def test_a_rate_that_rises_again_has_another_chance():
    """A restart of the schedule takes back what was said."""

    def restarts(share):
        return 0.01 if share < 0.3 or share > 0.8 else 0.001

    verdicts = scheduled(agreed(least_gain_per_device_hour=0.01), restarts, flat)

    assert verdicts[3_000].active
    assert not verdicts[-1].active


def test_without_a_rate_it_has_to_be_told():
    """A log without a learning rate may have its decay before it, unless the owner says that there is none."""
    rule = {"least_gain_per_device_hour": 0.01}
    unknown = scheduled(agreed(**rule), None, flat)
    told = scheduled(agreed(**rule, decays=False), None, flat)

    assert first_active(unknown) is None
    assert "set decays to false" in unknown[-1].gated
    assert first_active(told) is not None


def test_noise_that_hides_the_gain_says_nothing():
    """With 10 % of noise the interval is wider than what was agreed."""
    verdicts = scheduled(agreed(least_gain_per_device_hour=0.0002), step_down, flat, sigma=0.3)

    assert first_active(verdicts) is None


def test_a_grace_is_given():
    """Nothing is said of gains before the agreed grace."""
    verdicts = scheduled(agreed(least_gain_per_device_hour=0.01, grace_steps=3_000, decays=False), None, flat)

    assert 3_000 <= first_active(verdicts) < 3_400


def test_a_target_is_information():
    """The agreed loss is reached: by the validation where there is one, and at any learning rate."""
    course = Course(agreed(target_loss=2.0), every=100)
    said = []
    for value in (3.0, 2.4, 1.9, 2.1):
        course.train(1.0, learning_rate=0.01)
        said.append(course.evaluate(loss=value))

    assert [False, False, True, False] == [verdict.active for verdict in said]
    assert ("info", "since step 300: the loss is at the agreed 2") == (said[2].severity, said[2].evidence)


def test_a_target_of_the_training_loss():
    """Without evaluations it is the middle of the last three blocks: one odd step is no success."""
    tape = Tape(agreed(target_loss=2.0))
    tape.play(noise(200, level=3.0))
    assert first_active(tape.play([1.0])) is None
    assert first_active(tape.play(noise(100, level=1.9, sigma=0.01))) is not None


def test_patience_counts_evaluations():
    """Three evaluations without a better one behind the decay, as agreed; a better one begins anew."""
    course = Course(agreed(patience_evaluations=3, grace_steps=0, least_improvement=0.01), every=100)
    said = []
    for value, rate in ((3.0, 0.01), (3.1, 0.01), (3.1, 0.01), (3.1, 0.01), (3.1, 0.001), (2.9, 0.001), (2.895, 0.001)):
        course.train(1.0, learning_rate=rate)
        said.append(course.evaluate(loss=value))
    assert not any(verdict.active for verdict in said)
    for value in (2.95, 2.95):
        course.train(1.0, learning_rate=0.001)
        last = course.evaluate(loss=value)

    assert last.evidence == "since step 900: 3 evaluations without a better loss than at step 600"
    assert 3.0 == last.statistics["evaluations_without_gain"]


def test_a_budget_is_a_budget():
    """8 devices at 36 seconds a step spend 40 device-hours in 500 steps."""
    tape = Tape(agreed(most_device_hours=40.0, devices=8), seconds=36.0)

    found = first_active(tape.play(noise(600)))

    assert 498 <= found <= 502
    assert "the agreed 40 device-hours are spent" in tape.verdict.evidence


def test_a_run_that_goes_back_forgets_what_was_behind():
    """After a rollback to before the decay, the decay has its chance again."""
    tape = Tape(agreed(least_gain_per_1000_steps=0.05, grace_steps=0))
    tape.play(noise(600, sigma=0.002), learning_rate=0.01)
    tape.play(noise(800, sigma=0.002), learning_rate=0.001)
    assert tape.verdict.active

    tape.roll_back(100)
    tape.play(noise(100, sigma=0.002), learning_rate=0.01)

    assert not tape.verdict.active


def test_odd_values_are_left_out():
    """NaN, infinity, rates that are none, and results that are no numbers."""
    detector = agreed(least_gain_per_device_hour=0.01, target_loss=2.0, patience_evaluations=1, most_device_hours=1e9)
    for number, loss in enumerate((math.nan, math.inf, 1e300, -5.0)):
        detector.observe(Step(number, number, 0.0, {"loss": loss, "learning_rate": math.nan, "step_seconds": math.inf}))
    course = Course(detector)
    course.tell("validation", {"loss": math.nan})
    course.tell("validation", {"loss": 10**400})

    verdict = detector.verdict()
    assert verdict is None or not verdict.active
