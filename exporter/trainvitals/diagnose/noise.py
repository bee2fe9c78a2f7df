"""How far two runs differ by chance: the floor below which a difference of losses is none.

Runs of one configuration with other seeds differ by an offset that no number of steps averages out; so the spread
between seeds is the floor wherever it is known.  Else only the noise within the runs is, and the floor is that of the
smoothed loss, which is too low by what the seeds would add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from trainvitals.detect.window import MAD_TO_SIGMA, middle

#: Student's t for 95 % of both sides, by degrees of freedom; beyond the last it is hardly less.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}
_LEAST_T = 2.1
#: Twice the error of a difference holds 95 of 100.
_TWICE = 2.0
#: The smoothed loss is looked at over so many windows before the place, and over so many at least.
WINDOWS, _FEWEST = 12, 5


def between_seeds(groups: Sequence[Sequence[float]]) -> float | None:
    """Return the floor for a difference of two runs, from the losses of runs that differ by nothing but their seed.

    Each group is one configuration.  None where no group has two.
    """
    used = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in used)
    if not freedom:
        return None
    squares = sum((loss - math.fsum(group) / len(group)) ** 2 for group in used for loss in group)
    return _T.get(freedom, _LEAST_T) * math.sqrt(2.0 * squares / freedom)


def within(values: Sequence[float], window: int, error: float) -> float:
    """Return the standard deviation of the smoothed loss at the end of ``values``: of medians of windows of this size.

    By their second differences, which a trend does not change, and ``error``, that of one median, at least.
    """
    end = len(values)
    medians = [
        middle(sorted(values[end - (n + 1) * window : end - n * window])) for n in range(min(WINDOWS, end // window))
    ]
    if len(medians) < _FEWEST:
        return error
    bends = [medians[n] - 2.0 * medians[n + 1] + medians[n + 2] for n in range(len(medians) - 2)]
    # Of three values that are added with the weights 1, -2 and 1, the variances add up to six.
    return max(error, MAD_TO_SIGMA * middle(sorted(map(abs, bends))) / math.sqrt(6.0))


def of_two(first: float, second: float) -> float:
    """Return the floor for a difference of two runs by the noise within each."""
    return _TWICE * math.hypot(first, second)


def alike(keys: Sequence[object]) -> list[list[int]]:
    """Return the places of runs that have the same key, group by group; a key of None is like no other."""
    groups: dict[object, list[int]] = {}
    for place, key in enumerate(keys):
        if key is not None:
            groups.setdefault(key, []).append(place)
    return [group for group in groups.values() if any(combinations(group, 2))]
