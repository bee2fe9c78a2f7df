"""Leakage suspected: the validation loss is better than what the training can explain.

- It drops at once, by more than a tenth, 6 standard deviations of its noise and twice what two neighbours before it
  differ by, and stays there for three evaluations, while the training loss moves by less than a third of that.  A
  learning rate that drops moves both; a source that was added and holds samples of the validation moves one.
- Where the evaluation measures both losses in the same way (nanoGPT does), it is lower than the training loss by 2 %
  and more, five evaluations in a row, and the gap grew (Mann-Kendall, one chance in twenty), from less than 2 % at
  first.  An easier validation set has that gap from the begin on; a growing one is learnt by heart.

A gap alone says nothing where the two are not measured in the same way: dropout, masking and augmentation put 5 to
25 % between them in healthy public logs, on that side.  A change of the validation set or of its preprocessing looks
like the first of these too, so it is said, and the confidence is low.
"""

from __future__ import annotations

import math
from itertools import pairwise

from trainvitals.detect.base import Category, Verdict
from trainvitals.detect.evaluations import Point, SplitDetector, noise, trend, validation_loss
from trainvitals.detect.window import middle

DROP = 0.1
SIGMAS = 6.0
#: So many evaluations before the drop tell its noise, so many behind it that it lasts.
BEFORE, AFTER = 8, 3
#: Of the largest difference of neighbours among these: a noise that is known from eight may be far larger.
JUMPS = 2.0
SHARE = 1.0 / 3.0
GAP = 0.02
EVALUATIONS = 5
GAP_POINTS = 8
TREND = 1.64


class LeakageSuspected(SplitDetector):
    """Compares the loss of each split with the training loss; shows the worst split.

    A drop is shown from the third evaluation behind it until the run goes back to before it: it does not heal.

    Statistics: ``drop`` (a share, of the validation loss over the newest place where one can be judged),
    ``train_drop`` (of the training loss there) and ``gap`` (validation over training loss now, minus 1).
    """

    signal = "leakage_suspected"
    category: Category = "data"
    needs = "11 evaluations with a loss above 0, and the training loss between them"

    def _judge(self, split: str, points: list[Point]) -> Verdict | None:
        return _judge(split, points)

    def _renew(self, split: str, points: list[Point]) -> None:
        known = self._verdicts.get(split)
        if known is not None and known.active and known.since_step is not None:
            if points and points[-1].step > known.since_step:
                return
            del self._verdicts[split]
        verdict = _judge(split, points)
        if verdict is not None:
            self._verdicts[split] = verdict


def _judge(split: str, points: list[Point]) -> Verdict | None:
    kept, validation, train = [], [], []
    for point in points[-64:]:
        loss = validation_loss(point.values)
        if loss is not None and point.train is not None and 0.0 < loss < math.inf and 0.0 < point.train:
            kept.append(point)
            validation.append(math.log(loss))
            train.append(math.log(point.train))
    if len(kept) < BEFORE + AFTER:
        return None
    drop = _Drop(validation, train)
    statistics = {
        "drop": -math.expm1(-drop.size),
        "train_drop": -math.expm1(-drop.train),
        "gap": math.expm1(validation[-1] - train[-1]),
    }
    ratio = drop.ratio if drop.train < SHARE * drop.size else 0.0
    if ratio >= 1.0:
        since = kept[-AFTER].step
        return Verdict(
            ratio=ratio,
            since_step=since,
            evidence=(
                f"since step {since}: {split} loss fell at once from {math.exp(validation[-AFTER - 1]):.4g} to"
                f" {math.exp(validation[-AFTER]):.4g}, while the training loss did not follow"
            ),
            statistics=statistics,
            action=(
                f"data: look for samples of {split} in what was added before this step, by hash;"
                f" else see whether {split} or its preprocessing changed there"
            ),
            confidence=0.5,
        )
    grown = _grown(split, kept, [a - b for a, b in zip(validation, train, strict=True)], statistics)
    return grown or Verdict(ratio=max(0.0, min(ratio, 0.99)), statistics=statistics)


class _Drop:
    """The last three evaluations against the eight before them, and their slope."""

    def __init__(self, validation: list[float], train: list[float]) -> None:
        before = validation[-AFTER - BEFORE : -AFTER]
        self.sigma = noise(before)
        #: What the curve did anyway, from one evaluation to the next, goes on for two more.
        steps = sorted([later - earlier for earlier, later in pairwise(before)])
        usual = min(middle(steps), 0.0) * 2.0
        behind = validation[-AFTER:]
        #: All three must be there: the highest counts, and the middle of the three before.
        self.size = middle(sorted(before[-3:])) - max(behind) + usual
        self._largest = max(abs(step - middle(steps)) for step in steps)
        at = train[-AFTER - 3 : -AFTER]
        self.train = middle(sorted(at)) - middle(sorted(train[-AFTER:]))

    @property
    def ratio(self) -> float:
        """The drop over what it must be."""
        return min(self.size / DROP, self.size / (SIGMAS * self.sigma), self.size / max(JUMPS * self._largest, 1e-9))


def _grown(split: str, points: list[Point], gaps: list[float], statistics: dict[str, float]) -> Verdict | None:
    equal = [(point, gap) for point, gap in zip(points, gaps, strict=True) if point.equal]
    if len(equal) < GAP_POINTS or not points[-1].equal:
        return None
    known = [gap for _, gap in equal]
    run = 0
    for gap in reversed(known):
        if gap > -GAP:
            break
        run += 1
    if run < EVALUATIONS or run == len(known) or trend(known) > -TREND:
        return None
    if middle(sorted(known[-EVALUATIONS:])) > middle(sorted(known[:EVALUATIONS])) - 2.0 * noise(known):
        return None
    since = equal[-run][0].step
    return Verdict(
        ratio=run / EVALUATIONS,
        since_step=since,
        evidence=f"since step {since}: {split} loss is below the training loss measured beside it, and the gap grew",
        statistics=statistics,
        action=f"data: look for samples of {split} in the training data, by hash and near-duplicates",
        confidence=0.5,
    )
