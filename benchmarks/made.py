"""Training logs that are made up: healthy runs of many kinds, and the same runs with a fault written into them.

A kind is a way in which public logs look: how many lines, how far apart, how loud, with which evaluations, schedule and
form.  Its healthy run and its faulty twin have the same seed, so that they are the same up to the fault.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

#: The spike of BLOOM-176B at step 31214: loss over the level before, then an exponential way back; 28 steps in all.
BLOOM = (1.01, 1.18, 1.02, 1.07, 2.32, 1.59, 1.46, 1.28, *(1.0 + 0.28 * math.exp(-i / 7.0) for i in range(1, 21)))
#: A line of a log: its numbers by name.
Values = dict[str, float]


@dataclass
class Log:
    """A made-up log: what it says of the training, and of evaluations, by step; ``onset`` is the step of the fault."""

    kind: str
    form: str
    fault: str
    train: list[tuple[int, Values]]
    evaluations: list[tuple[int, Values]]
    total: int
    onset: int | None = None


@dataclass(frozen=True, kw_only=True)
class Kind:
    """``points`` and ``stride``: how many lines a log has, and how many steps are between two (a range each).

    ``start``, ``end``: of the loss.  ``sigma``: its noise, as a share.  ``noise``: see NOISES.  ``warm``: the
    share of the run over which the learning rate rises.  ``evaluations``: how many, 0 for none, -1 for one each point.
    ``gap``: the validation loss over the training loss; ``eval_sigma``: its noise.
    """

    name: str
    forms: tuple[str, ...]
    points: tuple[int, int]
    stride: tuple[int, int]
    start: tuple[float, float]
    end: tuple[float, float]
    sigma: tuple[float, float]
    noise: tuple[str, ...] = ("gauss",)
    schedule: tuple[str, ...] = ("cosine", "linear", "constant")
    warm: float = 0.05
    evaluations: tuple[int, int] = (0, 0)
    gap: tuple[float, float] = (1.0, 1.2)
    eval_sigma: tuple[float, float] = (0.003, 0.01)
    metric: tuple[str, ...] = ()
    first_step: int = 0
    shape: str = "power"
    faults: tuple[str, ...] = ()


_LM = ("gauss", "skew", "heavy", "correlated")
_EVALS = ("overfit", "metric", "val_nan")
KINDS: tuple[Kind, ...] = (
    Kind(
        name="language model, every step", forms=("modded", "csv", "jsonl"), points=(1500, 4000), stride=(1, 1),
        start=(10.5, 11.2), end=(3.0, 3.8), sigma=(0.005, 0.03), noise=_LM, evaluations=(8, 20), gap=(0.97, 1.03),
        faults=("nan", "spike", "divergence", "drift", "stuck", "slow", "collapse"),
    ),
    Kind(
        name="language model, every 10 to 100", forms=("megatron", "nanogpt", "jsonl", "torchtitan"),
        points=(220, 700), stride=(10, 100), start=(10.5, 11.2), end=(2.8, 4.0), sigma=(0.005, 0.02), noise=_LM,
        evaluations=(6, 20), gap=(0.97, 1.05), schedule=("cosine", "linear", "constant", "restarts", "wsd"),
        faults=("nan", "spike", "divergence", "stuck", "slow"),
    ),
    Kind(
        name="fine-tune, Hugging Face", forms=("trainer_state", "llamafactory", "hf_lines"), points=(30, 400),
        stride=(5, 50), start=(1.2, 2.6), end=(0.5, 1.1), sigma=(0.03, 0.12), noise=("gauss", "skew", "sawtooth"),
        evaluations=(5, 20), gap=(1.0, 1.3), metric=("accuracy", "f1", ""), faults=("nan", "divergence", *_EVALS),
    ),
    Kind(
        name="Keras, an epoch a line", forms=("keras",), points=(12, 120), stride=(1, 1), start=(0.9, 2.3),
        end=(0.15, 0.7), sigma=(0.003, 0.03), evaluations=(-1, -1), gap=(1.0, 1.4), eval_sigma=(0.005, 0.05),
        metric=("accuracy",), schedule=("constant",), faults=("nan", "divergence", "stuck", *_EVALS),
    ),
    Kind(
        name="YOLO results.csv", forms=("ultralytics",), points=(15, 300), stride=(1, 1), start=(3.0, 5.0),
        end=(1.2, 2.2), sigma=(0.003, 0.01), evaluations=(-1, -1), gap=(1.05, 1.3), eval_sigma=(0.005, 0.03),
        metric=("mAP",), faults=("nan", "divergence", "overfit", "metric"),
    ),
    Kind(
        name="OpenMMLab", forms=("mmcv",), points=(150, 1500), stride=(50, 50), start=(1.2, 2.5), end=(0.35, 0.7),
        sigma=(0.02, 0.08), noise=("gauss", "skew"), schedule=("steps",), warm=0.02, metric=("bbox_mAP",),
        evaluations=(6, 24), gap=(math.nan, math.nan), faults=("nan", "spike", "divergence", "stuck", "slow"),
    ),
    Kind(
        name="PaddleOCR", forms=("paddle",), points=(100, 800), stride=(10, 10), start=(8.0, 40.0), end=(0.5, 3.0),
        sigma=(0.05, 0.15), noise=("skew",), evaluations=(5, 20), gap=(math.nan, math.nan), metric=("acc",),
        faults=("nan", "divergence"),
    ),
    Kind(
        name="fairseq", forms=("fairseq",), points=(100, 600), stride=(100, 100), start=(12.0, 14.0), end=(4.0, 5.5),
        sigma=(0.005, 0.02), evaluations=(6, 30), gap=(0.9, 1.0), metric=("bleu",),
        faults=("nan", "divergence", "overfit"),
    ),
    Kind(
        name="Lightning", forms=("lightning",), points=(60, 500), stride=(50, 50), start=(2.3, 8.0), end=(0.4, 4.0),
        sigma=(0.02, 0.08), noise=("gauss", "skew", "sawtooth"), evaluations=(5, 30), gap=(1.0, 1.3),
        schedule=("constant",), metric=("acc", ""), faults=("nan", "divergence", "stuck", *_EVALS),
    ),
    Kind(
        name="per cent, plain CSV", forms=("csv_percent",), points=(15, 200), stride=(1, 1), start=(2.0, 6.9),
        end=(0.5, 1.8), sigma=(0.003, 0.02), evaluations=(-1, -1), gap=(0.8, 1.3), eval_sigma=(0.005, 0.03),
        metric=("top1",), schedule=("steps", "cosine"), faults=("nan", "divergence", "overfit", "metric"),
    ),
    Kind(
        name="speech, WER falls", forms=("trainer_state",), points=(60, 300), stride=(25, 100), start=(3.0, 8.0),
        end=(0.2, 0.6), sigma=(0.05, 0.15), noise=("skew",), evaluations=(8, 25), gap=(1.0, 1.4), metric=("wer",),
        faults=("nan", "divergence", *_EVALS),
    ),
    Kind(
        name="preferences (DPO)", forms=("trainer_state", "hf_lines"), points=(30, 200), stride=(5, 10),
        start=(0.6931, 0.6931), end=(0.3, 0.6), sigma=(0.01, 0.08), shape="slow", warm=0.1, evaluations=(0, 8),
        gap=(1.0, 1.1), metric=("rewards/accuracies",), faults=("nan", "divergence"),
    ),
    Kind(
        name="rewards (GRPO)", forms=("trainer_state", "hf_lines"), points=(60, 400), stride=(1, 5), start=(0.0, 0.0),
        end=(0.0, 0.02), sigma=(0.01, 0.05), shape="reward", noise=("gauss", "heavy"), faults=("nan",),
    ),
    Kind(
        name="diffusion, flat and loud", forms=("csv", "jsonl", "hf_lines"), points=(150, 1500), stride=(10, 100),
        start=(0.3, 1.0), end=(0.02, 0.12), sigma=(0.15, 0.4), noise=("skew",), shape="sudden",
        evaluations=(0, 10), gap=(math.nan, math.nan), metric=("fid",), schedule=("constant",),
        faults=("nan", "divergence"),
    ),
    Kind(
        name="resumed, late in the run", forms=("megatron", "jsonl", "nanogpt"), points=(100, 500), stride=(10, 50),
        start=(2.6, 3.2), end=(2.3, 2.6), sigma=(0.005, 0.03), noise=_LM, shape="late", first_step=50_000,
        # As it falls by next to nothing, a gap that grew would be overfitting.
        evaluations=(0, 8), gap=(0.99, 1.01), schedule=("cosine", "constant"), warm=0.0, faults=("nan", "divergence"),
    ),
    Kind(
        name="a few lines", forms=("trainer_state", "llamafactory", "keras", "jsonl"), points=(5, 14), stride=(1, 10),
        start=(1.0, 8.0), end=(0.5, 4.0), sigma=(0.01, 0.08), evaluations=(0, 3), metric=("accuracy",), faults=("nan",),
    ),
    Kind(
        name="batch size in stages", forms=("megatron",), points=(300, 900), stride=(10, 50), start=(10.5, 11.0),
        end=(2.6, 3.4), sigma=(0.01, 0.03), shape="stages", noise=_LM, evaluations=(4, 12), gap=(0.98, 1.04),
        faults=("nan", "divergence"),
    ),
    Kind(
        name="rolled back once", forms=("jsonl", "megatron"), points=(250, 700), stride=(1, 20), start=(9.0, 11.0),
        end=(3.0, 4.0), sigma=(0.01, 0.03), noise=_LM, shape="back", faults=("nan", "divergence"),
    ),
    Kind(
        name="gentle fine-tune", forms=("trainer_state", "llamafactory", "hf_lines"), points=(25, 150), stride=(10, 50),
        start=(1.1, 2.2), end=(0.86, 0.93), sigma=(0.01, 0.06), noise=("gauss", "skew"), shape="gentle",
        evaluations=(0, 10), gap=(0.98, 1.05), faults=("nan", "divergence"),
    ),
    Kind(
        name="two classes, slow", forms=("keras", "csv"), points=(30, 250), stride=(1, 1), start=(0.7, 0.78),
        end=(0.45, 0.6), sigma=(0.002, 0.01), shape="even", evaluations=(-1, -1), gap=(0.99, 1.05),
        eval_sigma=(0.003, 0.02), metric=("accuracy",), schedule=("constant",), faults=("nan", "stuck"),
    ),
    Kind(
        name="running mean of an epoch", forms=("csv", "jsonl", "paddle"), points=(200, 1500), stride=(1, 50),
        start=(2.0, 8.0), end=(0.5, 2.5), sigma=(0.05, 0.2), noise=("running",), schedule=("constant", "cosine"),
        faults=("nan", "divergence"),
    ),
    Kind(
        name="two kinds of batches", forms=("csv", "jsonl", "hf_lines"), points=(250, 2000), stride=(1, 10),
        start=(6.0, 11.0), end=(2.0, 3.5), sigma=(0.05, 0.15), noise=("two",), faults=("nan", "divergence"),
    ),
    Kind(
        name="Keras, wild validation", forms=("keras",), points=(15, 100), stride=(1, 1), start=(1.5, 2.3),
        end=(0.2, 0.6), sigma=(0.005, 0.02), evaluations=(-1, -1), gap=(1.0, 1.5), eval_sigma=(0.1, 0.35),
        metric=("accuracy",), schedule=("constant",), faults=("nan",),
    ),
    Kind(
        name="rewards (PPO), loss grows", forms=("jsonl", "csv"), points=(60, 600), stride=(1, 20), start=(0.05, 0.3),
        end=(0.5, 3.0), sigma=(0.1, 0.4), noise=("skew",), shape="grows", schedule=("constant",), faults=("nan",),
    ),
    Kind(
        name="loss that rises by design", forms=("csv", "jsonl"), points=(100, 1000), stride=(1, 50), start=(1.0, 3.0),
        end=(1.03, 1.15), sigma=(0.01, 0.05), noise=("gauss", "skew"), shape="design", schedule=("constant",),
        faults=("nan", "divergence"),
    ),
    Kind(
        name="wild begin, no warm-up", forms=("modded", "csv"), points=(400, 2000), stride=(1, 10), start=(6.9, 11.0),
        end=(2.5, 3.8), sigma=(0.01, 0.03), noise=_LM, shape="bump", warm=0.0, evaluations=(6, 15), gap=(0.97, 1.03),
        faults=("nan", "divergence"),
    ),
)  # fmt: skip


@dataclass
class _Dice:
    """What the seed decides; the same for the healthy run and for its twin."""

    kind: Kind
    seed: int
    numbers: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = random.Random(f"{self.kind.name} {self.seed}")

    def between(self, bounds: tuple[float, float]) -> float:
        low, high = bounds
        return low if low == high or math.isnan(low) else self.numbers.uniform(low, high)

    def whole(self, bounds: tuple[int, int]) -> int:
        return round(math.exp(self.between((math.log(bounds[0]), math.log(bounds[1]))))) if bounds[0] > 0 else (
            self.numbers.randint(*bounds)
        )  # fmt: skip


def make(kind: Kind, seed: int, fault: str = "healthy") -> Log:
    """Make a run of a kind; the seed decides all that the kind leaves open."""
    dice = _Dice(kind, seed)
    count, stride = dice.whole(kind.points), dice.whole(kind.stride)
    form, schedule = dice.numbers.choice(kind.forms), dice.numbers.choice(kind.schedule)
    start, end, sigma = dice.between(kind.start), dice.between(kind.end), dice.between(kind.sigma)
    if kind.shape == "power":
        end = min(end, 0.7 * start)
    bend = NOISES[dice.numbers.choice(kind.noise)]
    noises = bend([dice.numbers.gauss(0.0, 1.0) for _ in range(count)], dice.numbers)
    levels = [LEVELS[kind.shape](n / count, start, end) for n in range(count)]
    onset = _onset(fault, count, dice)
    rates = [_rate(schedule, kind.warm, n / count) for n in range(count)]
    steps = [
        kind.first_step + (n + (form not in {"keras", "ultralytics", "csv_percent"})) * stride for n in range(count)
    ]
    train: list[tuple[int, Values]] = []
    pace = math.exp(dice.between((-3.0, 0.5)))
    for n in range(count):
        scale = sigma if kind.shape != "reward" else 1.0
        loss = levels[n] * (1.0 + scale * noises[n]) if kind.shape != "reward" else levels[n] + sigma * noises[n]
        if kind.shape != "reward":
            loss = max(loss, 0.2 * levels[n])
        values = {"loss": loss, "lr": 3e-4 * rates[n], "grad_norm": 0.8 * math.exp(0.2 * dice.numbers.gauss(0.0, 1.0))}
        values["seconds"] = pace * math.exp(0.05 * dice.numbers.gauss(0.0, 1.0))
        values["epoch"] = (n + 1) / count * 3.0
        if kind.shape == "reward":
            values["reward"] = 0.2 + 0.6 * (1.0 - math.exp(-3.0 * n / count)) + 0.05 * noises[n]
            values["kl"] = 0.02 * n / count
        if kind.shape == "grows":
            values["reward"] = 0.1 + 0.8 * n / count
        if kind.shape == "stages":
            values["batch"] = float(32 * 2 ** min(3, 4 * n // count))
        train.append((steps[n], values))
    log = Log(kind.name, form, fault, train, [], steps[-1] if steps else 0)
    log.evaluations = _evaluate(log, levels, dice)
    if fault != "healthy":
        FAULTS[fault](log, onset, dice.numbers, start)
        log.onset = train[onset][0]
    if kind.shape == "back" and count > 50:
        # Once, it goes on from an older checkpoint.
        at, by = count // 3, dice.numbers.randint(10, 30)
        again = [(step, {**values, "loss": values["loss"] * (1.0 + 0.003 * dice.numbers.gauss(0.0, 1.0))})
                 for step, values in log.train[at - by : at]]  # fmt: skip
        log.train[at:at] = again
    return log


def _onset(fault: str, count: int, dice: _Dice) -> int:
    """Return the index of the first bad point."""
    share = dice.numbers.uniform(0.4, 0.75)
    if fault == "stuck":
        return 0
    if fault in {"spike", "drift"}:
        return max(int(share * count), min(count - 60, 720))
    return int(share * count)


def _sigmoid(share: float, start: float, end: float) -> float:
    return end + (start - end) * (1.0 + math.exp(-3.6)) / (1.0 + math.exp(8.0 * (share - 0.45)))


def _power(share: float, start: float, end: float) -> float:
    least = math.pow(51.0, -0.7)
    return end + (start - end) * (math.pow(1.0 + share / 0.02, -0.7) - least) / (1.0 - least)


def _bump(share: float, start: float, end: float) -> float:
    up = 1.0 + 0.8 * math.sin(math.pi * share / 0.01) if share < 0.01 else 1.0
    return up * _power(share, start, end)


def _design(share: float, start: float, end: float) -> float:
    """It falls, and then the weight of one of its terms goes up."""
    fallen = start * (0.4 + 0.6 * math.exp(-share / 0.05))
    return fallen * (1.0 + (end - 1.0) * min(1.0, max(0.0, share - 0.3) / 0.5))


#: The level of the loss at a share of the run, from ``start`` and ``end`` of its kind, by shape.
LEVELS: Mapping[str, Callable[[float, float, float], float]] = {
    "power": _power,
    "stages": _power,
    "back": _power,
    "bump": _bump,
    # Nothing much happens at first.
    "slow": _sigmoid,
    "late": lambda share, start, end: start + (end - start) * share,
    "grows": lambda share, start, end: start + (end - start) * share,
    "even": lambda share, start, end: start + (end - start) * share,
    # The end is a share of the start.
    "gentle": lambda share, start, end: start * (1.0 - (1.0 - end) * float(share**0.7)),
    "reward": lambda share, _, end: end * share,
    "design": _design,
    "sudden": lambda share, start, end: end + (start - end) * math.exp(-share / 0.01),
}
#: The learning rate at a share of what is behind the warm-up, over its peak.
RATES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "cosine": lambda rest: 0.1 + 0.45 * (1.0 + math.cos(math.pi * rest)),
    "linear": lambda rest: max(1.0 - rest, 1e-3),
    "steps": lambda rest: 1.0 if rest < 0.67 else 0.1 if rest < 0.92 else 0.01,
    "restarts": lambda rest: 0.05 + 0.475 * (1.0 + math.cos(math.pi * ((rest * 3.0) % 1.0))),
    "wsd": lambda rest: 1.0 if rest < 0.8 else max(5.0 * (1.0 - rest), 1e-3),
}


def _rate(schedule: str, warm: float, share: float) -> float:
    return max(share / warm, 1e-3) if share < warm else RATES[schedule]((share - warm) / (1.0 - warm))


def _heavy(normal: list[float], numbers: random.Random) -> list[float]:
    """Student's t with 4 degrees of freedom."""
    return [value / math.sqrt(numbers.gammavariate(2.0, 0.5)) / math.sqrt(2.0) for value in normal]


def _correlated(normal: list[float], _: random.Random) -> list[float]:
    found, last = [], 0.0
    for value in normal:
        last = 0.7 * last + math.sqrt(1.0 - 0.49) * value
        found.append(last)
    return found


def _running(normal: list[float], numbers: random.Random) -> list[float]:
    """The mean since the epoch began, as progress bars show it."""
    period = max(10, len(normal) // numbers.randint(4, 15))
    sums = [sum(normal[n - n % period : n + 1]) / (n % period + 1) for n in range(len(normal))]
    return [value + 0.3 * (0.5 - (n % period) / period) for n, value in enumerate(sums)]


def _sawtooth(normal: list[float], numbers: random.Random) -> list[float]:
    """It falls within an epoch, and jumps back a little at its end."""
    period = max(4, len(normal) // numbers.randint(3, 8))
    return [0.7 * value + 1.5 * (0.5 - (n % period) / period) for n, value in enumerate(normal)]


#: Noise with a mean near 0 and a deviation near 1, from normal noise.
NOISES: Mapping[str, Callable[[list[float], random.Random], list[float]]] = {
    "gauss": lambda normal, _: normal,
    "skew": lambda normal, _: [(math.exp(0.6 * value) - math.exp(0.18)) / 0.79 for value in normal],
    "heavy": _heavy,
    "correlated": _correlated,
    "running": _running,
    "sawtooth": _sawtooth,
    # Two kinds of batches.
    "two": lambda normal, numbers: [0.3 * value + (1.5 if numbers.random() < 0.35 else -0.8) for value in normal],
}


def _as_it_is(good: float) -> float:
    return good


#: How a metric is told that is not a share, or falls where others rise.
SCALES: Mapping[str, Callable[[float], float]] = {
    "wer": lambda good: 1.0 - good,
    "fid": lambda good: 150.0 * (1.02 - good),
    "bleu": lambda good: 35.0 * good,
    "top1": lambda good: 100.0 * good,
}


def _evaluate(log: Log, levels: list[float], dice: _Dice) -> list[tuple[int, Values]]:
    kind = dice.kind
    few, many = kind.evaluations
    count = len(log.train) if few < 0 else dice.numbers.randint(few, many) if many else 0
    if not count or len(levels) < count:
        return []
    gap, sigma = dice.between(kind.gap), dice.between(kind.eval_sigma)
    metric = dice.numbers.choice(kind.metric) if kind.metric else ""
    ceiling, noise = dice.numbers.uniform(0.55, 0.93), dice.numbers.uniform(0.003, 0.012)
    bottom, first = min(levels), max(levels[0], 1e-9)
    found = []
    for number in range(count):
        at = min(len(levels) - 1, (number + 1) * len(levels) // count - 1)
        share = (first - levels[at]) / max(first - bottom, 1e-9)
        values: Values = {}
        if not math.isnan(gap):
            values["loss"] = levels[at] * (1.0 + (gap - 1.0) * share) * (1.0 + sigma * dice.numbers.gauss(0.0, 1.0))
        if metric:
            good = max(0.001, ceiling * max(share, 0.0) ** 1.5 + noise * dice.numbers.gauss(0.0, 1.0))
            values[metric] = SCALES.get(metric, _as_it_is)(good)
        found.append((log.train[at][0], values))
    return found


def _after(log: Log, onset: int) -> list[tuple[int, Values]]:
    return [(step, values) for step, values in log.evaluations if step > log.train[onset][0]]


def _nan(log: Log, onset: int, _: random.Random, __: float) -> None:
    for _step, values in log.train[onset:]:
        values["loss"] = values["grad_norm"] = math.nan
    for _step, values in _after(log, onset):
        if "loss" in values:
            values["loss"] = math.nan


def _collapse(log: Log, onset: int, _: random.Random, __: float) -> None:
    for _step, values in log.train[onset:]:
        values["loss"], values["grad_norm"] = 0.0, math.nan


def _spike(log: Log, onset: int, numbers: random.Random, _: float) -> None:
    height = numbers.uniform(0.8, 2.0)
    for factor, (_step, values) in zip(BLOOM, log.train[onset:], strict=False):
        values["loss"] *= 1.0 + height * (factor - 1.0)


def _divergence(log: Log, onset: int, numbers: random.Random, start: float) -> None:
    """The loss goes up within a few points and stays above, louder than before."""
    level = log.train[onset - 1][1]["loss"]
    goal = max(level * numbers.uniform(2.5, 5.0), min(start, 6.0 * level))
    for n, (_step, values) in enumerate(log.train[onset:]):
        risen = 1.0 - math.exp(-(n + 1) / 4.0)
        values["loss"] = (level + (goal - level) * risen) * (1.0 + 0.05 * numbers.gauss(0.0, 1.0))
    for _step, values in _after(log, onset):
        if "loss" in values:
            values["loss"] = goal * (1.0 + 0.03 * numbers.gauss(0.0, 1.0))


def _drift(log: Log, onset: int, _: random.Random, __: float) -> None:
    for n, (_step, values) in enumerate(log.train[onset:]):
        values["loss"] *= 1.0 + 0.3 * min(1.0, n / 400.0)


def _stuck(log: Log, _: int, numbers: random.Random, start: float) -> None:
    """The optimizer does nothing: the loss of the beginning, with the noise of batches."""
    for _step, values in log.train:
        values["loss"] = start * (1.0 + 0.01 * numbers.gauss(0.0, 1.0))
    for _step, values in log.evaluations:
        if "loss" in values:
            values["loss"] = start * (1.0 + 0.004 * numbers.gauss(0.0, 1.0))
        for name in values:
            if name != "loss":
                values[name] = 0.1 + 0.003 * numbers.gauss(0.0, 1.0)


def _overfit(log: Log, onset: int, numbers: random.Random, _: float) -> None:
    """The validation loss turns up and ends 15 to 80 % above its best; the training loss falls the faster for it."""
    late = _after(log, onset)
    rise = numbers.uniform(0.15, 0.8)
    best = next((values["loss"] for step, values in reversed(log.evaluations) if step <= log.train[onset][0]), None)
    best = late[0][1]["loss"] if best is None else best
    for n, (_step, values) in enumerate(late):
        values["loss"] = best * (1.0 + rise * (n + 1) / len(late)) * (1.0 + 0.005 * numbers.gauss(0.0, 1.0))
    for n, (_step, values) in enumerate(log.train[onset:]):
        values["loss"] *= 1.0 - 0.5 * n / (len(log.train) - onset)


def _metric(log: Log, onset: int, _: random.Random, __: float) -> None:
    """The metric is the same in each evaluation from there on: the evaluation does not see the weights any more."""
    late = _after(log, onset // 2)
    for _step, values in late[1:]:
        for name in values:
            if name != "loss":
                values[name] = late[0][1][name]


def _val_nan(log: Log, onset: int, _: random.Random, __: float) -> None:
    for _step, values in _after(log, onset):
        if "loss" in values:
            values["loss"] = math.nan


def _slow(log: Log, onset: int, numbers: random.Random, _: float) -> None:
    """Steps take 3 to 6 times as long, and as unevenly as on a machine that others share."""
    factor = numbers.uniform(3.0, 6.0)
    for _step, values in log.train[onset:]:
        values["seconds"] *= factor * math.exp(0.2 * numbers.gauss(0.0, 1.0))


FAULTS: Mapping[str, Callable[[Log, int, random.Random, float], None]] = {
    "nan": _nan,
    "spike": _spike,
    "divergence": _divergence,
    "drift": _drift,
    "stuck": _stuck,
    "collapse": _collapse,
    "overfit": _overfit,
    "metric": _metric,
    "val_nan": _val_nan,
    "slow": _slow,
}
