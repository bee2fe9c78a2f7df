"""Forgetting: benchmarks that are worse than at first, and what only looks like it."""

from __future__ import annotations

import pytest
from tests.detect.evaluated import Course, falling

from trainvitals.detect.forgetting import Forgetting


def play(course, series, *, train=None):
    """Feed evaluations of several benchmarks: ``series`` maps names to lists of results; return the verdicts."""
    count = len(next(iter(series.values())))
    verdicts = []
    for index, loss in enumerate(train or falling(count, first=2.0, last=1.0)):
        if index:
            course.train(loss)
        for name, values in series.items():
            course.tell(name, values[index])
        verdicts.append(course.detector.verdict())
    return verdicts


def scores(*values, error=0.005):
    """Return results of a benchmark with their standard error."""
    return [{"acc": value, "acc_stderr": error} for value in values]


def test_two_benchmarks_that_decline_twice_are_found():
    """Beyond two standard errors, in two evaluations in a row."""
    course = Course(Forgetting(), every=100)
    verdicts = play(
        course,
        {
            "mmlu": scores(0.62, 0.62, 0.60, 0.58, 0.57),
            "hellaswag": scores(0.80, 0.80, 0.77, 0.76, 0.75),
            "code": scores(0.20, 0.25, 0.30, 0.34, 0.37),
        },
    )
    assert [verdict is not None and verdict.active for verdict in verdicts] == [False, False, False, True, True]
    verdict = verdicts[-1]
    assert (verdict.since_step, verdict.severity, verdict.confidence) == (200, "critical", 0.6)
    assert verdict.evidence == (
        "since step 200: worse than at first by 5 % or more on average: hellaswag acc from 0.8, mmlu acc from 0.62"
    )
    assert verdict.statistics["benchmarks"] == 3.0
    assert verdict.statistics["declined"] == 2.0
    assert verdict.action.startswith("data: see whether the prompt, the chat template")
    assert "lower the learning rate to a third" in verdict.action


def test_a_small_decline_is_a_warning():
    """Between 2 and 5 % on average."""
    course = Course(Forgetting())
    verdict = play(
        course,
        {
            "mmlu": scores(0.62, 0.60, 0.60, 0.60, error=0.001),
            "arc": scores(0.50, 0.49, 0.485, 0.485, error=0.001),
        },
    )[-1]
    assert (verdict.active, verdict.severity) == (True, "warning")


def test_one_benchmark_of_several_is_chance():
    """Unless it is by far."""
    weak = play(Course(Forgetting()), {"mmlu": scores(0.62, 0.60, 0.60, 0.60), "arc": scores(0.5, 0.5, 0.51, 0.5)})[-1]
    assert not weak.active
    strong = play(Course(Forgetting()), {"mmlu": scores(0.62, 0.5, 0.5, 0.5), "arc": scores(0.5, 0.5, 0.51, 0.5)})[-1]
    assert strong.active
    assert strong.evidence.endswith("on average: mmlu acc from 0.62")


def test_one_bad_evaluation_of_all_is_none():
    """A broken evaluation, say."""
    series = {"mmlu": scores(0.62, 0.62, 0.1, 0.62), "arc": scores(0.5, 0.5, 0.1, 0.5)}
    assert not any(verdict is not None and verdict.active for verdict in play(Course(Forgetting()), series))


def test_noise_of_few_items_is_none():
    """A hundred items: the standard error is 5 points."""
    series = {
        name: [{"acc": value, "n": 100.0} for value in values]
        for name, values in {"mmlu": (0.62, 0.56, 0.55, 0.57), "arc": (0.5, 0.46, 0.44, 0.45)}.items()
    }
    assert not play(Course(Forgetting()), series)[-1].active


def test_many_items_make_the_same_decline_sure():
    """Ten thousand items: half a point."""
    series = {
        name: [{"acc": value, "n": 10_000.0} for value in values]
        for name, values in {"mmlu": (0.62, 0.56, 0.55, 0.57), "arc": (0.5, 0.46, 0.44, 0.45)}.items()
    }
    assert play(Course(Forgetting()), series)[-1].active


def test_without_errors_it_takes_five_percent():
    """In two benchmarks, in two evaluations in a row."""
    small = {"mmlu": [{"acc": value} for value in (0.62, 0.60, 0.60)], "arc": [{"acc": v} for v in (0.5, 0.48, 0.48)]}
    large = {"mmlu": [{"acc": value} for value in (0.62, 0.55, 0.55)], "arc": [{"acc": v} for v in (0.5, 0.45, 0.45)]}
    assert not play(Course(Forgetting()), small)[-1].active
    assert play(Course(Forgetting()), large)[-1].active


def test_losses_of_other_data_sets_are_benchmarks():
    """As the Trainer of Hugging Face names them, each with its own run time."""
    course = Course(Forgetting())
    for general, code in zip((2.0, 2.1, 2.3, 2.4), (1.5, 1.6, 1.7, 1.8), strict=True):
        course.train(3.0 - general)
        course.tell(
            "validation",
            {"general_loss": general, "general_runtime": 1.0, "code_loss": code, "code_runtime": 1.0, "loss": 1.0},
        )
    verdict = course.detector.verdict()
    assert verdict.active
    assert verdict.evidence.endswith("on average: code_loss from 1.5, general_loss from 2")


def test_benchmarks_among_the_numbers_of_the_validation_are_known_by_name():
    """lm-evaluation-harness names the filter behind a comma."""
    course = Course(Forgetting())
    for index, loss in enumerate(falling(6)):
        course.train(loss)
        worse = 0.01 * index
        course.tell(
            "validation",
            {
                "mmlu/acc,none": 0.62 - worse,
                "mmlu/acc_stderr,none": 0.002,
                "arc_easy/acc,none": 0.7 - worse,
                "arc_easy/acc_stderr,none": 0.002,
            },
        )
    verdict = course.detector.verdict()
    assert (verdict.active, verdict.statistics["benchmarks"]) == (True, 2.0)


def test_parts_of_a_loss_and_classes_are_no_benchmarks():
    """Precision of a class begins at 1 and falls, and a box loss may rise."""
    course = Course(Forgetting())
    for index, loss in enumerate(falling(8)):
        course.train(loss)
        course.tell(
            "validation",
            {"box_loss": 1.0 + 0.1 * index, "kl_loss": 1.0 + index, "T168_precision": 1.0 - 0.1 * index, "loss": loss},
        )
    assert course.detector.verdict() is None


def test_a_run_that_diverges_forgets_in_another_way():
    """Nothing was learnt in exchange."""
    series = {"mmlu": scores(0.62, 0.5, 0.3, 0.26), "arc": scores(0.5, 0.4, 0.25, 0.25)}
    verdict = play(Course(Forgetting()), series, train=[2.0, 3.0, 5.0, 7.0])[-1]
    assert not verdict.active
    assert verdict.gated == "the training loss did not fall: nothing was learnt in exchange"


def test_a_run_from_scratch_gets_better():
    """Its first values are the worst."""
    series = {"mmlu": scores(0.25, 0.3, 0.4, 0.45), "arc": scores(0.25, 0.35, 0.4, 0.4)}
    verdict = play(Course(Forgetting()), series)[-1]
    assert (verdict.active, verdict.ratio) == (False, 0.0)


@pytest.mark.parametrize("names", [("validation", "test"), ("dev", "eval")])
def test_the_validation_itself_is_no_benchmark(names):
    """What gets worse there is overfitting."""
    series = {name: [{"acc": value} for value in (0.6, 0.5, 0.4, 0.3)] for name in names}
    assert play(Course(Forgetting()), series)[-1] is None


def test_two_evaluations_say_nothing():
    """The first one, and two in a row behind it."""
    assert play(Course(Forgetting()), {"mmlu": scores(0.6, 0.3), "arc": scores(0.6, 0.3)})[-1] is None
