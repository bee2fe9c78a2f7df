"""Metrics that do not follow the loss, and those that have a reason not to."""

from __future__ import annotations

import random

import pytest
from tests.detect.evaluated import Course, falling, fork
from tests.detect.helpers import first_active

from trainvitals.detect.decoupled import MetricDecoupled


def following(losses, *, sigma=0.0, seed=5):
    """Return an accuracy that follows a loss from 2 down to 0.5: from 30 % to 90 %."""
    numbers = random.Random(seed)
    return [0.9 - 0.4 * (loss - 0.5) + numbers.gauss(0.0, sigma) for loss in losses]


def test_a_metric_that_is_the_same_to_its_last_digit_is_found_at_its_fifth_evaluation():
    """The model gives one answer to everything, while its loss falls."""
    f1 = [0.31234, 0.36789, 0.42935, 0.42935, 0.42935, 0.42935, 0.42935, 0.42935]
    course = Course(MetricDecoupled(), every=10)
    verdicts = []
    for loss, value in zip(falling(8), f1, strict=True):
        course.train(loss)
        verdicts.append(course.evaluate(f1=value))
    assert first_active(verdicts) == 6
    verdict = verdicts[-1]
    assert (verdict.since_step, verdict.severity) == (30, "warning")
    assert verdict.evidence == (
        "since step 30: validation f1 has been the same to its last digit, while the training loss falls"
    )
    assert verdict.action.startswith("data: run the same evaluation on the first checkpoint")
    assert "leave the learning rate alone" in verdict.action
    assert verdict.statistics["frozen"] == 6.0


def test_a_metric_of_three_digits_repeats_itself():
    """Nine times are no finding, ten are."""
    course = Course(MetricDecoupled())
    verdicts = course.run([None] * 12, falling(12), mAP=[0.2, 0.25, *[0.301] * 10])
    assert first_active(verdicts) == 11


def test_a_loss_that_is_flat_explains_a_frozen_metric():
    """Nothing is learnt, so nothing is decoupled."""
    verdicts = Course(MetricDecoupled()).run([0.6931] * 20, [0.6931] * 20, accuracy=[0.50333] * 20)
    assert first_active(verdicts) is None


def test_a_metric_that_falls_while_the_loss_falls_is_found():
    """It was best at the tenth of thirty evaluations."""
    accuracy = [*[0.5 + 0.02 * index for index in range(10)], *[0.68 - 0.01 * index for index in range(1, 21)]]
    verdicts = Course(MetricDecoupled()).run(falling(30), falling(30, first=2.1), accuracy=accuracy)
    assert first_active(verdicts) in range(13, 18)
    assert verdicts[-1].since_step == 10
    assert verdicts[-1].evidence == (
        "since step 10: validation accuracy is worse than its best, 0.68, while its loss falls"
    )


def test_an_error_that_rises_is_found_too():
    """Down is good for it."""
    rate = [*[0.5 - 0.02 * index for index in range(10)], *[0.32 + 0.01 * index for index in range(1, 21)]]
    verdict = Course(MetricDecoupled()).run(falling(30), falling(30, first=2.1), wer=rate)[-1]
    assert verdict.evidence == "since step 10: validation wer is worse than its best, 0.32, while its loss falls"


def test_a_metric_that_stands_still_while_its_loss_falls_is_found():
    """It followed for twenty evaluations, then the loss goes on falling by half and more."""
    losses = falling(60, first=2.0, last=0.2, sigma=0.003)
    accuracy = following(losses, sigma=0.003)
    accuracy[20:] = [accuracy[20] + wobble for wobble in (0.001, -0.002, 0.003, -0.001, 0.0) * 8]
    verdicts = Course(MetricDecoupled()).run(falling(60), losses, accuracy=accuracy)
    assert first_active(verdicts) in range(28, 40)
    assert verdicts[-1].evidence.endswith("validation accuracy has not improved, while its loss falls")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sigma", [0.003, 0.03])
def test_a_metric_that_follows_is_fine(sigma, seed):
    """With the noise of a validation set of some hundred samples."""
    losses = falling(60, sigma=0.01, seed=seed)
    verdicts = Course(MetricDecoupled()).run(
        falling(60, sigma=0.01, seed=seed + 9), losses, accuracy=following(losses, sigma=sigma, seed=seed)
    )
    assert first_active(verdicts) is None


@pytest.mark.parametrize("seed", range(8))
def test_a_validation_loss_that_is_all_noise_makes_nothing_flat(seed):
    """A third of noise: a fall by a fifth is found anywhere in it."""
    numbers = random.Random(seed)
    loss = [value * (1.0 + numbers.gauss(0.0, 0.3)) for value in falling(60, first=1.5, last=0.5)]
    metric = [0.7 * (1.0 - 0.5 ** (place / 8)) + numbers.gauss(0.0, 0.01) for place in range(60)]
    verdicts = Course(MetricDecoupled()).run(falling(60), [max(0.1, value) for value in loss], accuracy=metric)
    assert first_active(verdicts) is None


def test_a_metric_near_its_ceiling_cannot_follow():
    """In shares and in percent."""
    for scale in (1.0, 100.0):
        accuracy = [scale * 0.9914] * 30
        verdict = Course(MetricDecoupled()).run(falling(30), falling(30), accuracy=accuracy)[-1]
        assert (verdict.active, verdict.gated) == (False, "accuracy is near its ceiling")


def test_a_metric_that_is_0_may_begin_late():
    """Exact match, and detectors of objects."""
    verdict = Course(MetricDecoupled()).run(falling(30), falling(30), exact_match=[0.0] * 30)[-1]
    assert (verdict.active, verdict.gated) == (False, "exact_match is 0: it may begin late")


def test_a_validation_loss_that_rises_is_overfitting():
    """Then the metric follows it."""
    accuracy = [*[0.5 + 0.02 * index for index in range(10)], *[0.68 - 0.01 * index for index in range(1, 21)]]
    verdicts = Course(MetricDecoupled()).run(falling(30), fork(30, best=9), accuracy=accuracy)
    assert first_active(verdicts) is None


def test_one_bad_evaluation_is_none():
    """Its middle with two more counts."""
    losses = falling(40)
    accuracy = following(losses)
    accuracy[25] = 0.1
    assert first_active(Course(MetricDecoupled()).run(falling(40), losses, accuracy=accuracy)) is None


def test_classes_slices_and_unknown_names_are_not_judged():
    """One of a hundred classes may do anything."""
    course = Course(MetricDecoupled())
    for loss in falling(30):
        course.train(loss)
        course.tell("validation", {"loss": loss, "T168_f1": 0.41231, "bbox_mAP_s": 0.10123, "runtime": 3.1234})
    assert course.detector.verdict() is None


def test_four_evaluations_are_too_few():
    """Whatever they look like."""
    verdicts = Course(MetricDecoupled()).run(falling(4), falling(4), accuracy=[0.61234] * 4)
    assert verdicts[-1] is None


def test_a_metric_that_was_best_at_its_first_evaluation_is_an_info_at_the_third():
    """Three epochs of a detector of objects: that is all that there will be."""
    course = Course(MetricDecoupled())
    verdicts = course.run([0.129, 0.087, 0.074], [0.097, 0.101, 0.101], mAP50=[0.043, 0.0393, 0.0349])
    assert first_active(verdicts) == 2
    assert (verdicts[-1].severity, verdicts[-1].since_step, verdicts[-1].confidence) == ("info", 1, 0.5)
    assert verdicts[-1].evidence == (
        "since step 1: validation mAP50 is worse at each evaluation, while the training loss falls"
    )


@pytest.mark.parametrize("metric", [[0.043, 0.0393, 0.0394], [0.043, 0.0425, 0.042], [0.03, 0.035, 0.04]])
def test_three_evaluations_that_are_not_all_worse_or_hardly_worse_say_nothing(metric):
    """Noise does that."""
    assert Course(MetricDecoupled()).run([0.129, 0.087, 0.074], [0.1, 0.1, 0.1], mAP50=metric)[-1] is None


def test_a_resume_forgets_what_was_behind_it():
    """The frozen evaluations are not of this run any more."""
    course = Course(MetricDecoupled(), every=10)
    f1 = [0.31234, 0.36789, 0.39111, 0.41117, *[0.42935] * 8]
    assert course.run(falling(12), falling(12), f1=f1)[-1].active
    course.restart(40)
    verdicts = course.run(falling(2, first=1.2), falling(2, first=1.2), f1=[0.44123, 0.45123])
    assert not verdicts[-1].active


def test_a_metric_of_few_samples_repeats_itself_when_it_is_learnt():
    """Thirteen samples: one more of them is right now and then, and as many as before else, so eight alike are few."""
    accuracy = [(3 + place // 4) / 13 for place in range(32)]
    accuracy[-8:] = [accuracy[-8]] * 8
    losses = falling(32, first=2.0, last=0.4)
    assert first_active(Course(MetricDecoupled()).run(losses, losses, accuracy=accuracy)) is None


def test_a_flat_metric_is_information_for_six_evaluations():
    """Then it is a warning."""
    losses = falling(60, first=2.0, last=0.2, sigma=0.003)
    accuracy = following(losses, sigma=0.003)
    accuracy[20:] = [accuracy[20] + wobble for wobble in (0.001, -0.002, 0.003, -0.001, 0.0) * 8]
    verdicts = Course(MetricDecoupled()).run(falling(60), losses, accuracy=accuracy)
    said = [verdict.severity for verdict in verdicts if verdict is not None and verdict.active]
    assert (said[0], said[-1]) == ("info", "warning")


def test_shares_of_few_samples_are_information():
    """Of 24 samples two fewer are right than once, or as many in ten evaluations: that is chance, or may be."""
    losses = falling(40, first=2.0, last=0.4)
    fewer = [min(20, 10 + place) / 24 for place in range(20)] + [19 / 24, 18 / 24] + [18 / 24] * 18
    same = [min(15, 10 + place) / 24 for place in range(40)]
    for accuracy in (fewer, same):
        verdicts = Course(MetricDecoupled()).run(losses, losses, accuracy=accuracy)
        said = {verdict.severity for verdict in verdicts if verdict is not None and verdict.active}
        assert said == {"info"}


def test_a_share_of_few_samples_that_is_far_worse_is_a_warning():
    """From 20 of 24 to 4 is no chance."""
    accuracy = [*[min(20, 10 + place) / 24 for place in range(20)], *[max(4, 19 - place) / 24 for place in range(20)]]
    losses = falling(40, first=2.0, last=0.4)
    assert Course(MetricDecoupled()).run(losses, losses, accuracy=accuracy)[-1].severity == "warning"
