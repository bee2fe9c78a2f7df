"""A whole run in at most 64 blocks, and robust tests for a trend: Mann and Kendall's, Theil and Sen's.

Never least squares: one odd batch at the end of a window turns such a line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from trainvitals.detect.window import MAD_TO_SIGMA, middle
from trainvitals.telemetry import Step, Steps

#: The median of more points is that of the medians of so many: to sort thousands costs more than all else that is done
#: with a loss, and neither moves with what is odd for some steps.
_LEAF = 64


class Block(NamedTuple):
    """Some points in a row: the first and the last step, the time of the last, and the median of their values."""

    first: int
    last: int
    time: float
    value: float


class Trace:
    """Blocks of equally many points; two become one when there are too many, so that a long run costs no more.

    A block has ``size`` points as long as there are fewer than 64 of them.
    """

    def __init__(self, most: int = 64, size: int = 1) -> None:
        self._most = most
        self._size = size
        self._values: list[float] = []
        self._first = 0
        self.points = 0
        self.blocks: list[Block] = []

    @property
    def room(self) -> int:
        """How many points close the next block."""
        return self._size - len(self._values)

    def push(self, step: int, time: float, value: float) -> bool:
        """Take the next point; return whether a block was closed by it."""
        self.points += 1
        values = self._values
        if not values:
            self._first = step
        values.append(value)
        if len(values) < self._size:
            return False
        self._close(step, time)
        return True

    def push_all(self, steps: Steps, values: list[float], begin: int) -> tuple[int, bool]:
        """Take points from a place on, up to one that closes a block; return the place behind it, and whether one does.

        ``values`` are one for each of the steps.
        """
        end = begin + self._size - len(self._values)
        if not self._values and begin < len(values):
            self._first = steps.numbers[begin]
        taken = values[begin:end]
        self._values += taken
        self.points += len(taken)
        if end > len(values):
            return len(values), False
        self._close(steps.numbers[end - 1], steps.times[end - 1])
        return end, True

    def push_group(self, first: int, last: Step, values: list[float]) -> bool:
        """Take points between two steps, no more than there is room for; return whether a block was closed by them."""
        self.points += len(values)
        if not self._values:
            self._first = first
        self._values += values
        if len(self._values) < self._size:
            return False
        self._close(last.step, last.time)
        return True

    def _close(self, step: int, time: float) -> None:
        values = self._values
        if len(values) > _LEAF:
            whole = len(values) - len(values) % _LEAF
            in_a_row = iter(values[:whole])
            leaves = map(sorted, zip(*[in_a_row] * _LEAF, strict=True))
            middles = [(leaf[_LEAF // 2 - 1] + leaf[_LEAF // 2]) / 2 for leaf in leaves]
            values = middles if whole == len(values) else [*middles, middle(sorted(values[whole:]))]
        self.blocks.append(Block(self._first, step, time, middle(sorted(values))))
        self._values.clear()
        if len(self.blocks) >= self._most:
            pairs = zip(self.blocks[::2], self.blocks[1::2], strict=True)
            self.blocks = [Block(a.first, b.last, b.time, (a.value + b.value) / 2) for a, b in pairs]
            self._size *= 2

    def cut(self, step: int) -> None:
        """Forget what was at this step and later: the run went back."""
        self._values.clear()
        self.blocks = [block for block in self.blocks if block.last < step]
        self.points = len(self.blocks) * self._size


def mann_kendall(values: Sequence[float]) -> float:
    """Return the standard score of a trend: below -1.64 they fall, with 5 % error; 0 for fewer than 3 values.

    Mann (1945), Kendall (1975): the number of pairs that rise less those that fall, over its standard error.
    """
    count = len(values)
    if count < 3:
        return 0.0
    score = 0
    for index, value in enumerate(values):
        for later in values[index + 1 :]:
            score += (later > value) - (later < value)
    if score == 0:
        return 0.0
    error = math.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
    return (score - math.copysign(1.0, score)) / error


def theil_sen(places: Sequence[float], values: Sequence[float]) -> float:
    """Return the median of the slopes between all pairs (Theil 1950, Sen 1968); 0 where there is none."""
    slopes = [
        (values[j] - values[i]) / (places[j] - places[i])
        for i in range(len(values))
        for j in range(i + 1, len(values))
        if places[j] != places[i]
    ]
    return middle(sorted(slopes)) if slopes else 0.0


def spread(values: Sequence[float]) -> float:
    """Return the noise of values from their differences: a trend among them is no noise.  0 for fewer than 2.

    The difference of two has the root of 2 times the deviation of one; the median keeps jumps out.
    """
    steps = sorted(abs(after - before) for before, after in pairwise(values))
    return MAD_TO_SIGMA * middle(steps) / math.sqrt(2.0) if steps else 0.0
