"""Forgetting: benchmarks of what the model knew before are worse than at their first evaluation.

A benchmark is a split of its own beside validation and test (``evaluate(step, "mmlu", acc=0.61)``), a metric of the
validation whose name has one of the known benchmarks in it ("eval_mmlu_acc"), or the loss of one of several
validation sets of the Hugging Face Trainer ("eval_general_loss", which has its "eval_general_runtime").

One has declined when both of its last two evaluations are worse than the first one by 2 standard errors.  The errors
are what is logged beside the metric ("acc_stderr", or "n" for shares: the root of p (1 - p) / n), else the noise of
the curve, and where that cannot be known a decline is 5 % of the first value.  A finding takes two such benchmarks, or
one that declined by 4 errors and 5 %: of twenty benchmarks one is worse by chance.  Up to 2 % of decline on average is
an info, above a warning, above 5 % critical.

Where the training loss did not fall, nothing was learnt in exchange: that is a divergence and not judged here.
A changed prompt or chat template looks the same, so that is what to look at first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trainvitals.detect.base import Category, Severity, Verdict
from trainvitals.detect.evaluations import PARTS, Evaluations, Point, at_least, noise
from trainvitals.detect.metric_names import BENCHMARKS, direction, is_whole, plain, split_name
from trainvitals.telemetry import Event, Steps

ERRORS = 2.0
ALONE_ERRORS = 4.0
SHARE = 0.05
#: Without a known error: so many evaluations tell the noise of the curve.
NOISE_POINTS = 6
SEVERITIES: tuple[tuple[float, Severity], ...] = ((0.0, "info"), (0.02, "warning"), (0.05, "critical"))
_MAIN = frozenset({"", "dev", "eval", "test", "train", "valid", "validation"})
_SPOKEN = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
_MAX_SKILLS = 256
#: Of the evaluations behind the first: these tell the noise, and since when.
_NEWEST = 32


@dataclass(frozen=True, slots=True)
class _Decline:
    """How much worse a benchmark is in both of its last evaluations: in thresholds, and as a share of the first."""

    name: str
    strength: float
    share: float
    first: float
    since: int


class Forgetting:
    """Compares each benchmark with its own first value."""

    signal = "forgetting"
    category: Category = "parameter"
    needs = "3 evaluations of a benchmark beside validation and test"

    def __init__(self) -> None:
        self._evaluations = Evaluations()
        self.observe = self._evaluations.observe
        self._verdict: Verdict | None = None

    def observe_all(self, steps: Steps) -> None:
        """Take the next steps."""
        self._evaluations.observe_all(steps)

    def observe_event(self, event: Event) -> None:
        """Judge all benchmarks anew, as few of them are evaluated at once."""
        if self._evaluations.changed(event):
            self._verdict = _judge(self._evaluations.splits)

    def verdict(self) -> Verdict | None:
        """Return the verdict after the last evaluation; None as long as no benchmark has three.

        Statistics: ``benchmarks`` (that can be judged), ``declined`` (of them), ``decline`` (their mean, a share).
        """
        return self._verdict


def _judge(splits: Mapping[str, list[Point]]) -> Verdict | None:
    skills = _skills(splits)
    declines = [decline for key, values in skills.items() if (decline := _decline(*key, values)) is not None]
    if not declines:
        return None
    declines.sort(key=lambda decline: decline.strength, reverse=True)
    worst = declines[0]
    declined = sorted([decline for decline in declines if decline.strength >= 1.0], key=lambda decline: decline.name)
    mean = sum(decline.share for decline in declined) / len(declined) if declined else 0.0
    statistics = {"benchmarks": float(len(declines)), "declined": float(len(declined)), "decline": mean}
    second = declines[1].strength if len(declines) > 1 else 0.0
    alone = min(worst.strength * ERRORS / ALONE_ERRORS, worst.share / SHARE)
    ratio = max(0.0, second, alone)
    if ratio < 1.0:
        return Verdict(ratio=ratio, statistics=statistics)
    if _learnt_nothing(splits):
        gated = "the training loss did not fall: nothing was learnt in exchange"
        return Verdict(ratio=0.99, statistics=statistics, gated=gated)
    since = min(decline.since for decline in declined)
    return Verdict(
        ratio=ratio,
        since_step=since,
        evidence=_say(since, declined, mean),
        statistics=statistics,
        severity=[name for share, name in SEVERITIES if mean >= share][-1],
        action=(
            "data: see whether the prompt, the chat template or the evaluation changed; else mix 1 to 10 % of older"
            " data into the training; parameters: lower the learning rate to a third or a half, train for fewer epochs"
        ),
        confidence=0.8 if len(declined) > 2 else 0.6,
    )


def _say(since: int, declined: list[_Decline], mean: float) -> str:
    names = ", ".join(f"{decline.name} from {decline.first:.4g}" for decline in declined[:3])
    more = f" and {len(declined) - 3} more" if len(declined) > 3 else ""
    share = at_least(100.0 * mean, _SPOKEN)
    return f"since step {since}: worse than at first by {share:g} % or more on average: {names}{more}"


def _skills(splits: Mapping[str, list[Point]]) -> dict[tuple[str, str], list[tuple[Point, float, float | None]]]:
    """Return, for each benchmark, its evaluations with a badness (up is worse) and its standard error."""
    found: dict[tuple[str, str], list[tuple[Point, float, float | None]]] = {}
    for split, points in splits.items():
        for name in _names(split, points[-2:]):
            way = direction(name)
            key = (split, name)
            for point in (*points[:1], *points[1:][-_NEWEST:]):
                value = point.values.get(name, math.nan)
                if len(found) < _MAX_SKILLS and math.isfinite(value) and (way != 0 or value > 0.0):
                    badness = math.log(value) if way == 0 else -way * value
                    found.setdefault(key, []).append((point, badness, _error(point.values, name, value, way)))
    return found


def _names(split: str, points: list[Point]) -> list[str]:
    """Return the names of the benchmarks in these evaluations: the newest may not be complete yet."""
    names = list(dict.fromkeys(name for point in points for name in point.values))
    known = {plain(name) for name in names}
    return [name for name in names if _is_benchmark(split, name, known)]


def _is_benchmark(split: str, name: str, names: set[str]) -> bool:
    if split not in _MAIN:
        if direction(name) != 0:
            return is_whole(name)
        # A loss, or what is the same as one.
        return name in {"loss", "nll", "bpb"}
    before, way = split_name(name)
    if way != 0:
        parts = before.split("_")
        return any(
            "_".join(parts[start : start + size]) in BENCHMARKS for size in (1, 2) for start in range(len(parts))
        )
    known = plain(name)
    if not known.endswith("_loss") or known in PARTS:
        return False
    return f"{known.removesuffix('_loss')}_runtime" in names


def _error(values: Mapping[str, float], name: str, value: float, way: int) -> float | None:
    wanted = plain(name).removesuffix("_none")
    for other, error in values.items():
        known = plain(other).removesuffix("_none")
        if known in {f"{wanted}_stderr", f"{wanted}_se"} and 0.0 < error < math.inf:
            return error if way != 0 else error / value
    count = next((values[key] for key in ("n", "samples", "num_samples", "count") if key in values), 0.0)
    if way == 0 or not 1.0 <= count < math.inf or not 0.0 <= value <= 1.0:
        return None
    # Of 0 or all right out of n, the next best guess (Agresti and Coull, 1998).
    share = (value * count + 2.0) / (count + 4.0)
    return math.sqrt(share * (1.0 - share) / count)


def _decline(split: str, name: str, values: list[tuple[Point, float, float | None]]) -> _Decline | None:
    if len(values) < 3:
        return None
    _, first, first_error = values[0]
    is_log = direction(name) == 0
    sigma = noise([badness for _, badness, _ in values]) if len(values) >= NOISE_POINTS else None
    strengths, shares = [], []
    for _, badness, error in values[1:]:
        drop = badness - first
        share = drop if is_log else drop / max(abs(first), 1e-9)
        if first_error is not None and error is not None:
            strength = drop / (ERRORS * math.hypot(first_error, error))
        elif sigma is not None:
            # Noise between neighbours is not all that there is, so it must be a decline that matters as well.
            strength = min(drop / (ERRORS * math.sqrt(2.0) * sigma), share / SHARE * ALONE_ERRORS / ERRORS)
        else:
            strength = min(share / SHARE, 1.0)
        strengths.append(strength)
        shares.append(share)
    begin = len(strengths) - 1
    while begin > 0 and strengths[begin - 1] >= 1.0:
        begin -= 1
    return _Decline(
        name=name if split in _MAIN else f"{split} {name}",
        strength=min(strengths[-2:]),
        share=min(shares[-2:]),
        first=math.exp(first) if is_log else abs(first),
        since=values[begin + 1][0].step,
    )


def _learnt_nothing(splits: Mapping[str, list[Point]]) -> bool:
    """Whether the training loss is known and did not fall between the first and the last evaluation with one."""
    points = [point for several in splits.values() for point in several if point.train is not None]
    if len(points) < 2:
        return False
    first, last = min(points, key=_step), max(points, key=_step)
    return last.train is not None and first.train is not None and last.train >= first.train


def _step(point: Point) -> int:
    return point.step
