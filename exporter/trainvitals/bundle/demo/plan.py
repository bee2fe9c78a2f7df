"""What the demo does to its own training: first nothing, then harm, then what the alert advises."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from trainvitals.detect.nonfinite import HOLD_SECONDS

#: What this model trains well with.
LEARNING_RATE = 0.1
_WARMUP_STEPS = 100
#: Below the 20 % a step that the spike detector takes for a change on purpose; a hundredfold in 310 steps.
GROWTH = 1.015
#: The spike detector keeps quiet for the first 500 steps and then wants a baseline of ordinary ones.
LEAST_HEALTHY_STEPS = 600


class Plan:
    """Sets the learning rate: healthy, raising until the loss is not a number, broken, recovered.

    ``healthy_seconds`` pass before the harm begins, ``broken_seconds`` before the way back.
    ``tell`` takes one line for a person; the loss is never touched.
    """

    def __init__(
        self,
        *,
        healthy_seconds: float,
        broken_seconds: float,
        tell: Callable[[int, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stage = "healthy"
        self._healthy_seconds = healthy_seconds
        self._broken_seconds = broken_seconds
        self._tell = tell
        self._clock = clock
        self._since = clock()
        self._learning_rate = 0.0

    @property
    def sound(self) -> bool:
        """Whether the weights are worth a checkpoint."""
        return self.stage in ("healthy", "recovered")

    @property
    def wants_rollback(self) -> bool:
        """Whether the loss has been broken for long enough."""
        return self.stage == "broken" and self._passed(self._broken_seconds)

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step; call it once for each."""
        if self.stage == "raising":
            self._learning_rate *= GROWTH
        elif self.sound:
            peak = LEARNING_RATE if self.stage == "healthy" else LEARNING_RATE / 2
            self._learning_rate = peak * min(1.0, step / _WARMUP_STEPS)
        return self._learning_rate

    def saved(self, step: int) -> None:
        """Take notice of a checkpoint: the harm begins right behind one, so that there is a way back."""
        if self.stage == "healthy" and step >= LEAST_HEALTHY_STEPS and self._passed(self._healthy_seconds):
            self._enter("raising")
            self._tell(step, f"now raising the learning rate by {GROWTH - 1:.1%} a step, until the loss breaks")

    def observe(self, step: int, loss: float) -> None:
        """Take notice of the loss of a step."""
        if self.stage == "raising" and not math.isfinite(loss):
            self._enter("broken")
            word = "NaN" if math.isnan(loss) else "infinite"
            self._tell(
                step,
                f"the loss is {word} at learning rate {self._learning_rate:.3g}; training on for "
                f"{self._broken_seconds:.0f} s, as a run would that nobody watches",
            )

    def rolled_back(self, step: int) -> None:
        """Take notice that the weights are those of an earlier step."""
        self._enter("recovered")
        self._tell(
            step,
            "back at this step's checkpoint, with half the learning rate, as the message advises; "
            f"the alert ends {HOLD_SECONDS / 60:.0f} minutes after the last bad loss",
        )

    def _passed(self, seconds: float) -> bool:
        return self._clock() - self._since >= seconds

    def _enter(self, stage: str) -> None:
        self.stage = stage
        self._since = self._clock()
