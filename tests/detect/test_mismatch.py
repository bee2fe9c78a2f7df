"""Evaluation mismatch: losses that are not of one kind, and those that only differ."""

from __future__ import annotations

import math

import pytest
from tests.detect.evaluated import Course, falling, fork
from tests.detect.helpers import first_active

from trainvitals.detect.mismatch import EvaluationMismatch


def test_a_validation_loss_that_is_no_number_is_found_at_once():
    """The training loss is fine, so training goes on for hours."""
    course = Course(EvaluationMismatch(), every=10)
    verdicts = course.run(falling(6), [2.0, 1.8, math.nan, math.nan, 1.2, 1.1])
    assert [verdict.active for verdict in verdicts] == [False, False, True, True, False, False]
    assert (verdicts[3].since_step, verdicts[3].ratio, verdicts[3].severity) == (30, 2.0, "warning")
    assert verdicts[3].evidence == "since step 30: validation loss is not finite, while the training loss is"
    assert verdicts[3].action.startswith("data: look for an empty or broken batch in validation")


@pytest.mark.parametrize("train", [math.nan, math.inf])
def test_a_training_loss_that_is_no_number_either_is_not_of_the_evaluation(train):
    """That is another signal."""
    course = Course(EvaluationMismatch(), every=10)
    course.run(falling(3), falling(3))
    course.train(1.0, 9)
    course.train(train, 1)
    assert not course.evaluate(loss=math.nan).active


def test_twice_the_loss_from_the_first_evaluation_on_is_found_at_the_fifth():
    """Another preprocessing, or a model that is not in evaluation mode: what is learnt does not show there."""
    verdicts = Course(EvaluationMismatch(), every=10).run(
        falling(8, first=2.0, last=1.0), [6.0, 5.9, 6.1, 6.0, 5.8, 6.1, 6.0, 3.0]
    )
    assert first_active(verdicts) == 4
    verdict = verdicts[-1]
    assert (verdict.since_step, verdict.severity) == (10, "warning")
    assert verdict.evidence == "since step 10, the first one: validation loss is 2 times the training's or more"
    assert verdict.statistics["factor"] == pytest.approx(3.0)


def test_the_same_factor_all_the_time_is_another_count_and_an_info():
    """A sum over the batch, or a mean over other things: the validation loss falls with the training's."""
    train = falling(12, first=2.0, last=0.5, sigma=0.01)
    verdicts = Course(EvaluationMismatch(), every=10).run(train, [8.0 * loss for loss in train])
    assert first_active(verdicts) == 4
    assert {verdict.severity for verdict in verdicts[4:]} == {"info"}
    assert verdicts[-1].evidence.endswith("2 times the training's or more, by the same factor all the time")


def test_two_odd_evaluations_of_a_young_model_are_none():
    """Statistics of BatchNorm lag behind in the first epochs."""
    own = falling(10, first=2.0, last=1.0)
    assert first_active(Course(EvaluationMismatch()).run(own, [9.0, 6.0, 3.0, *own[3:]])) is None


def test_a_model_that_overfits_later_is_none():
    """At first, both are alike."""
    assert first_active(Course(EvaluationMismatch()).run(falling(30, last=0.1), fork(30, best=10))) is None


def test_a_first_evaluation_behind_the_first_epoch_says_nothing():
    """By then a model may know its samples by heart."""
    course = Course(EvaluationMismatch())
    for loss in falling(10, first=1.0, last=0.5):
        course.train(loss, epoch=3.0)
        course.evaluate(loss=3.0)
    verdict = course.detector.verdict()
    assert not verdict.active
    assert (
        verdict.gated
        == "the first known evaluation is from behind the first epoch or a resume: the model may overfit by then"
    )


def test_a_run_that_is_seen_from_its_middle_on_says_nothing():
    """The first evaluation that is known is not the first."""
    course = Course(EvaluationMismatch(), every=20, first=5001)
    verdicts = course.run(falling(10, first=1.0, last=0.5), [3.0] * 10)
    assert first_active(verdicts) is None
    assert verdicts[-1].gated


def test_an_evaluation_before_the_first_step_does_not_count():
    """Its model has learnt nothing yet, and there is no training loss."""
    course = Course(EvaluationMismatch(), every=10)
    assert course.evaluate(loss=11.0) is None
    assert first_active(course.run(falling(10), falling(10))) is None


def test_half_the_training_loss_is_an_info_from_the_fifth_on():
    """Auxiliary losses, as a rule."""
    verdicts = Course(EvaluationMismatch(), every=10).run(falling(9), [0.3 * loss for loss in falling(9)])
    assert first_active(verdicts) == 4
    assert (verdicts[-1].severity, verdicts[-1].since_step) == ("info", 10)


@pytest.mark.parametrize("share", [0.6, 0.75, 0.95, 1.05, 1.3, 1.9])
def test_what_dropout_masking_and_harder_data_do_is_none(share):
    """Healthy runs have 5 to 25 % between the two."""
    verdicts = Course(EvaluationMismatch(), every=10).run(falling(30), [share * loss for loss in falling(30)])
    assert first_active(verdicts) is None


def test_a_training_loss_that_is_all_noise_is_no_yardstick():
    """Its middle may be anywhere within two standard errors."""
    course = Course(EvaluationMismatch())
    for _ in range(8):
        for loss in (2.0, 40.0, 2.5, 30.0, 3.0, 20.0):
            course.train(loss)
        course.evaluate(loss=2.6)
    assert not course.detector.verdict().active


def test_nothing_is_said_without_a_training_loss():
    """There is nothing to compare with."""
    assert Course(EvaluationMismatch()).run([None] * 6, falling(6))[-1] is None


def test_losses_below_zero_have_no_factor():
    """They are judged for being numbers only."""
    verdict = Course(EvaluationMismatch()).run([-2.0] * 8, [-5.0] * 8)[-1]
    assert (verdict.active, "factor" in verdict.statistics) == (False, False)
