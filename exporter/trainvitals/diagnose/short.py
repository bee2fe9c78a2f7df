"""What a log of a few losses tells at its end, where the detectors need more of them to say anything.

A live run goes on, so they wait; a log that ends has no more to tell.  All of it is information and never a warning:
noise is not known from so few.

- jumped: a loss is half above all that were before it, which agreed within a tenth, and the last one is no lower than
  they were.  Instabilities that end a run, or are cut out of one, look like this.
- no fall yet: of 7 losses and more, seen from the beginning of the run, the last third is no tenth below the first, and
  those behind the first have no trend (Mann and Kendall, 5 % error).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainvitals.detect.metric_names import need_not_fall
from trainvitals.detect.trend import mann_kendall
from trainvitals.detect.window import middle

#: So many losses are enough for the detectors.
MOST = 20
#: A loss that is so many times the highest before it; those before differ by less than this share.
JUMP, AGREE = 1.5, 0.1
#: So many points tell whether there is a fall, of which this share is learning.
POINTS, LEARNT = 7, 0.1
#: The score of a trend with 5 % error, one-sided.
TREND = 1.64


@dataclass(frozen=True)
class Glance:
    """What there is to see: since which step, in words, and what to do."""

    since: int
    evidence: str
    action: str


def look(signal: str, steps: Sequence[int], losses: Sequence[float], names: Iterable[str]) -> Glance | None:
    """Look at a log of at most 20 losses for what a signal is about; ``names`` are those of the values beside them."""
    told = [(step, loss) for step, loss in zip(steps, losses, strict=True) if math.isfinite(loss)]
    if len(told) >= MOST or need_not_fall(names) or any(loss <= 0.0 for _, loss in told):
        return None
    if any(after <= before for (before, _), (after, _) in pairwise(told)):
        return None
    if signal == "loss_diverged":
        return _jump(told)
    return _no_fall(told) if signal == "loss_not_falling" else None


def _jump(told: Sequence[tuple[int, float]]) -> Glance | None:
    losses = [loss for _, loss in told]
    for place in range(1, len(losses)):
        before = losses[:place]
        if max(before) > (1.0 + AGREE) * min(before):
            return None
        if losses[place] > JUMP * max(before) and losses[-1] >= max(before):
            step = told[place][0]
            text = f"since step {step}: loss jumped from {before[-1]:.4g} to {losses[place]:.4g}"
            return Glance(step, f"{text}, in a log of {len(losses)} losses", _ACTION_JUMP)
    return None


def _no_fall(told: Sequence[tuple[int, float]]) -> Glance | None:
    if len(told) < POINTS:
        return None
    (first, start), (second, _), (third, _) = told[:3]
    if first > max(1, 3 * max(second - first, third - second)):
        return None
    losses = [loss for _, loss in told]
    late = middle(sorted(losses[len(losses) * 2 // 3 :]))
    if not (1.0 - LEARNT) * start < late < (1.0 + LEARNT) * start or abs(mann_kendall(losses[1:])) > TREND:
        return None
    text = f"since step {first}: the loss is still near {start:.4g} after {len(losses)} losses, which are few"
    return Glance(first, text, _ACTION_FALL)


_ACTION_JUMP = (
    "data: look at the batches of that step; parameters: see whether the loss comes back, else go back to a checkpoint "
    "before it and lower the learning rate by a third"
)
_ACTION_FALL = (
    "data: check that labels belong to inputs; parameters: go on for some more losses, and if it does not fall, check "
    "that weights change at all, then raise the learning rate by 2 to 3 times"
)
