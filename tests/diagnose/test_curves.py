"""The curves of a run: what is kept, and what is shown of it."""

from __future__ import annotations

import math

import pytest

from trainvitals.diagnose.curves import Curve, Curves
from trainvitals.diagnose.terminal import sparkline
from trainvitals.telemetry import Event, Step


def test_the_last_value_is_the_last_number():
    """NaN and infinity are no end of a curve."""
    assert 3.0 == Curve([(1, 2.0), (2, 3.0), (3, math.nan), (4, math.inf)]).last
    assert Curve([(1, math.nan)]).last is None


def test_a_curve_up_to_a_step_is_that_of_the_last_attempt():
    """What was before the run went back does not count."""
    curve = Curve([(1, 9.0), (2, 8.0), (3, 7.0), (2, 6.0), (3, 5.0), (4, 4.0)])

    assert [(2, 6.0), (3, 5.0)] == curve.until(3)


def test_extremes_keep_peaks_and_attempts_apart():
    """A piece is drawn from its lowest to its highest value; one that would span two attempts is two."""
    curve = Curve([(1, 9.0), (2, 30.0), (3, 7.0), (2, 6.0), (3, math.nan), (4, math.nan)])

    assert [(1, 3, 7.0, 30.0), (2, 4, 6.0, 6.0)] == curve.extremes(1)
    assert math.isnan(curve.extremes(6)[-1].low)


def test_a_step_beyond_64_bits_is_left_out():
    """A log may claim any step."""
    assert 1 == len(Curve([(2**70, 1.0), (5, 2.0)]))


def test_results_are_kept_by_split_and_name():
    """The validation loss is that of the validation, else that of the first split that has one."""
    curves = Curves()
    curves.add([], [Event(1.0, "evaluation", 4, {"name": "test", "values": {"accuracy": 0.5, "loss": 2.0}})])
    assert 2.0 == curves.validation.last

    curves.add([], [Event(1.0, "evaluation", 4, {"name": "validation", "values": {"loss": 3.0, "odd": "no number"}})])

    assert 3.0 == curves.validation.last
    assert 2.0 == curves.results["test", "loss"].last


@pytest.mark.parametrize(
    "values",
    [
        [{"tokens": 100.0}, {"tokens": 50.0}, {"tokens": 70.0}],
        [{"total_tokens": 100.0}, {"total_tokens": 150.0}, {"total_tokens": 220.0}],
    ],
)
def test_tokens_are_totals(values):
    """Amounts of steps are added up; totals are taken as they are."""
    curves = Curves()

    curves.add([Step(number, number, 1.0, value) for number, value in enumerate(values[:2])], [])
    curves.add([Step(2, 2, 1.0, values[2])], [])

    assert [100.0, 150.0, 220.0] == list(curves.tokens.values)


def test_a_sparkline_goes_from_the_lowest_to_the_highest():
    """It has as many bars as there are points, at most its width; a flat one is low."""
    assert "▁▃▅█" == sparkline(Curve([(1, 0.0), (2, 3.0), (3, 5.0), (4, 10.0), (5, math.nan)]))
    assert "▁▁" == sparkline(Curve([(1, 2.0), (2, 2.0)]))
    assert "" == sparkline(Curve())
    assert 7 == len(sparkline(Curve((n, float(n)) for n in range(1000)), width=7))
