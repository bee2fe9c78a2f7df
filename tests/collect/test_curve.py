"""The loss in a bounded number of points."""

from __future__ import annotations

import math
import random

from trainvitals.collect.curve import LossCurve
from trainvitals.telemetry import Step, Steps


def curve_of(values, pieces=300, start=1):
    """A curve of steps in a row."""
    curve = LossCurve(pieces=pieces)
    curve.take([Step(number, number, float(number), {"loss": value}) for number, value in enumerate(values, start)])
    return curve


def test_a_short_curve_has_each_point():
    """Nothing is left out while there is room."""
    assert curve_of([4.0, 3.5, 3.25]).points() == ([[1, 4.0], [2, 3.5], [3, 3.25]], [])


def test_a_long_curve_keeps_its_spikes():
    """Of a million steps with one spike and one dip, 600 points show both at their steps."""
    noise = random.Random(1)
    values = [2.0 + noise.random() for _ in range(100_000)]
    values[41_233], values[77_000] = 9.5, 0.125

    points, bad = curve_of(values).points()

    assert 200 < len(points) <= 600
    assert bad == []
    assert [41_234, 9.5] in points
    assert [77_001, 0.125] in points
    assert [step for step, _ in points] == sorted(step for step, _ in points)
    assert points[0][0] < 1000
    assert points[-1][0] > 99_000


def test_fewer_points_can_be_asked_for():
    """For a page with many runs; the spike stays."""
    values = [2.0] * 5000
    values[1234] = 50.0

    points, _ = curve_of(values).points(30)

    assert len(points) <= 60
    assert [1235, 50.0] in points


def test_steps_without_a_number_are_told_apart():
    """NaN and infinity are no points; it is told from where to where they were."""
    points, bad = curve_of([4.0, math.nan, 3.0, math.inf, -math.inf, 2.0, math.nan]).points()

    assert points == [[1, 4.0], [3, 3.0], [6, 2.0]]
    assert bad == [[2, 2], [4, 5], [7, 7]]


def test_a_loss_that_stays_nan_is_one_stretch():
    """Over as many pieces as it takes."""
    points, bad = curve_of([2.0] * 3000 + [math.nan] * 3000).points()

    assert points[-1][0] <= 3000
    assert len(bad) == 1
    assert 2980 <= bad[0][0] <= 3001
    assert bad[0][1] == 6000


def test_another_attempt_begins_another_line():
    """A point without a value parts them; a value that comes a few steps late does not."""
    curve = curve_of([4.0, 3.5], start=100)
    curve.take([Step(99, 3, 3.0, {"loss": 3.25})])
    curve.take([Step(40, 4, 4.0, {"loss": 5.0}), Step(41, 5, 5.0, {"loss": 4.5})])

    assert curve.points()[0] == [[100, 4.0], [101, 3.5], [99, 3.25], [40, None], [40, 5.0], [41, 4.5]]


def test_columns_are_taken_as_steps_are():
    """Logs hand on blocks; one without a loss says nothing."""
    curve = LossCurve()
    curve.take(Steps([5, 6], 1, [1.0, 2.0], {"loss": [2.5, 2.25]}))
    curve.take(Steps([7], 3, [3.0], {"learning_rate": [0.5]}))

    assert curve.points() == ([[5, 2.5], [6, 2.25]], [])


def test_hostile_steps_take_no_more_room():
    """Each step another attempt, numbers beyond all bounds: the number of pieces stays bounded."""
    curve = LossCurve(pieces=50)
    for number in range(5000):
        curve.take([Step((5000 - number) * 100, number, 0.0, {"loss": 1e308})])
    curve.take([Step(2**80, 1, 0.0, {"loss": 1.0}), Step(-(2**80), 2, 0.0, {"loss": 1.0})])

    assert len(curve) <= 50
    assert len(curve.points(10)[0]) <= 40
