"""Evaluation mismatch: what the evaluation measures is not what the training measures.

- The validation loss is NaN or infinite while every training loss since the evaluation before is finite: an empty
  split, an overflow in evaluation alone, a mask over all of it, statistics of BatchNorm that were never set.
- From the first evaluation on, five in a row, the validation loss is twice the training loss or more.  A model that
  has seen no sample twice cannot have learnt them by heart, so only runs whose first evaluation falls into the first
  epoch count.  Batch normalisation makes one or two such evaluations of healthy runs, so it must be all five, and the
  training loss is the middle of the last 64 steps, not the mean over an epoch.  Where the factor is the same all the
  time (within a quarter) and the validation loss falls with the training's, the two are counted in different ways (a
  sum, a weight, a mean over other things): an info.
- Five evaluations in a row, the validation loss is half the training loss or less: another quantity (auxiliary losses,
  label smoothing, augmentation, a sum over accumulated batches) or a leak.  Most of these are meant, so this is an
  info only.

Twice and half are wide: dropout, masking and augmentation put 5 to 25 % between the two on public logs of healthy runs.
"""

from __future__ import annotations

import math
from itertools import islice

from trainvitals.detect.base import Category, Verdict
from trainvitals.detect.evaluations import Point, SplitDetector, validation_loss
from trainvitals.detect.window import middle

FACTOR = 2.0
EVALUATIONS = 5
#: A factor is the same as long as its middle moves by less from the first evaluations to the last.
SAME, FALLS = 1.25, 0.9
#: Runs of evaluations are counted up to so many.
_NEWEST = 64
#: What the first evaluation may come behind, in epochs: at its end, and the step that ends it may be counted.
FIRST_EPOCH = 1.05


class EvaluationMismatch(SplitDetector):
    """Compares level and finiteness of the losses of each split with those of the training; shows the worst split.

    Statistics: ``nonfinite`` (evaluations in a row, up to now), ``factor`` (validation over training loss now) and
    ``evaluations`` (with both losses).
    """

    signal = "evaluation_mismatch"
    category: Category = "data"
    needs = "an evaluation with a loss, and a training loss before it"

    def _judge(self, split: str, points: list[Point]) -> Verdict | None:
        return _judge(split, points)


def _judge(split: str, points: list[Point]) -> Verdict | None:
    # The first ones and the last ones are all that counts.
    first = _pairs(points, EVALUATIONS)
    if not first:
        return None
    pairs = _pairs(points[::-1], _NEWEST)[::-1]
    bad = 0
    for point, loss in reversed(pairs):
        if math.isfinite(loss) or not point.finite:
            break
        bad += 1
    statistics = {"nonfinite": float(bad), "evaluations": float(len(points))}
    if bad:
        since = pairs[-bad][0].step
        return Verdict(
            ratio=float(bad),
            since_step=since,
            evidence=f"since step {since}: {split} loss is not finite, while the training loss is",
            statistics=statistics,
            action=(
                f"data: look for an empty or broken batch in {split}; parameters: else for an overflow in evaluation"
                " alone: precision, masks, statistics of BatchNorm"
            ),
            confidence=0.9,
        )
    factors = [_factor(point, loss) for point, loss in pairs]
    if factors[-1] is not None:
        statistics["factor"] = factors[-1]
    early = [_factor(point, loss) for point, loss in first]
    above = _far_above(split, first[0][0], early, factors, statistics, alike=_is_alike(first, pairs))
    below = _far_below(split, [point for point, _ in pairs], factors, statistics)
    return max((above, below), key=lambda verdict: verdict.ratio)


def _pairs(points: list[Point], most: int) -> list[tuple[Point, float]]:
    """Return the first evaluations that have both losses, with their own."""
    having = ((point, validation_loss(point.values)) for point in points if point.train is not None)
    return list(islice(((point, loss) for point, loss in having if loss is not None), most))


def _factor(point: Point, loss: float) -> float | None:
    """Return how far the loss is from that of the training, less two standard errors of that one."""
    train = point.train
    if train is None or not (0.0 < train and 0.0 < loss < math.inf):
        return None
    error = 2.0 * (point.error or 0.0)
    return loss / (train + error) if loss > train else loss / max(train - error, min(loss, train))


def _is_alike(first: list[tuple[Point, float]], pairs: list[tuple[Point, float]]) -> bool:
    """Whether the two losses are the same but for a factor: it stands, while the validation loss falls."""
    then, now = ([loss / point.train for point, loss in some if point.train] for some in (first, pairs[-EVALUATIONS:]))
    if not then or not now:
        return False
    before, after = middle(sorted(then)), middle(sorted(now))
    falls = middle(sorted(loss for _, loss in pairs[-EVALUATIONS:])) < FALLS * first[0][1]
    return falls and before / SAME <= after <= before * SAME


def _far_above(
    split: str,
    first: Point,
    early: list[float | None],
    factors: list[float | None],
    statistics: dict[str, float],
    *,
    alike: bool,
) -> Verdict:
    if first.resumed or (first.epoch is not None and first.epoch > FIRST_EPOCH):
        gated = "the first known evaluation is from behind the first epoch or a resume: the model may overfit by then"
        return Verdict(ratio=0.0, statistics=statistics, gated=gated)
    # One before the first step measures the model at its begin, and has no training loss.
    ratio = min((factor or 0.0 for factor in early), default=0.0) / FACTOR
    if len(early) < EVALUATIONS:
        ratio = min(ratio, 1.0) * len(early) / EVALUATIONS
    now = [factor or 0.0 for factor in factors[-EVALUATIONS:]]
    if ratio < 1.0 or min(now) < FACTOR:
        return Verdict(ratio=min(ratio, 0.99), statistics=statistics)
    evidence = f"since step {first.step}, the first one: {split} loss is {FACTOR:g} times the training's or more"
    return Verdict(
        ratio=ratio,
        since_step=first.step,
        evidence=f"{evidence}, by the same factor all the time" if alike else evidence,
        statistics=statistics,
        severity="info" if alike else "warning",
        action=(
            f"data: compare samples of {split} and of the training after all preprocessing; model: evaluate on training"
            " data, where a high loss means another definition, or a model that is not in evaluation mode"
        ),
        confidence=0.6,
    )


def _far_below(split: str, points: list[Point], factors: list[float | None], statistics: dict[str, float]) -> Verdict:
    run = 0
    for factor in reversed(factors):
        if factor is None or factor * FACTOR > 1.0:
            break
        run += 1
    if run < EVALUATIONS:
        return Verdict(ratio=min(run / EVALUATIONS, 0.99), statistics=statistics)
    since = points[-run].step
    return Verdict(
        ratio=run / EVALUATIONS,
        since_step=since,
        severity="info",
        evidence=f"since step {since}: {split} loss is half the training loss or less",
        statistics=statistics,
        action=(
            f"data: look for samples of the training in {split}; model: see whether both losses are the same quantity:"
            " auxiliary terms, label smoothing, augmentation, a sum over accumulated batches"
        ),
        confidence=0.4,
    )
