"""When a run will be done: the time that is left, with an interval.  A forecast and no signal.

The rate is a mean and no median: pauses for evaluations, checkpoints and garbage are part of the time that is left.
(On 64 public logs, at 10, 30 and 60 % of the run, a median of the last 100 steps errs half as much again.)  It is taken
over the younger half of the run: what a change of the batch did is forgotten when as much time has passed again.

The interval has three parts, all as shares of the time that is left: how much blocks of steps differ, how far the
younger half of what was seen is from the older one (as far the future may be from it, too), and a floor.
On such logs 83, 64 and 77 % of the outcomes lay between P10 and P90; what lay outside were changes by plan, which
nobody can foresee from a log, and machines that others share.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trainvitals.detect.base import Timeline
from trainvitals.telemetry import Step

#: A block has so many steps or more, and so many lines of a log (or steps with the probe).
BLOCK_STEPS, BLOCK_LINES = 50, 5
#: When there are so many blocks, each two become one.
MAX_BLOCKS = 64
#: A forecast needs so many blocks.
LEAST_BLOCKS = 4
#: Compilation and first batches: so many steps after a start do not count.
SKIPPED_STEPS = 10
#: Nothing is known better than so: the median error on runs that do not change is below it, the worst tenth is not.
FLOOR = 0.01
#: A tenth of a normal distribution lies beyond so many standard deviations, on either side.
_TENTH = 1.2816


class Remaining(NamedTuple):
    """Seconds that are left after the last step: with a chance of 10 %, 50 % and 90 % it will be less."""

    p10: float
    p50: float
    p90: float


class _Block(NamedTuple):
    steps: int
    seconds: float


class Eta:
    """Keeps the time that steps took, over all attempts.  Time between attempts, and work done twice, do not count."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._size = BLOCK_STEPS
        self._count = self._number = -1
        self._time = 0.0
        self._skip_until = 0
        self._steps = self._lines = 0
        self._seconds = 0.0

    def observe(self, step: Step) -> None:
        """Take the next step."""
        number, count = step.step, step.count
        if count <= self._count and count > self._count - Timeline.LATE and number <= self._number:
            return  # Late values.
        if self._count < 0 or number <= self._number or count <= self._count:
            self._skip_until = number + SKIPPED_STEPS
            self._steps = self._lines = 0
            self._seconds = 0.0
        elif self._number >= self._skip_until:
            self._steps += number - self._number
            self._lines += 1
            self._seconds += max(0.0, step.time - self._time)
            if self._steps >= self._size and self._lines >= BLOCK_LINES:
                self._close()
        self._count, self._number, self._time = count, number, step.time

    def _close(self) -> None:
        # A log that was read in one go does not always say when its steps were.
        if 0.0 < self._seconds < math.inf:
            self._blocks.append(_Block(self._steps, self._seconds))
        self._steps = self._lines = 0
        self._seconds = 0.0
        if len(self._blocks) >= MAX_BLOCKS:
            self._size *= 2
            pairs = zip(self._blocks[::2], self._blocks[1::2], strict=True)
            self._blocks = [_Block(one.steps + two.steps, one.seconds + two.seconds) for one, two in pairs]

    def remaining(self, target_steps: int | None) -> Remaining | None:
        """Return the time that is left to a number of steps.

        None as long as there are fewer than 4 blocks (210 steps, or 20 lines), and when nothing is left.
        """
        if target_steps is None or target_steps <= self._number or len(self._blocks) < LEAST_BLOCKS:
            return None
        left = target_steps - self._number
        used = self._blocks[len(self._blocks) // 2 :] if len(self._blocks) >= 2 * LEAST_BLOCKS else self._blocks
        rate = _rate(used)
        differences = [block.seconds / block.steps / rate - 1.0 for block in used]
        variance = sum(value * value for value in differences) / (len(used) - 1)
        to_come = left * len(used) / sum(block.steps for block in used)
        share = math.sqrt(variance * (1.0 / len(used) + 1.0 / to_come) + _drift(self._blocks) + FLOOR * FLOOR)
        # Few blocks know little of how much they differ: so much wider is Student's distribution.
        half = _TENTH * share * (1.0 + 1.5 / len(used))
        middle = left * rate
        return Remaining(middle / (1.0 + half), middle, middle * (1.0 + half))


def _rate(blocks: list[_Block]) -> float:
    return sum(block.seconds for block in blocks) / sum(block.steps for block in blocks)


def _drift(blocks: list[_Block]) -> float:
    """Return the mean square by which younger halves differ from older ones: of all, of the younger half, and so on."""
    squares = []
    while len(blocks) >= LEAST_BLOCKS:
        half = len(blocks) // 2
        squares.append((_rate(blocks[half:]) / _rate(blocks[:half]) - 1.0) ** 2)
        blocks = blocks[half:]
    return sum(squares) / len(squares) if squares else 0.0
