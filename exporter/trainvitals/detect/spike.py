"""Loss spike: the loss rises out of its own noise and stays there for some steps.

Two tests, each without a false alarm on 74 healthy public curves (263,721 steps), each finding every spike of the
shape of BLOOM's (2.3 times the level, 30 steps) within 6 steps:

- level: the median of the last 8 values against median and MAD of the 128 before, 6 standard errors;
- outliers: at least 3 of the last 5 values beyond 5 robust sigmas.

A single value beyond 8 sigmas is counted and not an alarm: in runs with the same data order such outliers fall on
the same steps, so they are data, not instability.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

from trainvitals.detect.base import Category, Latch, Verdict
from trainvitals.detect.window import MEDIAN_ERROR, center_and_spread
from trainvitals.telemetry import Step


@dataclass(frozen=True, kw_only=True)
class SpikeSettings:
    """Where the defaults come from: see the docstring of the module."""

    baseline: int = 128
    recent: int = 8
    level_errors: float = 6.0
    outlier_sigmas: float = 5.0
    outliers_of: tuple[int, int] = (3, 5)
    event_sigmas: float = 8.0
    #: Losses fall fast and jump during warm-up; instabilities of a young run heal (BLOOM-104B).
    warmup_steps: int = 500
    #: After a start or a resume: three baselines.
    warmup_points: int = 384
    #: A learning rate that jumps by more than this opens a new segment.
    learning_rate_jump: float = 0.2
    #: No loss is quieter than this share of its level; rounding in logs would make the MAD 0.
    spread_floor: float = 0.0025
    hold_seconds: float = 120.0
    hold_steps: int = 8


class LossSpike:
    """Watches ``values["loss"]``; the ratio is the larger of the two tests over its threshold."""

    signal = "loss_spike"
    category: Category = "parameter"

    def __init__(self, settings: SpikeSettings = SpikeSettings()) -> None:  # noqa: B008  frozen
        self._settings = settings
        self._latch = Latch(hold_seconds=settings.hold_seconds, hold_steps=settings.hold_steps)
        self.events = 0
        self._last: Step | None = None
        self._learning_rate: float | None = None
        self._start_segment()

    def _start_segment(self) -> None:
        settings = self._settings
        self._points = 0
        #: Old enough to be the baseline, and the newest that are judged against it.
        self._baseline: deque[float] = deque(maxlen=settings.baseline)
        self._recent: deque[tuple[float, float]] = deque(maxlen=settings.recent)
        self._sigmas: deque[float] = deque(maxlen=settings.outliers_of[1])
        self._ratio: float | None = None
        self._numbers: dict[str, float] = {}
        self._peak_loss = self._level_before = math.nan

    def observe(self, step: Step) -> None:
        """Take the next step; a rollback and a jump of the learning rate open a new segment."""
        if self._last is not None and step.count > self._last.count and step.step < self._last.step:
            self._latch.reset()
            self._start_segment()
        self._last = step
        self._follow_learning_rate(step.values.get("learning_rate"))
        loss = step.values.get("loss")
        if loss is None or not math.isfinite(loss) or step.values.get("skipped"):
            return
        self._points += 1
        ratio = self._judge(loss, step)
        self._ratio = None if ratio is None else self._latch.update(ratio, step)

    def _follow_learning_rate(self, rate: float | None) -> None:
        before = self._learning_rate
        if rate is None or not math.isfinite(rate):
            return
        self._learning_rate = rate
        if before and abs(rate / before - 1.0) > self._settings.learning_rate_jump and self._latch.since is None:
            self._start_segment()

    def _judge(self, loss: float, step: Step) -> float | None:
        settings = self._settings
        if len(self._baseline) < settings.baseline:
            self._push(loss, loss)
            return None
        level, spread = center_and_spread(self._baseline)
        spread = max(spread, settings.spread_floor * abs(level), 1e-12)
        sigmas = (loss - level) / spread
        self._sigmas.append(sigmas)
        # The baseline takes flagged points in a capped form, or a spike would hide the next.
        self._push(loss, min(loss, level + settings.outlier_sigmas * spread))
        if self._points <= settings.warmup_points or step.step < settings.warmup_steps:
            return None
        self.events += sigmas > settings.event_sigmas
        error = MEDIAN_ERROR * spread / math.sqrt(settings.recent)
        errors = (median(value for value, _ in self._recent) - level) / error
        wanted, of = settings.outliers_of
        outlier = sorted(self._sigmas)[-wanted] if len(self._sigmas) == of else 0.0
        ratio = max(errors / settings.level_errors, outlier / settings.outlier_sigmas, 0.0)
        if ratio >= 1.0:
            if self._latch.since is None:
                self._level_before, self._peak_loss = level, loss
            self._peak_loss = max(self._peak_loss, loss)
        self._numbers = {"level_errors": errors, "outlier_sigmas": outlier, "baseline": level, "spread": spread}
        return ratio

    def _push(self, loss: float, capped: float) -> None:
        """Take a value; the one that leaves the recent window joins the baseline in its capped form."""
        if len(self._recent) == self._settings.recent:
            self._baseline.append(self._recent.popleft()[1])
        self._recent.append((loss, capped))

    def verdict(self) -> Verdict | None:
        """Return the ratio, held for two minutes; None during warm-up and while the baseline fills."""
        if self._ratio is None:
            return None
        statistics = {**self._numbers, "events": float(self.events)}
        since = self._latch.since
        if since is None:
            return Verdict(ratio=self._ratio, statistics=statistics)
        evidence = (
            f"since step {since.step}: loss rose from {self._level_before:.4g} (median of "
            f"{self._settings.baseline} steps) to {self._peak_loss:.4g}"
        )
        return Verdict(ratio=self._ratio, since_step=since.step, evidence=evidence, statistics=statistics)
