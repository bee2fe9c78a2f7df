"""Non-finite loss: NaN or infinity in a single step is enough.

In PromQL this is invisible: comparisons with NaN are false, and one step in many is scraped.
"""

from __future__ import annotations

import math

from trainvitals.detect.base import Category, Latch, Verdict
from trainvitals.telemetry import Step

#: Long enough for several scrapes and for Alertmanager's group wait; then the counter alone remembers.
HOLD_SECONDS = 300.0
HOLD_STEPS = 100


class NonfiniteLoss:
    """Active from the first step whose loss is NaN or infinite until 100 steps and 5 minutes without one.

    A step that the loss scaler skipped is no finding: it looks for its scale by meeting infinities.
    """

    signal = "loss_nonfinite"
    category: Category = "parameter"

    def __init__(self) -> None:
        self._latch = Latch(hold_seconds=HOLD_SECONDS, hold_steps=HOLD_STEPS)
        self._steps = 0
        self._last: Step | None = None
        self._last_finite: tuple[int, float] | None = None
        self._bad_values: tuple[int, float] | None = None

    def observe(self, step: Step) -> None:
        """Look at ``values["loss"]``; a rollback forgives what was before."""
        if self._last is not None and step.count > self._last.count and step.step < self._last.step:
            self.__init__()  # type: ignore[misc]
        self._last = step
        loss = step.values.get("loss")
        if loss is None:
            return
        finite = math.isfinite(loss)
        if finite:
            self._last_finite = (step.step, loss)
        elif not step.values.get("skipped"):
            if self._latch.since is None:
                self._steps = 0
                self._bad_values = (step.step, loss)
            self._steps += 1
            self._latch.update(float(self._steps), step)
            return
        self._latch.update(0.0, step)

    def verdict(self) -> Verdict | None:
        """Return the number of non-finite steps of this episode as the ratio; the threshold is one."""
        if self._last is None:
            return None
        if self._latch.since is None:
            return Verdict(ratio=0.0, statistics={"steps": 0.0})
        first, value = self._bad_values or (self._latch.since.step, math.nan)
        evidence = f"since step {first}: loss is {_word(value)} in {self._steps} step{'s' * (self._steps > 1)}"
        if self._last_finite is not None:
            evidence += f", last finite loss {self._last_finite[1]:.4g} at step {self._last_finite[0]}"
        return Verdict(
            ratio=self._latch.peak, since_step=first, evidence=evidence, statistics={"steps": float(self._steps)}
        )


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"
