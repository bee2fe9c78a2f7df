"""The floor below which a difference of two runs is none."""

from __future__ import annotations

import math
import random

import pytest

from trainvitals.diagnose import noise


def test_between_seeds():
    """Student's t for as many runs as there are, times the error of a difference."""
    assert noise.between_seeds([[2.0]]) is None
    # Two runs 0.02 apart: a standard deviation of 0.02 / sqrt(2), and 12.71 for one degree of freedom.
    assert noise.between_seeds([[2.0, 2.02]]) == pytest.approx(12.71 * 0.02)
    # Two configurations: squares of 0.0002 + 0.0002 over two degrees of freedom.
    assert noise.between_seeds([[2.0, 2.02], [3.0, 3.02], [9.0]]) == pytest.approx(4.30 * math.sqrt(2 * 0.0004 / 2))


def test_within_a_run_a_trend_is_no_noise():
    """A loss that falls evenly has none; the error of one median is the least."""
    assert noise.within([5.0 - n / 100 for n in range(400)], 20, 0.003) == pytest.approx(0.003)


def test_within_a_run():
    """Of medians of 25 values that are each off by 0.1: 0.1 * 1.25 / 5, within what ten windows tell."""
    found = []
    for seed in range(40):
        chance = random.Random(seed)
        found.append(noise.within([5.0 - n / 100 + chance.gauss(0.0, 0.1) for n in range(400)], 25, 0.0))

    assert 0.015 < sorted(found)[20] < 0.035


def test_few_points_have_the_error_alone():
    """Less than five windows tell no spread."""
    assert 0.25 == noise.within([1.0, 2.0] * 20, 20, 0.25)


def test_of_two():
    """Twice the error of the difference."""
    assert 10.0 == noise.of_two(3.0, 4.0)
