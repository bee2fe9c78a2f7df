"""Evaluations beside the training loss that belongs to them: what the detectors that compare the two have in common.

An evaluation may come as one event or as one event for each of its numbers (TensorBoard), before or after the step
that it belongs to, for several splits at the same step, and again after a rollback.  Here these become one list of
points for each split.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from trainvitals.detect.base import Verdict
from trainvitals.detect.trend import mann_kendall
from trainvitals.detect.window import MAD_TO_SIGMA, MEAN_TO_SIGMA, MEDIAN_ERROR, middle
from trainvitals.telemetry import Event, Step, Steps

#: The training loss of an evaluation is that of at most so many steps before it: recent, and enough for a middle.
_LOSSES = 64
_MAX_SPLITS = 64
_MAX_METRICS = 512
#: Then every second of the older half is dropped.
_MAX_POINTS = 512
#: Trends are looked at over at most so many points: pairs grow with the square.
_TREND_POINTS = 64
#: Noise is that of so many evaluations at the end: a curve is steep at its begin.
_NOISE_POINTS = 32
#: A noise that is known from so many differences is taken twice.  Without it, one run in twenty with a noise of 5 %
#: had a finding that was none, most of them within its first ten evaluations (made-up curves, 60 of each kind).
_FEW = 3.0
#: Logs print three or four digits; below that there is no noise to be seen.  In logarithms.
_LEAST_NOISE = 2e-4
#: More says nothing more.
_MOST = 1e6
#: What people call the loss of an evaluation, the best name first; with True where it is its exponential.
_LOSSES_BY_NAME = (
    ("loss", False),
    ("nll_loss", False),
    ("nll", False),
    ("cross_entropy", False),
    ("bpb", False),
    ("ppl", True),
    ("perplexity", True),
)


@dataclass(slots=True)
class Point:
    """One evaluation of a split.

    ``train`` is the middle of the training losses since the evaluation before (None: there were none), ``error`` its
    standard error (None: too few to know), ``finite`` whether all of them were.  ``equal``: the training loss was
    measured in the evaluation, in the same way as the other (nanoGPT does that).
    """

    step: int
    time: float
    values: dict[str, float]
    train: float | None
    error: float | None
    finite: bool
    epoch: float | None
    #: Whether the steps before it began with a later one than the first: what was before is not known.
    resumed: bool
    equal: bool = False


class Evaluations:
    """Takes steps and events, and keeps the points of each split in the order of their steps."""

    def __init__(self) -> None:
        #: The newest steps, alone or in blocks.
        self._steps: deque[Step | Steps] = deque(maxlen=_LOSSES)
        #: Takes the next step, at the cost of a call that is no Python: there may be millions.  Detectors hand it out
        #: as their own.
        self.observe: Callable[[Step], None] = self._steps.append
        self.splits: dict[str, list[Point]] = {}
        self._current: Point | None = None
        self._resumptions = 0

    def observe_all(self, steps: Steps) -> None:
        """Take the next steps."""
        if len(steps) >= _LOSSES:
            self._steps.clear()
        self._steps.append(steps)

    def _recent(self) -> list[Step]:
        """Return the newest steps since the evaluation before."""
        found: list[Step] = []
        for item in reversed(self._steps):
            found[:0] = [item] if isinstance(item, Step) else item[-_LOSSES:]
            if len(found) >= _LOSSES:
                break
        return found[-_LOSSES:]

    def take(self, event: Event) -> str | None:
        """Take the next event; return the split if it was an evaluation of one.

        After a rollback, or the begin of another run, the points from there on no longer count.
        """
        if event.kind == "restart":
            self._go_back(event.step)
            self._steps.clear()
            return None
        if event.kind != "evaluation":
            return None
        name, values = event.fields.get("name"), _numbers(event.fields.get("values"))
        if not isinstance(name, str) or not values:
            return None
        if name not in self.splits and len(self.splits) >= _MAX_SPLITS:
            return None
        points = self.splits.setdefault(name, [])
        if points and event.step < points[-1].step:
            self._go_back(event.step)
            points = self.splits.setdefault(name, [])
        if points and points[-1].step == event.step:
            points[-1].values.update(islice(values.items(), _MAX_METRICS - len(points[-1].values)))
            points[-1].equal |= _measure(points[-1], values)
        else:
            points.append(self._point(event, values))
            if len(points) > _MAX_POINTS:
                del points[1 : _MAX_POINTS // 2 : 2]
        return name

    def changed(self, event: Event) -> list[str]:
        """Take the next event; return the splits whose points it changed: that of an evaluation, or all of before."""
        before, resumed = list(self.splits), self._resumptions
        name = self.take(event)
        if self._resumptions != resumed:
            return list(dict.fromkeys([*before, *self.splits]))
        return [] if name is None else [name]

    def _go_back(self, step: int) -> None:
        if step < 0:
            return
        for name, points in list(self.splits.items()):
            kept = [point for point in points if point.step < step]
            if kept:
                self.splits[name] = kept
            else:
                del self.splits[name]
        self._current = None
        self._resumptions += 1

    def _point(self, event: Event, values: dict[str, float]) -> Point:
        """Make the point of an evaluation; splits that are evaluated at the same step share the training loss."""
        current = self._current
        if current is None or current.step != event.step:
            steps = self._recent()
            losses = [step.values["loss"] for step in steps if "loss" in step.values]
            good = sorted([loss for loss in losses if math.isfinite(loss)])
            epoch = next((step.values["epoch"] for step in reversed(steps) if "epoch" in step.values), None)
            center = middle(good) if good else None
            error = None
            if center is not None and len(good) >= 4:
                spread = MAD_TO_SIGMA * middle(sorted([abs(loss - center) for loss in good]))
                error = MEDIAN_ERROR * spread / math.sqrt(len(good))
            finite = len(good) == len(losses)
            current = Point(event.step, event.time, {}, center, error, finite, epoch, _is_resumed(steps))
            self._current = current
            self._steps.clear()
        point = replace(current, time=event.time, values=values, equal=False)
        point.equal = _measure(point, values)
        return point


def _is_resumed(steps: Sequence[Step]) -> bool:
    """Whether the first step that was counted has a number that says otherwise.

    With a log of every tenth step the first is 10 or so, so it must be more than two such strides.
    """
    if len(steps) < 2:
        return False
    strides = sorted([after.step - before.step for before, after in pairwise(steps)])
    stride = max(strides[len(strides) // 2], 1)
    last = steps[-1]
    return last.step - stride * (last.count - 1) > 2 * stride


def _measure(point: Point, values: Mapping[str, float]) -> bool:
    """Prefer a training loss that the evaluation measured itself; return whether it did."""
    loss = values.get("train_loss")
    if loss is None:
        return False
    point.train, point.error, point.finite = (loss if math.isfinite(loss) else None), None, math.isfinite(loss)
    return True


def _numbers(values: object) -> dict[str, float]:
    if not isinstance(values, Mapping):
        return {}
    return {
        name: float(value)
        for name, value in islice(values.items(), _MAX_METRICS)
        if isinstance(name, str) and isinstance(value, (int, float)) and not isinstance(value, bool) and _fits(value)
    }


def _fits(value: float) -> bool:
    """Whether a number is one that Python can make a float of."""
    try:
        float(value)
    except OverflowError:
        return False
    return True


def validation_loss(values: Mapping[str, float]) -> float | None:
    """Return the loss among the numbers of an evaluation, in nats where it was a perplexity; NaN stays what it is.

    Where there are only parts of it (YOLO: box, class and object loss), it is their sum.
    """
    for name, is_exponential in _LOSSES_BY_NAME:
        value = values.get(name)
        if value is not None:
            if is_exponential:
                return math.log(value) if 0.0 < value < math.inf else value
            return value
    parts = [value for name, value in values.items() if name.endswith("_loss") and name in PARTS]
    return sum(parts) if parts else None


#: The parts of a loss that Ultralytics logs for its validation (box, classes, objects, distribution focal, masks, key
#: points): one of them alone says nothing about the model.
PARTS = frozenset(
    f"{part}_loss" for part in ("box", "cls", "dfl", "giou", "kobj", "l1", "obj", "om", "pose", "rle", "seg", "sem")
)


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of values around a smooth curve, from their third differences.

    These are free of level, slope and bend; of independent noise with variance v they have 20 v.
    """
    recent = values[-_NOISE_POINTS:]
    thirds = sorted(
        [abs(d - 3.0 * c + 3.0 * b - a) for a, b, c, d in zip(recent, recent[1:], recent[2:], recent[3:], strict=False)]
    )
    if not thirds:
        return math.inf
    # Of few differences the middle is no good guess, and their mean is larger as a rule; still it may be far too small.
    sigma = MAD_TO_SIGMA * middle(thirds) if len(thirds) >= 5 else MEAN_TO_SIGMA * sum(thirds) / len(thirds)
    return max(sigma / math.sqrt(20.0) * (1.0 + _FEW / len(thirds)), _LEAST_NOISE)


def trend(values: Sequence[float]) -> float:
    """Return the score of a trend: above 0 where values rise; beyond 1.28 by chance once in ten times."""
    stride = -(-len(values) // _TREND_POINTS)
    # The newest value stays in.
    return mann_kendall(values[::-1][::stride][::-1] if stride > 1 else values)


@dataclass(frozen=True, slots=True)
class Rise:
    """How far a curve is above its lowest point.

    ``best`` is the index of that, ``size`` the middle of the last values (at most 5) minus it, and ``errors`` the
    same, against the middle of the best and its neighbours, in standard errors.
    """

    best: int
    size: float
    errors: float
    sigma: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Rise:
        """Look at a curve of at least one value."""
        best = min(range(len(values)), key=values.__getitem__)
        after = len(values) - 1 - best
        sigma = noise(values)
        if after == 0:
            return cls(best, 0.0, 0.0, sigma)
        # A single bad evaluation must not count, so it is the middle of three at least, the best one if need be.
        recent = min(max(after, 3), 5)
        now = middle(sorted(values[-recent:]))
        around = values[max(0, best - 1) : best + 2]
        error = MEDIAN_ERROR * sigma * math.sqrt(1.0 / recent + 1.0 / len(around))
        errors = (now - middle(sorted(around))) / error if error > 0.0 else 0.0
        return cls(best, now - values[best], max(-_MOST, min(errors, _MOST)), sigma)


def at_least(value: float, steps: Sequence[float]) -> float:
    """Return the largest of rising steps that a value reaches, for sentences that must not change all the time."""
    return max((step for step in steps if step <= value), default=steps[0])


def about(number: float) -> str:
    """Say a number in one digit, rounded down: 1, 2 or 5 times a power of ten."""
    if number < 1.0:
        return "0"
    power = 10.0 ** math.floor(math.log10(number))
    return f"{at_least(number / power, (1.0, 2.0, 5.0)) * power:.0f}"


class SplitDetector(ABC):
    """What the detectors of evaluations share: a verdict for each split, of which the worst is shown."""

    def __init__(self) -> None:
        self._evaluations = Evaluations()
        self.observe = self._evaluations.observe
        self._verdicts: dict[str, Verdict] = {}

    @abstractmethod
    def _judge(self, split: str, points: list[Point]) -> Verdict | None:
        """Return the verdict on a split by its points, of which there is at least one."""

    def observe_all(self, steps: Steps) -> None:
        """Take the next steps."""
        self._evaluations.observe_all(steps)

    def observe_event(self, event: Event) -> None:
        """Judge the splits anew that have an evaluation or lost one."""
        for name in self._evaluations.changed(event):
            self._renew(name, self._evaluations.splits.get(name, []))

    def _renew(self, split: str, points: list[Point]) -> None:
        verdict = self._judge(split, points) if points else None
        if verdict is None:
            self._verdicts.pop(split, None)
        else:
            self._verdicts[split] = verdict

    def verdict(self) -> Verdict | None:
        """Return the verdict of the split with the highest ratio."""
        return max(self._verdicts.values(), key=lambda verdict: verdict.ratio, default=None)
