"""Loss collapsed: a loss that is exactly 0, from one step to the next, where it was far from it.

Sums of float16 that overflow, labels that all are masked, and a trainer that logs 0 for NaN look like this: "loss 0.0"
looks like success.  A loss that comes down to 0 by and by (a model that knows its data by heart, in a log with four
decimals) passes through small values first, and is none; neither is 0 where a log with one decimal goes from 0.1.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from trainvitals.detect.base import Category, Verdict, by_pieces
from trainvitals.detect.settings import setting
from trainvitals.telemetry import Step, Steps

#: So many exact zeros in a row; with a gradient norm that is not finite or does not move by a digit, two fewer.
ZEROS = 5
FEWER = 2
#: The losses before, none of which was below so much: nothing that falls by and by goes from here to 0 in one step.
BEFORE, LEAST = 8, 0.02
#: And so many times the last digit that the log prints: 0.2 and 0 are neighbours in one with one decimal.
DIGITS = 5
_MOST_DECIMALS = 6


@dataclass(frozen=True, kw_only=True)
class CollapsedSettings:
    """Thresholds."""

    zeros: int = setting(ZEROS, "losses", "so many in a row that are no losses any more", least=3)


class LossCollapsed:
    """Active from the fifth loss in a row that is exactly 0, until one is not.

    The losses before must all have been above 0.02: runs whose loss begins at 0 (some rewards) are never judged.
    """

    signal = "loss_collapsed"
    category: Category = "parameter"
    needs = "8 losses above 0.02"
    settings = CollapsedSettings

    def __init__(self, settings: CollapsedSettings = CollapsedSettings()) -> None:
        self._settings = settings
        self._before: deque[float] = deque(maxlen=BEFORE)
        self._zeros = 0
        self._since = 0
        self._last = -1
        self._count = -1
        self._from = 0.0
        self._norms: set[float] = set()
        self._broken = False

    def observe(self, step: Step) -> None:
        """Look at ``loss`` and ``grad_norm``."""
        loss = step.values.get("loss")
        if loss is None:
            return
        if loss != 0.0:
            self._zeros = 0
            if math.isfinite(loss):
                self._before.append(loss)
            self._last = step.step
            return
        if step.step < self._last:
            self._zeros = 0
            self._before.clear()
        self._last = step.step
        if self._zeros == 0:
            self._since = step.step
            self._norms.clear()
            self._broken = False
        self._zeros += 1
        norm = step.values.get("grad_norm")
        if norm is not None and self._zeros <= self._settings.zeros:
            self._broken = self._broken or not math.isfinite(norm)
            self._norms.add(norm)

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps, up to one that turns the signal on; return how many."""
        losses = steps.columns.get("loss")
        if losses is None:
            return len(steps)
        low, high = steps.extent("loss")
        # NaN compares as false.
        if not (low > 0.0 or high < 0.0) and 0.0 in losses:
            return by_pieces(self, steps)
        self._zeros = 0
        self._before.extend(losses[-BEFORE:] if steps.is_finite("loss") else filter(math.isfinite, losses))
        self._last = steps.numbers[-1]
        return len(steps)

    @property
    def held(self) -> bool:
        """Whether the signal is on."""
        return self._zeros >= self._settings.zeros - FEWER

    def verdict(self) -> Verdict | None:
        """Return the number of zeros over 5 (over 3 where the gradient norm is odd as well); None at the beginning."""
        if len(self._before) < BEFORE:
            return None
        statistics = {"zeros": float(self._zeros)}
        if not self._zeros or min(self._before) < max(LEAST, DIGITS * _last_digit(self._before)):
            return Verdict(ratio=0.0, statistics=statistics, severity="info")
        odd = self._broken or (len(self._norms) == 1 and self._zeros > 1)
        ratio = self._zeros / (self._settings.zeros - FEWER if odd else self._settings.zeros)
        if ratio < 1.0:
            return Verdict(ratio=ratio, statistics=statistics, severity="info")
        evidence = f"since step {self._since}: loss is exactly 0, from {self._before[-1]:.4g} before"
        if odd:
            evidence += (
                ", and the gradient norm is not finite" if self._broken else ", and the gradient norm stands still"
            )
        return Verdict(
            ratio=ratio,
            since_step=self._since,
            evidence=evidence,
            statistics=statistics,
            severity="critical",
            action=_ACTION,
            confidence=0.95 if odd else 0.85,
        )


def _last_digit(values: Iterable[float]) -> float:
    """Return the unit of the last decimal that is printed of these values."""
    known = list(values)
    for decimals in range(_MOST_DECIMALS):
        if all(round(value, decimals) == value for value in known):
            return float(10.0**-decimals)
    return 0.0


_ACTION = (
    "data: see whether all labels of these batches are masked; parameters: go back to a checkpoint before that step, "
    "compute the loss in float32 or bfloat16 and lower the learning rate by a third"
)
