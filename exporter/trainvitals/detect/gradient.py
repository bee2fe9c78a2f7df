"""Gradient anomaly: what the gradient norm and the loss scale say before the loss does, where they are logged.

- exploding: a norm of more than 10 times the median of the 128 before, in 5 steps in a row.  A norm by itself is noisy
  (30 to 100 single outliers in 10,000 steps of a healthy run), so that fewer steps or a lower factor would be no sign.
- vanishing: a norm below 1e-7 (the published bound for a mean gradient) in 20 steps in a row that were not skipped;
  exactly 0 counts only after norms that were not, because some trainers log 0 where they do not compute it.  Where the
  loss is below a hundredth of the first, nothing is left to learn, and nothing is found; beside a reward it is
  information: where all answers have the same reward, there is no gradient.
- not finite: in more than 32 steps in a row; a loss scaler that looks for its scale needs no more.
- scale: a loss scale that is halved 8 times within 100 steps, or comes down to 1, after its first search is over: that
  is when it has stood still for 20 reports.  A scale of 1 from the beginning belongs to a run without a scaler.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainvitals.detect.base import Category, Severity, Verdict, by_pieces
from trainvitals.detect.metric_names import Companions
from trainvitals.detect.segments import Kind as Segments
from trainvitals.detect.segments import Segment
from trainvitals.detect.settings import setting
from trainvitals.detect.window import middle
from trainvitals.telemetry import Step, Steps

Kind = Literal["exploding", "vanishing", "broken", "scale"]

BASELINE, REFRESH = 128, 16
#: Norms are large and fall fast in the first steps of a run.
WARMUP_POINTS = 64
#: The share of the first loss below which a model knows all that there is.
KNOWN = 0.01
BROKEN_POINTS = 33
HALVINGS, WITHIN_STEPS, SETTLED_REPORTS = 8, 100, 20
#: A finding is held for so many reports, so that a scrape sees it.
HOLD_POINTS = 16
_PIECE = 64


@dataclass(frozen=True, kw_only=True)
class GradientSettings:
    """Thresholds."""

    factor: float = setting(10.0, "times the median", "a norm above it explodes", least=1.0)
    exploding_points: int = setting(5, "norms", "so many in a row explode", least=1)
    tiny: float = setting(1e-7, "norm", "a norm below it has vanished")
    vanishing_points: int = setting(20, "norms", "so many in a row have vanished", least=1)


class GradientAnomaly:
    """Watches ``grad_norm`` and ``loss_scale``, of those that are there.

    A run that goes back begins its baselines anew.
    """

    signal = "gradient_anomaly"
    category: Category = "parameter"
    needs = "64 gradient norms, or 20 equal loss scales"
    #: What the noise of a gradient depends on.
    segments: frozenset[Segments] = frozenset({"batch_size", "sequence_length", "precision", "data"})
    settings = GradientSettings

    def __init__(self, settings: GradientSettings = GradientSettings()) -> None:
        self._settings = settings
        self._last = -1
        self._gated = ""
        self._beside = Companions()
        self._first_loss: float | None = None
        self._begin()

    def _begin(self) -> None:
        #: Those that the median is of, up to the last multiple of 16, and those that came after it.
        self._norms: deque[float] = deque(maxlen=BASELINE + REFRESH)
        self._points = 0
        self._age = 0
        #: None: nobody has asked since then.
        self._known: float | None = math.inf
        self._runs: dict[Kind, list[int]] = {"exploding": [0, 0], "vanishing": [0, 0], "broken": [0, 0]}
        self._quiet = True
        self._scale = 0.0
        self._equal = 0
        self._settled = False
        self._halved: deque[int] = deque(maxlen=HALVINGS)
        self._scale_ratio = 0.0
        self._active: tuple[Kind, float, int, str] | None = None
        self._held = 0
        #: Whether a baseline fills that takes the place of another.
        self._filling = False

    def begin_segment(self, segment: Segment) -> None:
        """Begin a new baseline; what was found is held as long as it would have been."""
        active, held = self._active, self._held
        judged = self._filling or self._points >= WARMUP_POINTS or self._settled
        scale = (self._scale, self._equal, self._settled, self._halved, self._scale_ratio)
        self._begin()
        self._active, self._held, self._filling = active, held, judged
        if segment.kind != "precision":
            self._scale, self._equal, self._settled, self._halved, self._scale_ratio = scale
        self._gated = f"a new baseline of the norm begins: {segment.why}"

    def observe(self, step: Step) -> None:
        """Take the next step: a norm costs a comparison or two, the median is looked at once for 16."""
        values = step.values
        norm, scale = values.get("grad_norm"), values.get("loss_scale")
        self._beside.take(values)
        if self._first_loss is None:
            self._first_loss = values.get("loss")
        if norm is None and scale is None:
            return
        if step.step < self._last:
            self._begin()
        self._last = step.step
        if self._held:
            self._held -= 1
            if not self._held:
                self._active = None
        if scale is not None and scale != self._scale:
            self._take_scale(scale, step.step)
        elif scale is not None:
            self._equal += 1
            self._settled = self._settled or self._equal >= SETTLED_REPORTS
        if norm is not None:
            if self._settings.tiny <= norm <= self._settings.factor * self._median and self._quiet:
                self._keep((norm,))
            elif not values.get("skipped"):
                self._take_odd(norm, step.step, values.get("loss"))

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps, up to one that turns the signal on; return how many."""
        columns = steps.columns
        norms, scales = columns.get("grad_norm"), columns.get("loss_scale")
        self._beside.take(columns)
        if self._first_loss is None and "loss" in columns:
            self._first_loss = columns["loss"][0]
        if norms is None and scales is None:
            return len(steps)
        anew = steps.numbers[0] < self._last
        if not (anew or (self._quiet and not self._held)) or not self._are_usual(steps, anew=anew):
            return by_pieces(self, steps, _PIECE if len(steps) > _PIECE else REFRESH - self._age)
        if anew:
            self._begin()
        self._last = steps.numbers[-1]
        if scales is not None:
            self._equal += len(scales)
            if scales[0] != self._scale:
                self._scale, self._equal = scales[0], len(scales) - 1
                self._halved.clear()
            self._settled = self._settled or self._equal >= SETTLED_REPORTS
        if norms is not None:
            self._keep(norms)
        return len(steps)

    def _are_usual(self, steps: Steps, *, anew: bool) -> bool:
        """Return whether the scale stands still, and no norm can be far from the median of its time."""
        if "loss_scale" in steps.columns:
            low, high = steps.extent("loss_scale")
            # A scale of 0 is the one that was never seen.
            if not 0.0 < low == high < math.inf or (self._scale not in {0.0, low} and not anew):
                return False
        if "grad_norm" not in steps.columns:
            return True
        low, high = steps.extent("grad_norm")
        if not self._settings.tiny <= low <= high < math.inf:
            return False
        if anew or not self._norms:
            return high <= self._settings.factor * low
        # No median is below all that it is of.
        return high <= self._settings.factor * min(low, *self._norms) or (
            self._age + len(steps) <= REFRESH and high <= self._settings.factor * self._median
        )

    def _keep(self, norms: Sequence[float]) -> None:
        self._points += len(norms)
        self._norms.extend(norms)
        self._age += len(norms)
        if self._age >= REFRESH:
            self._age %= REFRESH
            if self._points - self._age >= WARMUP_POINTS:
                self._known = None

    @property
    def _median(self) -> float:
        if self._known is None:
            norms = list(self._norms)
            if self._age:
                del norms[-self._age :]
            self._known = middle(sorted(norms[-BASELINE:]))
        return self._known

    def _take_odd(self, norm: float, step: int, loss: float | None) -> None:
        finite = math.isfinite(norm)
        exploding = finite and norm > self._settings.factor * self._median
        tiny = 0.0 < norm < self._settings.tiny or (norm == 0.0 and self._points >= self._settings.vanishing_points)
        if tiny and loss is not None and self._first_loss is not None and abs(loss) < KNOWN * abs(self._first_loss):
            tiny = False
        settings = self._settings
        text = f"more than {settings.factor:g} times its median {self._median:.3g}"
        self._count("exploding", exploding, settings.exploding_points, step, text)
        text = f"below {settings.tiny:g}".replace("e-0", "e-")
        self._count("vanishing", tiny, settings.vanishing_points, step, text)
        self._count("broken", not finite, BROKEN_POINTS, step, "not finite")
        self._quiet = not any(count for count, _ in self._runs.values())
        if finite and norm >= self._settings.tiny:
            # Capped, or a level that stays would never become the baseline, and an explosion would at once.
            self._keep((min(norm, self._settings.factor * self._median),))

    def _count(self, kind: Kind, seen: bool, wanted: int, step: int, what: str) -> None:
        run = self._runs[kind]
        if not seen:
            run[0] = 0
            return
        run[1] = run[1] if run[0] else step
        run[0] += 1
        if run[0] >= wanted:
            self._find(kind, run[0] / wanted, run[1], f"gradient norm is {what}")

    def _find(self, kind: Kind, ratio: float, since: int, what: str) -> None:
        if self._active is not None and self._active[0] == kind:
            # The text names the first step and the baseline of then: it must not change with every step.
            _, _, since, what = self._active
        self._active = (kind, ratio, since, what)
        self._held = HOLD_POINTS

    def _take_scale(self, scale: float, step: int) -> None:
        before, self._scale, self._equal = self._scale, scale, 0
        if not self._settled or not scale < before:
            if scale > before:
                self._halved.clear()
            return
        for _ in range(max(1, min(HALVINGS, round(math.log2(before / scale))) if scale > 0.0 else HALVINGS)):
            self._halved.append(step)
        recent = [at for at in self._halved if at > step - WITHIN_STEPS]
        self._scale_ratio = len(recent) / HALVINGS
        if scale <= 1.0 or len(recent) >= HALVINGS:
            why = "came down to 1" if scale <= 1.0 else "was halved 8 times within 100 steps"
            self._find("scale", max(1.0, self._scale_ratio), recent[0], f"loss scale {why}")

    @property
    def held(self) -> bool:
        """Whether the signal is on."""
        return self._active is not None

    def verdict(self) -> Verdict | None:
        """Return steps in a row over those that are wanted, or halvings over 8; None until there is a baseline.

        Statistics: ``median`` of the gradient norm.
        """
        gated = self._gated if self._points < WARMUP_POINTS else ""
        if self._active is None and self._points < WARMUP_POINTS and not self._settled:
            return Verdict(ratio=0.0, severity="info", gated=gated) if self._filling else None
        statistics = {"median": self._median} if math.isfinite(self._median) else {}
        if self._active is None:
            return Verdict(ratio=0.0, statistics=statistics, severity="info", gated=gated)
        kind, ratio, since, what = self._active
        return Verdict(
            ratio=ratio,
            since_step=since,
            evidence=f"since step {since}: {what}",
            statistics=statistics,
            severity=self._severity(kind),
            action=_ACTIONS[kind],
            confidence=0.8,
            gated=gated,
        )

    def _severity(self, kind: Kind) -> Severity:
        if kind == "vanishing" and self._beside.free:
            return "info"
        return "critical" if kind == "broken" else "warning"


_ACTIONS: dict[Kind, str] = {
    "exploding": (
        "data: look at the batches of that step; parameters: clip gradients, and lower the learning rate by 10 to 33 %"
    ),
    "vanishing": (
        "parameters: check that weights are not frozen, then raise the learning rate by 2 to 3 times; model: look at "
        "initial weights, residual paths and normalization"
    ),
    "broken": "data: look at the batch of that step; parameters: go back to a checkpoint before it, use bfloat16",
    "scale": "parameters: lower the learning rate by a third before the loss is NaN, or use bfloat16",
}
