"""Median, spread, tail and correlation of the last values."""

from __future__ import annotations

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.detect.window import Correlation, Window, middle


def window(values, *, size: int | None = None) -> Window:
    """Return a window that holds the last of some values."""
    made = Window(size or len(values), refresh=1)
    for value in values:
        made.push(value)
    return made


def test_the_median_and_the_mad_are_those_of_the_last_values():
    """1 and 100 have left a window of five."""
    level = window([1.0, 100.0, 5.0, 4.0, 3.0, 2.0, 9.0], size=5).level()
    assert level.center == 4.0
    assert level.spread == pytest.approx(1.4826)


def test_a_spike_does_not_widen_its_own_spread():
    """A tenth of the values at a hundred times the level move neither median nor MAD by much."""
    calm = [3.0 + 0.01 * (i % 21 - 10) for i in range(100)]
    spiky = calm[:90] + [300.0] * 10
    assert window(spiky).level().center == pytest.approx(3.0, abs=0.03)
    assert window(spiky).level().spread < 1.5 * window(calm).level().spread


def test_rounded_values_have_the_spread_of_their_last_digit():
    """Nine of ten values print the same: the MAD is 0, a hundredth is no deviation."""
    assert window([0.30] * 90 + [0.31] * 10).level().spread == pytest.approx(0.01)


def test_values_that_are_mostly_zero_have_the_spread_of_the_others():
    """The MAD is 0; the mean deviation stands in."""
    values = [0.0] * 60 + [0.01 * (i + 1) for i in range(40)]
    assert window(values).level().spread == pytest.approx(1.2533 * sum(values) / 100)


def test_constant_values_have_no_spread():
    """A loss that is stuck is not divided by zero here."""
    assert window([0.6931] * 128).level() == (0.6931, 0.0, 0.0)


def test_the_tail_of_skewed_values_is_longer_than_their_spread():
    """Exponential noise: twice; normal noise: once."""
    numbers = random.Random(3)
    skewed = window([numbers.expovariate(1.0) for _ in range(4000)]).level()
    normal = window([numbers.gauss(0.0, 1.0) for _ in range(4000)]).level()
    assert skewed.tail / skewed.spread == pytest.approx(2.0, abs=0.15)
    assert normal.tail / normal.spread == pytest.approx(1.0, abs=0.1)


def test_a_level_is_looked_at_again_after_some_pushes():
    """Between, the last one is given out."""
    made = Window(16, refresh=4)
    for _ in range(16):
        made.push(1.0)
    assert made.level().center == 1.0
    for _ in range(3):
        made.push(5.0)
    assert made.level().spread == 0.0
    made.push(5.0)
    assert made.level().spread > 0.0


@given(st.lists(st.integers(1, 150), min_size=1, max_size=12), st.integers(1, 20))
def test_values_in_blocks_are_as_good_as_one_by_one(blocks, ask):
    """Level and factor are those of the last multiple of 16 values, whenever they are asked for."""
    numbers = random.Random(len(blocks))
    singly, at_once = [(Window(48, refresh=16), Correlation(32, refresh=16)) for _ in range(2)]
    for size in blocks:
        values = [numbers.gauss(0.0, 1.0) for _ in range(size)]
        for made in at_once:
            made.extend(values)
        for place, value in enumerate(values):
            for made in singly:
                made.push(value)
            if place % ask == 0:
                assert (singly[0].level().spread >= 0.0, singly[1].factor >= 1.0) == (True, True)
        assert at_once[0].level() == singly[0].level()
        assert at_once[1].factor == singly[1].factor
        assert at_once[0].full == singly[0].full


def test_there_is_room_up_to_the_next_look():
    """So many values are judged by one level."""
    made = Window(8, refresh=4)
    rooms = []
    for value in range(6):
        rooms.append(made.room)
        made.push(float(value))
    assert rooms == [4, 3, 2, 1, 4, 3]


@given(st.lists(st.floats(-1e38, 1e38), min_size=1, max_size=60), st.integers(1, 20))
def test_the_sorted_values_stay_those_of_the_window(values, size):
    """Whatever comes and goes, the median is that of the last ``size`` values."""
    made = Window(size, refresh=1)
    for value in values:
        made.push(value)
    level = made.level()
    assert level.center == pytest.approx(median(values[-size:]), rel=1e-12)
    assert 0.0 <= level.spread <= level.tail


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=9))
def test_the_middle_is_the_median(values):
    """Of odd and even numbers of values."""
    assert middle(sorted(values)) == median(values)


def factor(values) -> float:
    """Return the factor after some deviations."""
    made = Correlation(256)
    for value in values:
        made.push(value)
    return made.factor


def test_independent_values_need_no_correction():
    """The factor is near 1."""
    numbers = random.Random(5)
    assert factor([numbers.gauss(0.0, 1.0) for _ in range(1000)]) < 1.2


def test_values_in_runs_need_one():
    """With a correlation of 0.6 the factor is 2: four values count for one."""
    numbers = random.Random(5)
    values = [0.0]
    for _ in range(2000):
        values.append(0.6 * values[-1] + 0.8 * numbers.gauss(0.0, 1.0))
    assert factor(values) == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize("values", [[], [1.0], [0.0] * 300, [2.0] * 300, [1e9] * 300])
def test_values_without_variation_need_no_correction(values):
    """Nothing is divided by zero."""
    assert factor(values) == 1.0
