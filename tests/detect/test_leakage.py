"""Leakage: a validation loss that is better than the training can explain, and one that is better for a reason."""

from __future__ import annotations

import pytest
from tests.detect.evaluated import Course, falling, fork
from tests.detect.helpers import first_active, noise

from trainvitals.detect.leakage import LeakageSuspected


def test_a_drop_that_the_training_does_not_follow_is_found_at_its_third_evaluation():
    """A source was added that holds samples of the validation."""
    validation = [*falling(20, first=3.0, last=2.0, sigma=0.005), *falling(8, first=1.6, last=1.5, sigma=0.005)]
    course = Course(LeakageSuspected(), every=10)
    verdicts = course.run(falling(28, first=3.0, last=1.9, sigma=0.01), validation)
    assert first_active(verdicts) == 22
    verdict = verdicts[-1]
    assert (verdict.since_step, verdict.severity, verdict.confidence) == (210, "warning", 0.5)
    assert verdict.evidence.startswith("since step 210: validation loss fell at once from 1.999 to 1.61,")
    assert "look for samples of validation" in verdict.action


def test_a_learning_rate_that_drops_moves_both():
    """Steps of a schedule make such drops in healthy runs."""
    validation = [*falling(20, first=3.0, last=2.0), *falling(8, first=1.6, last=1.5)]
    train = [*falling(20, first=3.1, last=2.1), *falling(8, first=1.7, last=1.5)]
    assert first_active(Course(LeakageSuspected()).run(train, validation)) is None


def test_one_or_two_good_evaluations_are_no_drop():
    """It must last."""
    validation = falling(30, first=3.0, last=2.0, sigma=0.005)
    validation[20] *= 0.7
    validation[21] *= 0.7
    assert first_active(Course(LeakageSuspected()).run(falling(30, first=3.0, last=2.0), validation)) is None


@pytest.mark.parametrize("seed", range(6))
def test_noise_is_no_drop(seed):
    """A small validation set, 5 % of noise."""
    verdicts = Course(LeakageSuspected()).run(
        falling(80, sigma=0.02, seed=seed), falling(80, sigma=0.05, seed=seed + 50)
    )
    assert first_active(verdicts) is None


def test_a_steep_begin_is_no_drop():
    """A run that learns late: nothing for ten evaluations, then all at once, in both."""
    losses = [*noise(12, level=2.3, sigma=0.002), *falling(20, first=2.0, last=1.0)]
    assert first_active(Course(LeakageSuspected()).run(losses, losses)) is None


def test_a_gap_of_dropout_is_none():
    """On healthy logs it is up to a quarter, and on that side."""
    train = falling(40, first=4.0, last=2.0)
    assert first_active(Course(LeakageSuspected()).run(train, [0.75 * loss for loss in train])) is None


def test_a_gap_that_grows_is_found_where_both_are_measured_alike():
    """The evaluation measures the training loss itself, so there is no dropout between the two."""
    course = Course(LeakageSuspected(), every=10)
    verdicts = []
    for index, loss in enumerate(falling(30, first=4.0, last=2.0, sigma=0.002)):
        course.train(1.1 * loss)
        verdicts.append(course.evaluate(train_loss=loss, loss=loss * (1.0 - 0.003 * index)))
    assert first_active(verdicts) in range(9, 16)
    assert verdicts[-1].evidence == (
        f"since step {verdicts[-1].since_step}: validation loss is below the training loss measured beside it,"
        " and the gap grew"
    )


def test_a_gap_from_the_begin_on_is_an_easier_set():
    """It does not grow."""
    course = Course(LeakageSuspected(), every=10)
    verdicts = []
    for loss, wobble in zip(falling(40, first=4.0, last=2.0), noise(40, level=0.95, sigma=0.003), strict=True):
        course.train(loss)
        verdicts.append(course.evaluate(train_loss=loss, loss=loss * wobble))
    assert first_active(verdicts) is None


def test_a_finding_stays_until_the_run_goes_back_before_it():
    """What has leaked does not heal."""
    validation = [*falling(20, first=3.0, last=2.0, sigma=0.005), *falling(30, first=1.6, last=1.4, sigma=0.005)]
    course = Course(LeakageSuspected(), every=10)
    assert course.run(falling(50, first=3.0, last=1.9, sigma=0.01), validation)[-1].since_step == 210
    course.restart(190)
    assert not course.detector.verdict().active


def test_overfitting_is_no_leak():
    """The validation loss rises."""
    assert first_active(Course(LeakageSuspected()).run(falling(40, last=0.1), fork(40, best=15))) is None


def test_nothing_is_said_with_ten_evaluations():
    """Eight tell the noise, three that it lasts."""
    assert Course(LeakageSuspected()).run(falling(10), falling(10))[-1] is None


def test_a_drop_that_is_no_larger_than_the_ups_and_downs_before_it_is_none():
    """A small validation set: neighbours differ by 30 % all the time, so a drop by as much tells nothing."""
    validation = [1.3, 1.0, 1.35, 1.0, 1.3, 1.02, 1.34, 1.3, 1.32, 0.97, 0.98, 0.96, 0.97]
    assert first_active(Course(LeakageSuspected()).run([1.0] * 13, validation)) is None
