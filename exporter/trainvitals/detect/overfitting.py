"""Overfitting: the curves fork.  The training loss goes on falling while the validation loss rises from its best.

What counts as a rise is Prechelt's generalisation loss, GL = validation now / best validation - 1 (Early Stopping - But
When?, 1998), whose usual thresholds are 1 to 5 %: more than 1 % is an info, 3 % a warning, 5 % critical.  A rise must
also be out of the noise of the evaluations themselves (4 standard errors: the best of many noisy evaluations is too
good by about 2 sigma, so the usual 2 or 3 would find a fork in every flat curve), and both curves must have a trend
since the best (Mann-Kendall, one chance in ten each).  The best of many noisy evaluations stays the best for a while by
chance: a fork of less than 8 errors is an info until a fifth of them came behind it, and it was there in four in a row.

- Dropout and augmentation put the training loss above the other: only trends are compared, never the gap alone.
- A single bad evaluation: the last three count at least, by their middle.
- A loss that rises because confidence does, while the metric still improves, is a matter of calibration: one severity
  less, and it is said.
- A run that diverges has no falling training loss.
- Stairs of the training loss at every epoch say nothing as long as the validation loss falls.

Earlier, and as an info only: the last fifth of the evaluations, three at least, are above the best, each by more than
the noise, while the training loss went on falling and the gap is more than a tenth (the threshold of SageMaker's rule
Overfit) and wider than it was.  That is where early stopping with a patience of three ends a run, and all that its log
has of the fork.

Earlier still, and an info too: the validation has stopped where the training has not.  Over the last quarter of the
evaluations, five at least, it gained less than half of a percent and less than a fifth of what the training loss did
(slopes of Theil and Sen), which fell by more than 2 % and two errors of its slope, with that gap; and noise could hide
no more than that fifth.  Four fifths of what is learnt are then learnt by heart.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trainvitals.detect.base import Category, Severity, Verdict
from trainvitals.detect.evaluations import Point, Rise, SplitDetector, about, at_least, noise, trend, validation_loss
from trainvitals.detect.metric_names import main_metrics
from trainvitals.detect.trend import theil_sen

#: Fewer have no trend: the best one, three behind it, and one before.
LEAST_POINTS = 5
LEAST_AFTER = 3
ERRORS = 4.0
#: A rise of so many needs no time to be sure of.
SURE_ERRORS = 8.0
#: Else it lasts for so many evaluations.
SURE_IN_A_ROW = 4
TREND = 1.28
#: Of the generalisation loss: Prechelt's GL_1, GL_3 and GL_5.
LOSS_STEPS: tuple[tuple[float, Severity], ...] = ((0.01, "info"), (0.03, "warning"), (0.05, "critical"))
_LOWER: dict[Severity, Severity] = {"critical": "warning", "warning": "info", "info": "info"}
#: The training loss fell by so much since the best evaluation.
FALL = 0.02
#: Of the onset: the gap is so wide.
ONSET_GAP = 0.1
#: The best of many noisy evaluations stays the best for a while by chance, so this is a share of them.
ONSET_SHARE = 0.2
#: Of a validation that stopped: so many evaluations, this share of all, and what it may gain of the training's gain.
#: Of five evaluations one may be out of order: a score of 1.22.
STALL_POINTS, STALL_SHARE, STALL_GAIN, STALL_TREND = 5, 0.25, 0.2, 1.2
#: And half of what a rise must be, to be one.
STALL_MOST = 0.005
_SPOKEN = (0.003, 0.01, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class _Curve(NamedTuple):
    """The evaluations of one split that have both losses, these in logarithms."""

    points: list[Point]
    validation: list[float]
    train: list[float]

    def without_last(self, count: int = 1) -> _Curve:
        """Return what was known so many evaluations earlier."""
        return _Curve(self.points[:-count], self.validation[:-count], self.train[:-count])


class Overfitting(SplitDetector):
    """Compares the loss of each split with the training loss since the evaluation before; shows the worst split.

    Statistics: ``generalisation_loss`` (a share), ``errors`` (the rise in standard errors), ``gap`` (validation
    over training, minus 1), ``evaluations``, and since the best evaluation ``steps_since_best`` and
    ``seconds_since_best``.
    """

    signal = "overfitting"
    category: Category = "parameter"
    needs = "5 evaluations with a loss above 0, and the training loss between them"

    def _judge(self, split: str, points: list[Point]) -> Verdict | None:
        return _judge(split, points)


def _curve(points: list[Point]) -> _Curve:
    kept, validation, train = [], [], []
    for point in points:
        loss = validation_loss(point.values)
        if loss is None or point.train is None or not (0.0 < loss < math.inf and 0.0 < point.train):
            continue
        kept.append(point)
        validation.append(math.log(loss))
        train.append(math.log(point.train))
    return _Curve(kept, validation, train)


def _judge(split: str, points: list[Point]) -> Verdict | None:
    curve = _curve(points)
    count = len(curve.points)
    if count < LEAST_POINTS:
        return None
    rise = Rise.of(curve.validation)
    best, last = curve.points[rise.best], curve.points[-1]
    loss = math.expm1(rise.size)
    statistics = {
        "generalisation_loss": loss,
        "errors": rise.errors,
        "gap": math.expm1(curve.validation[-1] - curve.train[-1]),
        "evaluations": float(count),
        "steps_since_best": float(last.step - best.step),
        "seconds_since_best": max(0.0, last.time - best.time),
    }
    ratio = max(0.0, min(loss / LOSS_STEPS[0][0], rise.errors / ERRORS))
    severity: Severity = "info"
    if _forks(curve, rise) and _forks(curve.without_last()):
        # What is beyond two standard errors is sure.
        sure = math.expm1(rise.size * (1.0 - 2.0 / rise.errors))
        severity = next((name for share, name in reversed(LOSS_STEPS) if sure >= share), "info")
        if rise.errors < SURE_ERRORS and not _lasts(curve, rise):
            severity = "info"
    elif _begins(curve, rise):
        ratio = 1.0
    elif _stalls(curve) or _stalls(curve.without_last()):
        return Verdict(
            ratio=1.0,
            since_step=best.step,
            evidence=(
                f"since step {best.step}: {split} loss stands at {math.exp(curve.validation[rise.best]):.4g}, while the"
                " training loss falls: what is learnt is learnt by heart"
            ),
            statistics=statistics,
            severity="info",
            action=_action(best.step),
            confidence=0.5,
        )
    else:
        return Verdict(ratio=min(ratio, 0.99), statistics=statistics)
    metric = _improving(curve.points[rise.best :])
    if metric:
        severity = _LOWER[severity]
    return Verdict(
        ratio=ratio,
        since_step=best.step,
        evidence=_say(split, curve, rise, loss, metric),
        statistics=statistics,
        severity=severity,
        action=_action(best.step),
        confidence=0.9 if ratio >= 2.0 and not metric else 0.7 if loss >= LOSS_STEPS[0][0] else 0.5,
    )


def _action(best: int) -> str:
    return (
        f"data: look for repeated samples, and add data; parameters: stop at the checkpoint of step {best},"
        " train for fewer epochs, raise weight decay, dropout or augmentation"
    )


def _forks(curve: _Curve, known: Rise | None = None) -> bool:
    """Whether the curves have parted since the best evaluation, out of the noise."""
    rise = known or Rise.of(curve.validation)
    train = curve.train[rise.best :]
    return (
        len(train) > LEAST_AFTER
        and rise.errors >= ERRORS
        and math.expm1(rise.size) >= LOSS_STEPS[0][0]
        and train[0] - train[-1] >= FALL
        and trend(train) <= -TREND
        and trend(curve.validation[rise.best :]) >= TREND
    )


def _lasts(curve: _Curve, rise: Rise) -> bool:
    """Whether a fork that the noise might have made has been there for a while."""
    if len(curve.points) - 1 - rise.best < ONSET_SHARE * len(curve.points):
        return False
    return all(_forks(curve.without_last(count)) for count in range(2, SURE_IN_A_ROW))


def _begins(curve: _Curve, rise: Rise) -> bool:
    """Whether a fork begins: not out of the noise as a whole, but all say the same."""
    level = curve.validation[rise.best]
    later = curve.validation[rise.best + 1 :]
    if len(later) < max(LEAST_AFTER, ONSET_SHARE * len(curve.points)):
        return False
    if min(later) < level + rise.sigma or later[-1] < later[0]:
        return False
    train = curve.train[rise.best :]
    gap, before = curve.validation[-1] - curve.train[-1], level - train[0]
    return trend(train) <= -TREND and train[0] - train[-1] >= FALL and gap >= ONSET_GAP and gap > before


def _stalls(curve: _Curve) -> bool:
    """Whether the validation has stopped, and the training goes on, each with a gap that grows."""
    count = max(STALL_POINTS, math.ceil(STALL_SHARE * len(curve.points)))
    if len(curve.points) < 2 * STALL_POINTS:
        return False
    train, validation = curve.train[-count:], curve.validation[-count:]
    gap, before = validation[-1] - train[-1], validation[0] - train[0]
    if gap < ONSET_GAP or gap <= before or trend(train) > -STALL_TREND:
        return False
    places = list(range(count))
    learnt, gained = (-theil_sen(places, values) * (count - 1) for values in (train, validation))
    # Noise must not hide a gain, nor make one: two errors of a slope over so many evaluations.
    error = math.sqrt(12.0 * (count - 1) / (count * (count + 1)))
    hidden, made = (2.0 * noise(values) * error for values in (curve.validation, curve.train))
    return learnt >= max(FALL, made) and gained <= STALL_MOST and max(gained, hidden) <= STALL_GAIN * learnt


def _improving(points: list[Point]) -> str:
    """Return the name of a metric that went on improving since the best loss, or an empty string."""
    for name, direction in main_metrics(points[-1].values):
        values = [direction * point.values[name] for point in points if math.isfinite(point.values.get(name, math.nan))]
        if len(values) > LEAST_AFTER and trend(values) >= TREND:
            return name
    return ""


def _say(split: str, curve: _Curve, rise: Rise, loss: float, metric: str) -> str:
    best, last = curve.points[rise.best], curve.points[-1]
    share = 100.0 * at_least(loss, _SPOKEN)
    evidence = (
        f"since step {best.step}: {split} loss rose by {share:.3g} % or more above its best,"
        f" {math.exp(curve.validation[rise.best]):.4g}, while the training loss fell;"
        f" {about(last.step - best.step)} or more steps spent since"
    )
    seconds = last.time - best.time
    if seconds >= 3600.0:
        evidence += f" ({about(seconds / 3600.0)} or more hours)"
    if metric:
        evidence += f"; {metric} still improves, so it is rather the calibration"
    return evidence
