"""Non-finite loss: NaN or infinity in a single step is enough.

In PromQL this is invisible: comparisons with NaN are false, and one step in many is scraped.

Where a training logs several losses and none that is called so (a generator's and a discriminator's), one of them that
is not finite in 8 reports in a row is a finding.  Beside a loss that is finite such a part is none: it may not be
computed at all.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from trainvitals.detect.base import Category, Latch, Timeline, Verdict, by_pieces
from trainvitals.detect.metric_names import is_loss
from trainvitals.detect.settings import setting
from trainvitals.telemetry import Step, Steps

#: Long enough for several scrapes and for Alertmanager's group wait; then the counter alone remembers.
HOLD_SECONDS = 300.0
HOLD_STEPS = 100
#: A loss scaler that starts at 2**32 is at 1 after so many skipped steps; then it searches nothing any more.
SEARCH_STEPS = 32
#: The batches of so many steps are asked for; what is in several of them is what to look at.  The answer is part of a
#: label, so it is given anew after 1, 2, 4 and 8 steps.
ODD_STEPS = 8
#: Reports in a row in which a loss among others is not finite: a part may be empty in a batch or two.
PARTS = 8
_LONGEST = 64


@dataclass(frozen=True, kw_only=True)
class NonfiniteSettings:
    """Thresholds."""

    hold_seconds: float = setting(HOLD_SECONDS, "seconds", "so long it stays on, for a scrape to see it")
    hold_steps: int = setting(HOLD_STEPS, "steps", "and for so long")


class NonfiniteLoss:
    """Active from the first step whose loss is NaN or infinite until 100 steps and 5 minutes without one.

    A step that the loss scaler skipped is no finding: it looks for its scale by meeting infinities.
    More than 32 of them without a finite loss between are one: a NaN in the weights makes a scaler skip every step.
    A loss of exactly 0 with a gradient norm of NaN counts as NaN: some trainers log 0 in its place.
    A run that went back is forgiven: what was before stays visible for 5 minutes.
    """

    signal = "loss_nonfinite"
    category: Category = "parameter"
    needs = "a step with a loss"
    settings = NonfiniteSettings

    def __init__(self, settings: NonfiniteSettings = NonfiniteSettings()) -> None:
        self._settings = settings
        self._latch = Latch(hold_seconds=settings.hold_seconds, hold_steps=settings.hold_steps)
        self._timeline = Timeline()
        self._seen = False
        self._searching = 0
        #: Counts of the last skipped steps: the loss of one may come later than the mark.
        self._skipped: deque[int] = deque(maxlen=Timeline.LATE)
        self._last_finite: tuple[int, float] | None = None
        #: Of the episode that is shown: first step and loss, number of steps, and the last finite loss before it.
        self._first = (0, "")
        self._name = "loss"
        #: Reports in a row with a loss that is not finite, in a training that logs none that is called so.
        self._parts = 0
        self._counts: list[int] = []
        self._steps = 0
        self._before: tuple[int, float] | None = None

    @property
    def held(self) -> bool:
        """Whether the signal is on, or held."""
        return self._latch.held

    def observe(self, step: Step) -> None:
        """Look at ``loss``, ``grad_norm`` and ``skipped`` among the values."""
        if self._timeline.begins_anew(step):
            self._begin_anew()
        if step.values.get("skipped"):
            self._skipped.append(step.count)
        loss = step.values.get("loss")
        if loss is None:
            if not self._seen:
                self._look_at_parts(step)
            return
        self._seen, self._name = True, "loss"
        word = _word(loss, step.values.get("grad_norm", 0.0))
        if not word:
            self._last_finite = (step.step, loss)
            self._searching = 0
            self._latch.update(0.0, step)
        elif step.count in self._skipped and self._searching < SEARCH_STEPS:
            self._searching += 1
            self._latch.update(0.0, step)
        else:
            self._find(step, word)

    def _find(self, step: Step, word: str) -> None:
        if not self._latch.open:
            self._first, self._steps, self._before = (step.step, word), 0, self._last_finite
            self._counts = []
        self._steps += 1
        if len(self._counts) < ODD_STEPS:
            self._counts.append(step.count)
        self._latch.update(float(self._steps), step)

    def _look_at_parts(self, step: Step) -> None:
        """Look at losses by other names; a step that has none of them says nothing."""
        parts = {name: value for name, value in step.values.items() if is_loss(name)}
        if not parts:
            return
        bad = next((name for name, value in parts.items() if not math.isfinite(value)), None)
        self._parts = 0 if bad is None else self._parts + 1
        if bad is not None and self._parts >= PARTS:
            self._name = bad[:_LONGEST]
            self._find(step, _word(parts[bad], 0.0))
        elif bad is None:
            self._latch.update(0.0, step)

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps, up to one that turns the signal on; return how many."""
        columns, count = steps.columns, len(steps)
        if self._latch.held or not (_are_sound(steps) and self._timeline.leads_to(steps)):
            return by_pieces(self, steps)
        if not self._seen and "loss" not in columns:
            if not all(steps.is_finite(name) for name in columns if is_loss(name)):
                return by_pieces(self, steps)
            self._parts = 0 if any(map(is_loss, columns)) else self._parts
        if self._timeline.begins_anew(steps[0]):
            self._begin_anew()
        self._timeline.go_on(steps, count)
        if (losses := columns.get("loss")) is not None:
            self._seen, self._name = True, "loss"
            self._last_finite = (steps.numbers[-1], losses[-1])
            self._searching = 0
        return count

    def _begin_anew(self) -> None:
        self._latch.settle()
        self._last_finite = None
        self._searching = 0
        self._skipped.clear()

    def verdict(self) -> Verdict | None:
        """Return the number of non-finite steps of this episode as the ratio; None as long as there is no loss."""
        if not self._seen and not self._latch.held:
            return None
        if not self._latch.held:
            gated = "" if not self._searching else "the loss scaler skips steps and looks for its scale"
            return Verdict(ratio=0.0, statistics={"steps": 0.0}, severity="info", gated=gated)
        number, word = self._first
        evidence = f"since step {number}: {self._name} is {word} in {_about(self._steps)}"
        if self._before is not None:
            evidence += f"; before: {self._before[1]:.4g} at step {self._before[0]}"
        return Verdict(
            ratio=self._latch.peak,
            since_step=number,
            evidence=evidence,
            statistics={"steps": float(self._steps)},
            counts=tuple(self._counts[: 1 << (len(self._counts).bit_length() - 1)]),
            severity="critical",
            action=_ACTION if self._before is not None else _ACTION_AT_ONCE,
            confidence=1.0,
        )


_ACTION = (
    "data: look at the batches of the first such step, and repeat it: another result is a fault of a device; "
    "parameters: go back to a checkpoint before it, lower the learning rate by a third, compute the loss in float32"
)
_ACTION_AT_ONCE = (
    "data: look for NaN, infinity and empty batches in the input; parameters: lower the learning rate by 10 times, "
    "compute the loss in float32"
)


def _are_sound(steps: Steps) -> bool:
    """Return whether none was skipped and each loss, if there are any, is a number that counts as one."""
    columns = steps.columns
    if "skipped" in columns and steps.extent("skipped") != (0.0, 0.0):
        return False
    if "loss" not in columns:
        return True
    low, high = steps.extent("loss")
    if not -math.inf < low <= high < math.inf:
        return False
    return not low <= 0.0 <= high or "grad_norm" not in columns or steps.is_finite("grad_norm")


def _word(loss: float, grad_norm: float) -> str:
    """Return what the loss is in place of a number, or an empty string."""
    if loss == 0.0 and not math.isfinite(grad_norm):
        return "0 with a non-finite gradient norm"
    if math.isnan(loss):
        return "NaN"
    if math.isinf(loss):
        return "+Inf" if loss > 0 else "-Inf"
    return ""


def _about(steps: int) -> str:
    """Say the number of steps in few different words, because each is a new series."""
    if steps == 1:
        return "1 step"
    return f"{10 ** (len(str(steps)) - 1) if steps >= 10 else 2} or more steps"
