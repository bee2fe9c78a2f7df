"""Blocks of a run, and the tests for a trend."""

from __future__ import annotations

import pytest

from trainvitals.detect.trend import Block, Trace, mann_kendall, spread, theil_sen


def test_few_points_are_blocks_of_their_own():
    """Nothing is merged below the most."""
    trace = Trace(most=4)
    assert [trace.push(step, step * 2.0, value) for step, value in ((1, 5.0), (2, 4.0), (5, 6.0))] == [True] * 3
    assert trace.blocks == [Block(1, 1, 2.0, 5.0), Block(2, 2, 4.0, 4.0), Block(5, 5, 10.0, 6.0)]


def test_pairs_are_merged_when_there_are_too_many():
    """And later blocks are as long as the merged ones."""
    trace = Trace(most=4)
    for step, value in enumerate((5.0, 4.0, 6.0, 8.0), 1):
        trace.push(step, float(step), value)
    assert trace.blocks == [Block(1, 2, 2.0, 4.5), Block(3, 4, 4.0, 7.0)]
    assert not trace.push(5, 5.0, 9.0)
    assert trace.push(6, 6.0, 1.0)
    assert trace.blocks[-1] == Block(5, 6, 6.0, 5.0)
    assert trace.points == 6


def test_a_million_points_are_few_blocks():
    """Memory and the cost of a test are bounded."""
    trace = Trace()
    assert sum(trace.push(step, 0.0, 1.0) for step in range(1_000_000)) < 700
    assert 32 <= len(trace.blocks) < 64


def test_a_large_block_is_the_median_of_medians():
    """Of 64 points each: 40 ones and 24 nines, 40 fives and 24 nines are 3, and half of that with zeros before."""
    trace = Trace(most=2)
    values = [0.0] * 128 + [1.0] * 40 + [9.0] * 24 + [9.0] * 24 + [5.0] * 40
    for step, value in enumerate(values, 1):
        trace.push(step, float(step), value)

    assert trace.blocks == [Block(1, 256, 256.0, 1.5)]


def test_what_was_behind_a_rollback_is_forgotten():
    """Blocks that reach to the step are cut, and what was not a block yet."""
    trace = Trace(most=4)
    for step in range(1, 8):
        trace.push(step, 0.0, 1.0)
    trace.cut(4)
    assert [block.last for block in trace.blocks] == [2]
    assert trace.points == 2


@pytest.mark.parametrize(
    ("values", "score"),
    [
        ([], 0.0),
        ([1.0, 2.0], 0.0),
        ([3.0, 3.0, 3.0, 3.0], 0.0),
        # All 6 pairs rise: (6 - 1) / sqrt(4 * 3 * 13 / 18) = 5 / 2.944.
        ([1.0, 2.0, 3.0, 4.0], 1.698),
        ([9.0, 7.0, 4.0, 1.0], -1.698),
        # 5 pairs fall, one rises: (-4 + 1) / 2.944.
        ([9.0, 4.0, 7.0, 1.0], -1.019),
    ],
)
def test_the_score_of_mann_and_kendall(values, score):
    """As by hand."""
    assert mann_kendall(values) == pytest.approx(score, abs=1e-3)


def test_the_slope_of_theil_and_sen_does_not_follow_one_odd_value():
    """Slopes of the pairs: 2, 2, 2, 34, 50, 98; their median is between 2 and 34."""
    assert theil_sen([0.0, 1.0, 2.0], [1.0, 3.0, 5.0]) == 2.0
    assert theil_sen([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, 5.0, 103.0]) == 18.0
    assert theil_sen([0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 5.0, 7.0, 103.0]) == 2.0
    assert theil_sen([1.0, 1.0], [2.0, 3.0]) == 0.0
    assert theil_sen([], []) == 0.0


def test_a_trend_is_no_noise():
    """Differences of 1, -3, 1, 1: their median is 1, over the root of 2."""
    assert spread([1.0, 2.0, -1.0, 0.0, 1.0]) == pytest.approx(1.4826 / 1.41421, abs=1e-4)
    assert spread([5.0]) == 0.0
