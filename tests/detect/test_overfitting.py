"""Overfitting: curves that fork, and everything that only looks like it."""

from __future__ import annotations

import math
import random

import pytest
from tests.detect.evaluated import Course, falling, fork
from tests.detect.helpers import first_active, noise

from trainvitals.detect.overfitting import Overfitting
from trainvitals.telemetry import Event


def test_a_fork_is_found_within_six_evaluations_of_its_best():
    """Ten evaluations, as the Trainer of Hugging Face makes them: best at the third, 50 % above it at the end."""
    course = Course(Overfitting(), every=100)
    verdicts = course.run(falling(10, first=2.0, last=0.1), fork(10, best=2))
    assert first_active(verdicts) in range(5, 9)
    verdict = verdicts[-1]
    assert (verdict.since_step, verdict.severity) == (300, "critical")
    assert verdict.evidence == (
        "since step 300: validation loss rose by 20 % or more above its best, 1, while the training loss fell;"
        " 500 or more steps spent since"
    )
    assert "stop at the checkpoint of step 300" in verdict.action
    assert verdict.statistics["steps_since_best"] == 700.0
    assert verdict.statistics["generalisation_loss"] == pytest.approx(0.357, abs=0.001)
    assert verdict.statistics["gap"] == pytest.approx(14.0)
    assert verdict.statistics["evaluations"] == 10.0


def test_a_fork_is_found_in_a_table_with_a_row_per_epoch():
    """Sixty epochs of Keras with 2 % of noise: within 20 of the best."""
    verdicts = Course(Overfitting()).run(falling(60, last=0.1, sigma=0.02), fork(60, best=20, last=1.6, sigma=0.02))
    assert 24 <= first_active(verdicts) <= 40
    assert 15 <= verdicts[-1].since_step <= 25
    assert verdicts[-1].severity == "critical"


def test_the_cost_is_said_in_hours_where_it_is_hours():
    """The sentence says it in few different words, the statistics exactly."""
    course = Course(Overfitting(), every=100, seconds=60.0)
    verdict = course.run(falling(10, first=2.0, last=0.1), fork(10, best=2))[-1]
    assert verdict.evidence.endswith("; 500 or more steps spent since (10 or more hours)")
    assert verdict.statistics["seconds_since_best"] == 42_000.0


def test_a_validation_that_stops_while_the_training_falls_is_an_info():
    """The gap grows to 40 %: 5.2 and flat, where the training goes from 5.1 to 3.7."""
    validation = [6.3, 5.9, 5.7, 5.5, 5.4, 5.3, 5.25, 5.22, 5.21, 5.205, 5.204, 5.205, 5.203, 5.204, 5.203]
    verdicts = Course(Overfitting(), every=10).run(falling(15, first=6.0, last=3.7), validation)
    assert first_active(verdicts) in range(9, 15)
    assert verdicts[-1].severity == "info"
    assert verdicts[-1].evidence == (
        "since step 130: validation loss stands at 5.203, while the training loss falls:"
        " what is learnt is learnt by heart"
    )


def test_a_validation_that_gains_a_third_of_what_the_training_does_has_not_stopped():
    """Both fall, one of them less."""
    verdicts = Course(Overfitting(), every=10).run(
        falling(20, first=2.0, last=0.5), falling(20, first=2.0, last=2.0 * 0.25 ** (1 / 3))
    )
    assert first_active(verdicts) is None


@pytest.mark.parametrize(("last", "severity"), [(1.025, "info"), (1.05, "warning"), (1.2, "critical")])
def test_the_severity_is_that_of_the_rise(last, severity):
    """Above 1, 3 and 5 % of the best, by the middle of the last five evaluations."""
    verdicts = Course(Overfitting()).run(falling(40, last=0.1), fork(40, best=20, last=last))
    assert verdicts[-1].severity == severity


def test_a_metric_that_still_improves_lowers_the_severity():
    """The loss rises because the model is surer of itself; it is said so."""
    accuracy = [0.6 + 0.005 * index for index in range(40)]
    verdict = Course(Overfitting()).run(falling(40, last=0.1), fork(40, best=20), accuracy=accuracy)[-1]
    assert verdict.severity == "warning"
    assert verdict.evidence.endswith("; accuracy still improves, so it is rather the calibration")


def test_a_metric_that_falls_too_does_not():
    """Then it is worse in every respect."""
    error = [0.4 + 0.005 * index for index in range(40)]
    verdict = Course(Overfitting()).run(falling(40, last=0.1), fork(40, best=20), error_rate=error)[-1]
    assert verdict.severity == "critical"
    assert "calibration" not in verdict.evidence


def test_early_stopping_leaves_three_evaluations_above_the_best():
    """That is an info: all that the log of such a run has."""
    validation = [*falling(11, first=6.4, last=5.1), 5.13, 5.14, 5.16]
    verdict = Course(Overfitting(), every=50).run(falling(14, first=7.0, last=3.6), validation)[-1]
    assert (verdict.active, verdict.severity, verdict.since_step) == (True, "info", 550)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sigma", [0.002, 0.03])
def test_noise_of_a_small_validation_set_is_no_fork(sigma, seed):
    """Both fall, the validation loss with much noise."""
    verdicts = Course(Overfitting()).run(
        falling(50, last=0.4, sigma=0.01, seed=seed), falling(50, last=0.5, sigma=sigma, seed=seed + 100)
    )
    assert first_active(verdicts) is None


@pytest.mark.parametrize("seed", range(6))
def test_a_flat_validation_loss_is_no_warning(seed):
    """The training loss falls on by memory, the other stays: worth an info at most."""
    verdicts = Course(Overfitting()).run(falling(60, last=0.1), noise(60, level=1.0, sigma=0.01, seed=seed))
    assert {verdict.severity for verdict in verdicts if verdict and verdict.active} <= {"info"}


def test_the_gap_of_dropout_is_no_fork():
    """The training loss is above the other from the begin on, and both fall."""
    verdicts = Course(Overfitting()).run(falling(30, first=3.0, last=1.2), falling(30, first=2.0, last=0.9))
    assert first_active(verdicts) is None


def test_a_wide_gap_that_does_not_grow_is_no_fork():
    """A validation set that is harder."""
    verdicts = Course(Overfitting()).run(falling(30), [2.0 * loss for loss in falling(30)])
    assert first_active(verdicts) is None


@pytest.mark.parametrize("bad", [4, 15, 29])
def test_a_single_bad_evaluation_is_no_fork(bad):
    """Twice the loss once, wherever it is."""
    validation = falling(30, sigma=0.005)
    validation[bad] *= 2.0
    assert first_active(Course(Overfitting()).run(falling(30), validation)) is None


def test_stairs_at_epochs_are_no_fork():
    """The training loss drops at every epoch, the validation loss goes on falling."""
    train = [2.0 * 0.7 ** (index // 10) for index in range(40)]
    assert first_active(Course(Overfitting()).run(train, falling(40, first=2.0, last=1.0, sigma=0.003))) is None


def test_stairs_with_a_fork_at_the_second_epoch_are_one():
    """A fine-tuning whose validation loss rises as soon as the data repeats."""
    train = [2.0 * 0.7 ** (index // 10) * 0.999**index for index in range(40)]
    verdict = Course(Overfitting()).run(train, fork(40, best=9, low=1.5, last=1.9))[-1]
    assert (verdict.active, verdict.since_step) == (True, 10)


def test_a_run_that_diverges_is_no_fork():
    """Both rise."""
    up = falling(20, first=1.0, last=3.0)
    assert first_active(Course(Overfitting()).run([*falling(20), *up], [*falling(20), *up])) is None


def test_a_resume_from_the_best_checkpoint_begins_there():
    """What was behind it is not part of the run any more."""
    course = Course(Overfitting(), every=10)
    assert course.run(falling(20, last=0.1), fork(20, best=8))[-1].active
    course.restart(90)
    verdict = course.detector.verdict()
    assert not verdict.active
    assert verdict.statistics["evaluations"] == 9.0
    verdicts = course.run(falling(12, first=0.5, last=0.4), falling(12, first=0.99, last=0.8))
    assert first_active(verdicts) is None


def test_another_run_in_the_same_file_begins_anew():
    """Its first evaluation is at a step before all others."""
    course = Course(Overfitting(), every=10)
    course.run(falling(20, last=0.1), fork(20, best=8))
    course.step = 0
    course.train(2.0, 5)
    assert course.evaluate(loss=2.0) is None


def test_numbers_of_an_evaluation_may_come_one_by_one():
    """TensorBoard writes each by itself, at the same step."""
    course = Course(Overfitting(), every=100)
    for train, validation in zip(falling(10, first=2.0, last=0.1), fork(10, best=2), strict=True):
        course.train(train)
        for name, value in (("accuracy", 0.5), ("loss", validation), ("runtime", 3.0)):
            course.tell("validation", {name: value})
    verdict = course.detector.verdict()
    assert (verdict.active, verdict.since_step, verdict.statistics["evaluations"]) == (True, 300, 10.0)


def test_perplexity_is_the_exponential_of_a_loss():
    """Its rise would be much larger."""
    course = Course(Overfitting())
    for train, validation in zip(
        falling(30, last=0.1), [1.5 + loss for loss in fork(30, best=10, low=1.0, last=1.5)], strict=True
    ):
        course.train(train)
        course.tell("validation", {"perplexity": math.exp(validation)})
    verdict = course.detector.verdict()
    assert verdict.active
    assert verdict.statistics["generalisation_loss"] == pytest.approx(0.179, abs=0.001)


def test_parts_of_a_loss_are_added_up():
    """Ultralytics logs three of them for the validation."""
    course = Course(Overfitting())
    for train, validation in zip(falling(30, last=0.1), fork(30, best=10), strict=True):
        course.train(train)
        course.tell("validation", {"box_loss": validation / 2, "cls_loss": validation / 4, "dfl_loss": validation / 4})
    verdict = course.detector.verdict()
    assert verdict.evidence.startswith("since step 11: validation loss rose by 20 % or more above its best, 1,")


def test_the_worst_of_several_splits_is_shown():
    """One of them forks."""
    course = Course(Overfitting())
    for train, validation in zip(falling(30, last=0.1), fork(30, best=10), strict=True):
        course.train(train)
        course.evaluate("test", loss=validation)
        course.evaluate("validation", loss=train)
    verdict = course.detector.verdict()
    assert verdict.evidence.startswith("since step 11: test loss rose")


def test_nothing_is_said_without_training_losses_or_with_few_evaluations():
    """Four evaluations have no trend, and one curve alone no fork."""
    assert Course(Overfitting()).run([2.0, 1.0, 0.5, 0.2], [1.0, 1.1, 1.2, 1.3])[-1] is None
    assert Course(Overfitting()).run([None] * 20, fork(20, best=5))[-1] is None


def test_losses_at_or_below_zero_are_left_out():
    """Log-likelihoods of densities have no share."""
    assert Course(Overfitting()).run(falling(20), [-1.0] * 20)[-1] is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": 3, "values": {"loss": 1.0}},
        {"name": "validation", "values": None},
        {"name": "validation", "values": [1.0]},
        {"name": "validation", "values": {"loss": "1.0"}},
        {"name": "validation", "values": {"loss": True}},
        {"name": "validation", "values": {"loss": 10**400}},
        {"name": "validation", "values": {5: 1.0}},
    ],
)
def test_odd_events_are_left_out(fields):
    """Events come from files that anybody may write."""
    detector = Overfitting()
    detector.observe_event(Event(1.0, "evaluation", 1, fields))
    assert detector.verdict() is None


def test_a_run_with_more_splits_than_anybody_needs_costs_no_more():
    """The first 64 are heard."""
    course = Course(Overfitting())
    for number in range(200):
        course.train(1.0)
        course.evaluate(f"split{number}", loss=1.0)
    assert len(course.detector._evaluations.splits) == 64


def test_a_fork_of_a_few_evaluations_in_a_loud_curve_is_information():
    """The best of fifty stays the best for a while by chance, so a fifth of them must come behind it."""
    numbers = random.Random(4)
    level = [0.5 + 1.5 * 0.8**place for place in range(50)] + [0.62, 0.68, 0.72, 0.76, 0.8, 0.84, 0.9]
    validation = [value * (1.0 + numbers.gauss(0.0, 0.04)) for value in level]
    verdicts = Course(Overfitting()).run(falling(57), validation)
    active = [verdict for verdict in verdicts if verdict is not None and verdict.active]
    assert {verdict.severity for verdict in active if verdict.statistics["errors"] < 8.0} <= {"info"}
    long = [*validation, *[0.95 + 0.01 * place for place in range(10)]]
    assert Course(Overfitting()).run(falling(67), long)[-1].severity == "critical"
