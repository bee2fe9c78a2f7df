"""Metric decoupled: the loss falls, and what the model is trained for does not follow.

Three shapes, in this order:

- frozen: the metric is the same to its last digit in five evaluations in a row while the loss falls (Mann-Kendall, one
  chance in forty, and by 1 %).  A model that gives one answer to everything, or an evaluation that does not see the
  weights that are trained, looks like that.  Metrics that are printed with three digits or fewer repeat themselves, so
  there it takes ten; and so do those of few samples: so many in a row must not be expected by chance (1 %) from how
  often it repeated itself before, and by what it had gained per loss before it should have moved by the smallest step
  that it ever made.
- worse: the metric is below its best by 2 % and 4 standard errors, with a trend, in two evaluations in a
  row, while the loss fell since then.
- flat: over twelve evaluations and more the validation loss fell by a fifth, the metric did not move, and by what it
  had gained per loss before, it should have moved by three standard errors.  It is information until it has been so
  in six of twelve evaluations: in a loss that is loud, one stretch of some hundred looks like that for a while.

- never better: of the first three or four evaluations each is worse than the one before, by a tenth in all, while the
  training loss fell by a fifth.  By chance one run in six begins like that, so it is an info: it is all that can be
  said of runs that end there, as fine-tunes of three epochs do.

Where all values are multiples of 1 / m with m below 500, they are counts of m samples: what stands still there, or is
worse by less than 4 standard errors of such a share, is information.

The loss is that of the same split; where there is none it is that of the training, and "flat" is not judged: a training
loss goes on falling by memory.  Where the validation loss rises, the finding is overfitting and not this one.

Not judged: metrics near their ceiling (above 95 %), a metric that is 0 (exact match begins late, detectors find nothing
at first), metrics of one class or slice, and what has no known direction.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from trainvitals.detect.base import Category, Verdict
from trainvitals.detect.evaluations import Point, Rise, SplitDetector, noise, trend, validation_loss
from trainvitals.detect.metric_names import main_metrics
from trainvitals.detect.window import MEDIAN_ERROR, middle

LEAST_POINTS = 5
#: Of a metric that was best at its first evaluation: so many, it is worse by this share, and the loss fell by that.
FIRST_POINTS, FIRST_SHARE, FIRST_FALL = 3, 0.1, 0.2
FROZEN, FROZEN_COARSE = 5, 10
FROZEN_FALL = 0.01
#: By chance, so many equal ones in a row, where the metric has changed so often.
FROZEN_CHANCE, FROZEN_CHANGES = 0.01, 3
WORSE_AFTER = 4
WORSE_SHARE = 0.02
WORSE_ERRORS = 4.0
#: A metric over some hundred samples has a noise of 2 to 5 points: a few evaluations say nothing.
FLAT_POINTS = 12
FLAT_ENDS = 5
#: A loss falls by a tenth and more by confidence alone, at the same answers (Guo et al., 2017, on temperature).
FLAT_FALL = 0.2
FLAT_ERRORS = 3.0
#: Half of those that it takes.
FLAT_SURE = 6
CEILING = 0.95
#: So many samples are no few; how near shares of them are to whole counts; and so many different ones tell it.
FEW_SAMPLES, NEAR, FEW_SHARES = 500, 0.01, 3
#: Scores of Mann and Kendall: as good as no trend, and by chance once in 10, 20, 40 and 100 times.
EVEN, ONE_IN_10, ONE_IN_20, ONE_IN_40, ONE_IN_100 = 0.5, 1.28, 1.64, 1.96, 2.33
#: Of the newest evaluations: more are another phase of the run.
_NEWEST = 256
_MAX_METRICS = 8


class _Pair(NamedTuple):
    """A metric, turned so that up is good, and the logarithm of the loss, at the same evaluations."""

    points: list[Point]
    good: list[float]
    loss: list[float]
    name: str
    own_loss: bool

    def without_last(self, count: int = 1) -> _Pair:
        """Return what was known so many evaluations earlier."""
        return self._replace(points=self.points[:-count], good=self.good[:-count], loss=self.loss[:-count])


class MetricDecoupled(SplitDetector):
    """Compares the metrics of each split with its loss; shows the worst.

    Statistics: ``frozen`` (evaluations in a row with the same value), ``worse`` (a share, below the best) and
    ``errors`` (the same in standard errors).
    """

    signal = "metric_decoupled"
    category: Category = "data"
    needs = "3 evaluations with a metric that is no loss, and a loss beside them"

    def _judge(self, split: str, points: list[Point]) -> Verdict | None:
        return _judge(split, points[-_NEWEST:])


def _judge(split: str, points: list[Point]) -> Verdict | None:
    verdicts = []
    for name, direction in main_metrics(points[-1].values)[:_MAX_METRICS]:
        pair = _pair(points, name, direction)
        if pair is not None:
            verdicts.append(_judge_pair(split, pair))
        elif FIRST_POINTS <= len(points) < LEAST_POINTS and (first := _judge_first(split, points, name, direction)):
            verdicts.append(first)
    return max(verdicts, key=lambda verdict: verdict.ratio, default=None)


def _pair(points: list[Point], name: str, direction: int) -> _Pair | None:
    """Return the evaluations that have this metric and a loss: the split's own, if it has one at all of them."""
    having = [point for point in points if math.isfinite(point.values.get(name, math.nan))]
    own = [validation_loss(point.values) for point in having]
    has_own = bool(own) and all(loss is not None for loss in own)
    losses = own if has_own else [point.train for point in having]
    kept = [
        (point, math.log(loss))
        for point, loss in zip(having, losses, strict=True)
        if loss is not None and 0.0 < loss < math.inf
    ]
    if len(kept) < LEAST_POINTS:
        return None
    good = [direction * point.values[name] for point, _ in kept]
    return _Pair([point for point, _ in kept], good, [loss for _, loss in kept], name, has_own)


def _judge_first(split: str, points: list[Point], name: str, direction: int) -> Verdict | None:
    """Judge the first evaluations, which are too few to tell noise: None where there is nothing to tell."""
    good = [direction * point.values.get(name, math.nan) for point in points]
    train = [point.train for point in points if point.train is not None and point.train > 0.0]
    worse = (good[0] - good[-1]) / max(abs(good[0]), 1e-9)
    fell = len(train) == len(points) and train[-1] <= (1.0 - FIRST_FALL) * train[0]
    # NaN compares as false.
    if not (fell and worse >= FIRST_SHARE and all(after < before for before, after in pairwise(good))):
        return None
    since = points[0].step
    return Verdict(
        ratio=worse / FIRST_SHARE,
        since_step=since,
        evidence=f"since step {since}: {split} {name} is worse at each evaluation, while the training loss falls",
        statistics={"worse": worse},
        severity="info",
        action=_ACTION,
        confidence=0.5,
    )


def _judge_pair(split: str, pair: _Pair) -> Verdict:
    rise = Rise.of([-value for value in pair.good])
    best = pair.good[rise.best]
    worse = rise.size / max(abs(best), 1e-9)
    run = _same(pair.good)
    statistics = {"frozen": float(run), "worse": worse, "errors": rise.errors}
    if gated := _gate(pair, run):
        return Verdict(ratio=0.0, statistics=statistics, gated=gated)
    frozen = _frozen_ratio(pair, run)
    ratio = min(worse / WORSE_SHARE, rise.errors / WORSE_ERRORS)
    found = []
    if frozen >= 1.0:
        text = f"{split} {pair.name} has been the same to its last digit"
        verdict = _finding(frozen, pair.points[-run].step, text, pair, statistics)
        found.append(_lowered(verdict, if_so=_grid(pair.good) > 0.0))
    if ratio >= 1.0 and _is_worse(pair, rise) and _is_worse(pair.without_last()):
        text = f"{split} {pair.name} is worse than its best, {abs(best):.4g}"
        chance = WORSE_ERRORS * math.sqrt(_grid(pair.good) * abs(best) * max(0.0, 1.0 - abs(best)))
        verdict = _finding(ratio, pair.points[rise.best].step, text, pair, statistics)
        found.append(_lowered(verdict, if_so=rise.size < chance))
    if not found and (start := _flat_from(pair)) is not None:
        verdict = _finding(1.0, pair.points[start].step, f"{split} {pair.name} has not improved", pair, statistics)
        earlier = [_flat_from(pair.without_last(count)) is not None for count in range(1, 2 * FLAT_SURE)]
        found.append(_lowered(verdict, if_so=_grid(pair.good) > 0.0 or earlier.count(True) + 1 < FLAT_SURE))
    if found:
        # The first one, unless only a later one is a warning.
        return max(found, key=lambda verdict: verdict.severity != "info")
    return Verdict(ratio=max(0.0, min(0.99, max(frozen, ratio))), statistics=statistics)


def _lowered(verdict: Verdict, *, if_so: bool) -> Verdict:
    return replace(verdict, severity="info", confidence=0.5) if if_so else verdict


def _grid(values: list[float]) -> float:
    """Return 1 / m where values are shares of so few samples, and 0 where they are not, or nothing tells it."""
    shares = {abs(value) for value in values}
    if len(shares) < FEW_SHARES or max(shares) > 1.0:
        return 0.0
    for samples in range(2, FEW_SAMPLES):
        if all(abs(share * samples - round(share * samples)) <= NEAR for share in shares):
            return 1.0 / samples
    return 0.0


def _gate(pair: _Pair, run: int) -> str:
    now = abs(pair.good[-1])
    if now == 0.0 and run > 1:
        return f"{pair.name} is 0: it may begin late"
    scale = 100.0 if max(abs(value) for value in pair.good) > 1.5 else 1.0
    return f"{pair.name} is near its ceiling" if pair.good[-1] > 0.0 and CEILING * scale <= now <= scale else ""


def _finding(ratio: float, since: int, text: str, pair: _Pair, statistics: dict[str, float]) -> Verdict:
    which = "its loss" if pair.own_loss else "the training loss"
    return Verdict(
        ratio=ratio,
        since_step=since,
        evidence=f"since step {since}: {text}, while {which} falls",
        statistics=statistics,
        action=_ACTION,
        confidence=0.7 if pair.own_loss else 0.6,
    )


_ACTION = (
    "data: run the same evaluation on the first checkpoint, where the same result means a fault of the evaluation;"
    " then look at the worst slices and their weight; parameters: leave the learning rate alone; model: see whether the"
    " objective is what the metric counts"
)


def _same(values: list[float]) -> int:
    run = 0
    for value in reversed(values):
        if value != values[-1]:
            break
        run += 1
    return run


def _frozen_ratio(pair: _Pair, run: int) -> float:
    value = abs(pair.good[-1])
    wanted = FROZEN_COARSE if math.isclose(round(value, 3), value, rel_tol=1e-9) else FROZEN
    loss = pair.loss[-run:]
    ratio = run / wanted
    falls = loss[0] - loss[-1] >= FROZEN_FALL and trend(loss) <= -ONE_IN_40
    return ratio if falls and _should_move(pair, run) else min(ratio, 0.99)


def _should_move(pair: _Pair, run: int) -> bool:
    """Whether a metric that is the same in the last evaluations would have moved, going by what it did before."""
    pairs = len(pair.good) - run
    changes = sum(one != other for one, other in pairwise(pair.good))
    # Fewer changes do not tell how it moves; half a repetition is added, so that none is not never.
    if changes >= FROZEN_CHANGES and ((pairs - changes + 0.5) / (pairs + 1.0)) ** (run - 1) > FROZEN_CHANCE:
        return False
    gained, fallen = pair.good[-1] - pair.good[0], pair.loss[0] - pair.loss[-run]
    if gained <= 0.0 or fallen <= 0.0:
        return True
    values = sorted(set(pair.good))
    step = min([after - value for value, after in pairwise(values)], default=0.0)
    return gained / fallen * (pair.loss[-run] - pair.loss[-1]) >= step


def _is_worse(pair: _Pair, known: Rise | None = None) -> bool:
    rise = known or Rise.of([-value for value in pair.good])
    since = slice(rise.best, None)
    loss = pair.loss[since]
    return (
        len(loss) > WORSE_AFTER
        and rise.errors >= WORSE_ERRORS
        and trend(pair.good[since]) <= -ONE_IN_10
        and trend(loss) <= -ONE_IN_20
        and loss[0] - loss[-1] >= WORSE_SHARE
    )


def _flat_from(pair: _Pair) -> int | None:
    """Return where a flat stretch begins: the newest place from which the loss fell by enough, if there is one."""
    good, loss = pair.good, pair.loss
    if not pair.own_loss:
        return None
    # Ends are middles of some evaluations: the start is chosen for its loss, and noise would choose it.
    ended = _middle(loss[-FLAT_ENDS:])
    start = len(loss) - FLAT_POINTS
    while start >= 0 and _middle(loss[start : start + FLAT_ENDS]) - ended < FLAT_FALL:
        start -= 1
    if start < FLAT_ENDS or trend(loss[start:]) > -ONE_IN_100:
        return None
    # The start was looked for, so what noise makes of a middle must not be a fifth.
    if FLAT_ERRORS * MEDIAN_ERROR * noise(loss) * math.sqrt(2.0 / FLAT_ENDS) > FLAT_FALL:
        return None
    began, here = _middle(loss[start : start + FLAT_ENDS]), _middle(good[start : start + FLAT_ENDS])
    fallen, gained = _middle(loss[:FLAT_ENDS]) - began, here - _middle(good[:FLAT_ENDS])
    # What it gained per loss before must be known.
    if fallen < FLAT_FALL or gained <= 0.0:
        return None
    now = _middle(good[-FLAT_ENDS:])
    error = MEDIAN_ERROR * noise(good) * math.sqrt(2.0 / FLAT_ENDS)
    expected = gained / fallen * (began - ended)
    flat = now - here <= error and trend(good[start:]) < EVEN
    return start if flat and expected >= FLAT_ERRORS * error else None


def _middle(values: list[float]) -> float:
    return middle(sorted(values))
