"""How long steps take, from whatever a source tells: durations, the seconds since the start, or the times of steps."""

from __future__ import annotations

import math
from operator import sub, truediv
from typing import NamedTuple

from trainvitals.detect.base import Timeline
from trainvitals.telemetry import Step, Steps

#: Seconds of a step beyond this are a mistake of the log.
_LONGEST = 1e9
#: What a lap is told by; a higher one is the better witness, and once seen the others count no more.
_TIMES, _ELAPSED, _DURATION = 1, 2, 3


class Lap(NamedTuple):
    """``steps`` steps up to and including ``step`` that took ``seconds`` each.

    ``amount``: tokens, or else samples, of one of them; 0.0 where the source does not tell.  ``time`` is the wall time
    at its end.
    """

    step: int
    steps: int
    seconds: float
    amount: float
    time: float


class Laps(NamedTuple):
    """Laps of steps in a row, each of which ends one: the seconds of a step in each, and the amounts."""

    seconds: list[float]
    amounts: list[float]


class Pace:
    """Turns steps into laps.

    Three witnesses, the best that was seen counts: ``step_seconds``, differences of ``elapsed_seconds`` (many
    trainings stop that clock for evaluations), differences of the times of steps.  Steps of one and the same time (a
    log that was read in one go) tell nothing until time goes on.
    ``segment`` counts rollbacks and restarts; the first lap after one is left out, for it began before.
    """

    __slots__ = ("_amount", "_count", "_from", "_number", "_since", "_witness", "segment")

    def __init__(self) -> None:
        self._witness = 0
        self._count = self._number = -1
        #: Number of the step, and time or elapsed seconds, where the next lap begins.
        self._from = -1
        self._since = 0.0
        self._amount = 0.0
        self.segment = 0

    def observe(self, step: Step) -> Lap | None:
        """Take the next step; return the lap that it ends, if any."""
        values, number = step.values, step.step
        if step.count > self._count:
            if number <= self._number:
                self._begin()
            self._count, self._number = step.count, number
        elif step.count <= self._count - Timeline.LATE or number > self._number:
            self._begin()
            self._count, self._number = step.count, number
        elif "step_seconds" not in values and "elapsed_seconds" not in values:
            return None  # Late values of a step that has counted.
        amount = values.get("tokens") or values.get("samples")
        if amount is not None:
            self._amount = amount
        duration = values.get("step_seconds")
        if duration is not None:
            return self._by_duration(step, duration)
        elapsed = values.get("elapsed_seconds")
        if elapsed is not None:
            return self._since_last(step, elapsed, _ELAPSED)
        return self._since_last(step, step.time, _TIMES)

    @property
    def reached(self) -> int:
        """The step at which the next lap begins; below 0 where nobody knows."""
        return self._from

    def laps(self, steps: Steps) -> Laps | None:
        """Return the laps of steps, which are not taken by that; None where each of them is to be looked at alone."""
        columns = steps.columns
        if steps.first <= self._count or steps.numbers[0] <= self._number or self._from < 0:
            return None
        witness = _DURATION if "step_seconds" in columns else _ELAPSED if "elapsed_seconds" in columns else _TIMES
        amounts = self._amounts(steps)
        if witness != self._witness or amounts is None:
            return None
        if witness == _DURATION:
            low, high = steps.extent("step_seconds")
            return Laps(columns["step_seconds"], amounts) if low > 0.0 and high < _LONGEST else None
        clock = _clock(steps)
        seconds = list(map(sub, clock, [self._since, *clock]))
        total = sum(seconds)
        if math.isnan(total) or not (min(seconds) > 0.0 and max(seconds) < _LONGEST):
            return None
        if steps.numbers[-1] - self._from > len(seconds):
            seconds = list(map(truediv, seconds, map(sub, steps.numbers, [self._from, *steps.numbers])))
        return Laps(seconds, amounts)

    def advance(self, steps: Steps, laps: Laps, count: int) -> None:
        """Take the first of these steps, so many."""
        self._count, self._number = steps.first + count - 1, steps.numbers[count - 1]
        self._from, self._amount = self._number, laps.amounts[count - 1]
        if self._witness != _DURATION:
            self._since = _clock(steps)[count - 1]

    def _amounts(self, steps: Steps) -> list[float] | None:
        if (tokens := steps.columns.get("tokens")) is not None:
            return tokens if steps.extent("tokens")[0] > 0.0 else None
        if (samples := steps.columns.get("samples")) is not None:
            return samples
        return [self._amount] * len(steps)

    def _begin(self) -> None:
        self.segment += 1
        self._from, self._amount = -1, 0.0

    def _better(self, witness: int) -> bool:
        """Say whether a better witness was seen; a better one than before begins anew."""
        if witness > self._witness:
            self._witness, self._from = witness, -1
        return witness < self._witness

    def _by_duration(self, step: Step, seconds: float) -> Lap | None:
        if self._better(_DURATION):
            return None
        before, self._from = self._from, step.step
        steps = step.step - before if before >= 0 else 1
        if steps <= 0 or not 0.0 < seconds < _LONGEST:
            return None
        return Lap(step.step, steps, seconds, self._amount, step.time)

    def _since_last(self, step: Step, now: float, witness: int) -> Lap | None:
        if self._better(witness):
            return None
        steps, seconds = step.step - self._from, now - self._since
        if self._from < 0 or steps <= 0 or not 0.0 <= seconds < _LONGEST:
            self._from, self._since = step.step, now
            return None
        if seconds == 0.0:
            return None
        self._from, self._since = step.step, now
        return Lap(step.step, steps, seconds / steps, self._amount, step.time)


def _clock(steps: Steps) -> list[float]:
    return steps.columns.get("elapsed_seconds", steps.times)
