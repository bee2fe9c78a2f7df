"""Healthy runs that look ill to who does not know their kind, as small logs: nobody should be warned of one.

Each function makes the rows of one log from a source of random numbers; the kinds of made.py are what logs look like as
a rule, these are what they look like now and then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from random import Random

Row = dict[str, float]
Maker = Callable[[Random], list[Row]]


def _fall(share: float, start: float, end: float) -> float:
    least = math.pow(51.0, -0.7)
    return end + (start - end) * (math.pow(1.0 + share / 0.02, -0.7) - least) / (1.0 - least)


def _loud(numbers: Random, sigma: float) -> float:
    return 1.0 + sigma * numbers.gauss(0.0, 1.0)


def _cosine(phase: float) -> float:
    return 0.05 + 0.475 * (1.0 + math.cos(math.pi * phase))


def two_against_each_other(numbers: Random) -> list[Row]:
    """A generator and a discriminator, and their sum: one gains what the other loses."""
    count, swing, rows = numbers.randint(200, 1500), 0.0, []
    for n in range(count):
        swing = 0.97 * swing + 0.25 * numbers.gauss(0.0, 1.0)
        mine, theirs = math.exp(0.3 * swing) * (1.0 + 2.0 * min(1.0, 3.0 * n / count)), 0.4 * math.exp(-0.5 * swing)
        rows.append({"step": n + 1, "loss": mine + theirs, "loss_G": mine, "loss_D": theirs})
    return rows


def contrast(numbers: Random) -> list[Row]:
    """It begins at the logarithm of the number of pairs, and that of half of the run is doubled."""
    count, pairs, rows = numbers.randint(100, 1500), numbers.choice([256, 1024, 4096]), []
    for n in range(count):
        size = pairs * (2 if 2 * n > count else 1)
        level = math.log(size) * (0.25 + 0.75 * math.exp(-n / (0.15 * count)))
        rows.append({"step": 10 * (n + 1), "loss": level * _loud(numbers, 0.03)})
    return rows


def value_function(numbers: Random) -> list[Row]:
    """Its loss grows with the returns that it tells."""
    count, rows = numbers.randint(100, 1200), []
    for n in range(count):
        loss = (0.02 + 3.0 * (n / count) ** 1.5) * math.exp(0.5 * numbers.gauss(0.0, 1.0))
        rows.append({"step": n + 1, "loss": loss, "episode_return": 20.0 + 180.0 * n / count, "epsilon": 0.1})
    return rows


def policy(numbers: Random) -> list[Row]:
    """Around 0, with both signs, while KL and reward go up."""
    count, rows = numbers.randint(60, 600), []
    for n in range(count):
        loss = 0.04 * (n / count) ** 2 + 0.02 * numbers.gauss(0.0, 1.0)
        rows.append({"step": n + 1, "loss": loss, "kl": 0.01 + 3.0 * (n / count) ** 2, "reward": 0.2 + 0.7 * n / count})
    return rows


def long_warm_up(numbers: Random) -> list[Row]:
    """A fifth of the run, in which next to nothing is learnt."""
    count, rows = numbers.randint(100, 800), []
    warm = int(count * numbers.uniform(0.1, 0.3))
    for n in range(count):
        learnt = n**2.5 / (2.5 * warm**1.5) if n < warm else warm / 2.5 + n - warm
        loss = _fall(learnt / count, 2.5, 1.2) * _loud(numbers, 0.015)
        rows.append({"step": 10 * (n + 1), "loss": loss, "lr": 1e-3 * min(1.0, (n + 1) / warm)})
    return rows


def cycles(numbers: Random) -> list[Row]:
    """A learning rate that begins again and again, in a log that does not tell it: the loss goes up by 5 to 13 %."""
    count, times, rows = numbers.randint(150, 2500), numbers.randint(3, 8), []
    swing = numbers.uniform(0.05, 0.13)
    for n in range(count):
        more = swing * _cosine((times * n / count) % 1.0) ** 2
        rows.append({"step": n + 1, "loss": _fall(n / count, 7.0, 2.0) * (1.0 + more) * _loud(numbers, 0.02)})
    return rows


def second_stage(numbers: Random) -> list[Row]:
    """Other data, with a warm-up of its own: the loss begins higher, and falls again."""
    count, more, rows = numbers.randint(200, 2000), numbers.uniform(0.1, 0.6), []
    half = count // 2
    for n in range(count):
        m = n - half
        rate = 1.0 - 0.95 * n / half if m < 0 else 0.5 * min(1.0, (m + 1) / (0.03 * count))
        base = _fall(min(n, half) / count, 3.0, 1.2) * (1.0 + (more * math.exp(-m / (0.1 * count)) if m >= 0 else 0.0))
        rows.append({"step": n + 1, "loss": base * _loud(numbers, 0.03), "lr": 1e-4 * rate})
    return rows


def longer_sequences(numbers: Random) -> list[Row]:
    """Its log tells the length."""
    count, rows = numbers.randint(300, 2000), []
    for n in range(count):
        long = n > 0.6 * count
        loss = _fall(n / count, 10.0, 2.6) * (1.12 if long else 1.0) * _loud(numbers, 0.02)
        rows.append({"step": n + 1, "loss": loss, "seq_len": 4096 if long else 1024})
    return rows


def memory(numbers: Random) -> list[Row]:
    """It knows its data by heart: near 0, and a hundred times that now and then."""
    count, sigma, rows = numbers.randint(100, 1500), numbers.uniform(0.3, 0.9), []
    for n in range(count):
        odd = numbers.choice([10.0, 30.0, 100.0]) if numbers.random() < 0.01 else 1.0
        level = 2.0 * math.exp(-n / (0.06 * count)) + 2e-4
        rows.append({"step": n + 1, "loss": level * math.exp(sigma * numbers.gauss(0.0, 1.0)) * odd})
    return rows


def densities(numbers: Random) -> list[Row]:
    """The likelihood of a density: it falls through 0."""
    count, end, rows = numbers.randint(60, 1500), numbers.uniform(-50.0, -1.0), []
    for n in range(count):
        level = end + (5.0 - end) * math.exp(-n / (0.15 * count))
        rows.append({"step": n + 1, "loss": level + 0.05 * abs(end) * numbers.gauss(0.0, 1.0)})
    return rows


def few_digits(numbers: Random) -> list[Row]:
    """One or two decimals."""
    count, digits = numbers.randint(100, 2000), numbers.choice([1, 2, 2])
    start, end = numbers.choice([(0.69, 0.45), (2.3, 0.3), (1.5, 1.1), (0.3, 0.02)])
    losses = [_fall(n / count, start, end) * _loud(numbers, 0.05) for n in range(count)]
    return [{"step": n, "loss": round(loss, digits)} for n, loss in enumerate(losses, 1)]


def few_lines(numbers: Random) -> list[Row]:
    """3 to 15 of any shape: nobody can know."""
    count, level, rows = numbers.randint(3, 15), numbers.uniform(0.1, 8.0), []
    shape = numbers.choice(["flat", "up", "loud", "jump"])
    for n in range(count):
        factor = {"flat": 1.0, "up": 1.0 + 0.5 * n / count, "jump": 2.6 if n > 0.6 * count else 1.0}.get(shape)
        factor = math.exp(0.5 * numbers.gauss(0.0, 1.0)) if factor is None else factor
        rows.append({"step": 10 * (n + 1), "loss": level * factor * _loud(numbers, 0.02)})
    return rows


def sums(numbers: Random) -> list[Row]:
    """The validation loss is a sum over a batch, or the training loss is one over accumulated batches."""
    count, factor, rows = numbers.randint(20, 120), numbers.choice([1 / 16, 1 / 4, 2.5, 8.0, 64.0]), []
    for n in range(count):
        level = 0.3 + 1.5 * math.exp(-n / (0.2 * count))
        rows.append(
            {"epoch": n, "loss": level * _loud(numbers, 0.01), "val_loss": factor * level * _loud(numbers, 0.02)}
        )
    return rows


def kinds_of_batches(numbers: Random) -> list[Row]:
    """Three tasks, in any order: one is four times as easy as the next."""
    count, rows = numbers.randint(200, 2000), []
    for n in range(count):
        level = numbers.choice([0.25, 1.0, 2.2])
        rows.append({"step": n + 1, "loss": level * _fall(n / count, 4.0, 1.5) * _loud(numbers, 0.05)})
    return rows


def weighted_anew(numbers: Random) -> list[Row]:
    """The weight of a term goes up from 0: the sum rises by design, by 5 to 15 %."""
    count, more, rows = numbers.randint(60, 1500), numbers.uniform(0.05, 0.15), []
    for n in range(count):
        base = 80.0 + 120.0 * math.exp(-n / (0.03 * count))
        term = 80.0 * more * min(1.0, n / (0.4 * count))
        rows.append({"step": 10 * (n + 1), "loss": (base + term) * _loud(numbers, 0.02)})
    return rows


def twin_networks(numbers: Random) -> list[Row]:
    """It falls at once, and creeps up when there is more to tell apart."""
    count, more, rows = numbers.randint(60, 1500), numbers.uniform(0.1, 0.8), []
    for n in range(count):
        level = 0.15 + 1.8 * math.exp(-n / (0.02 * count)) + 0.15 * more * (1.0 - math.exp(-n / (0.3 * count)))
        rows.append({"step": 10 * (n + 1), "loss": level * _loud(numbers, 0.05)})
    return rows


def empty_parts(numbers: Random) -> list[Row]:
    """A part of the loss, and a metric, that are NaN where there is nothing to count."""
    count, rows = numbers.randint(100, 600), []
    for n in range(count):
        part = math.nan if numbers.random() < 0.4 else 0.1
        loss = _fall(n / count, 3.0, 1.0) * _loud(numbers, 0.03)
        rows.append({"step": 10 * (n + 1), "loss": loss, "aux_loss": part})
    return rows


def few_samples(numbers: Random) -> list[Row]:
    """A validation set of some ten: its accuracy takes as many values, and keeps one for long."""
    count, samples, rows = numbers.randint(12, 80), numbers.randint(8, 60), []
    top, right = numbers.uniform(0.6, 0.9), 0
    for n in range(count):
        good = top * (1.0 - math.exp(-(n + 1) / (0.1 * count))) * samples
        if abs(good - right) >= 1.0 or numbers.random() < 0.1:
            right = max(0, min(samples, round(good) + numbers.choice([-1, 0, 0, 1])))
        loss, own = 0.05 + 1.2 * math.exp(-n / (0.2 * count)), 0.4 + 0.8 * math.exp(-n / (0.15 * count))
        rows.append({"epoch": n, "loss": loss, "val_loss": own * _loud(numbers, 0.01), "val_accuracy": right / samples})
    return rows


QUIRKS: Mapping[str, Maker] = {
    make.__name__: make
    for make in (
        two_against_each_other, contrast, value_function, policy, long_warm_up, cycles, second_stage, longer_sequences,
        memory, densities, few_digits, few_lines, sums, kinds_of_batches, weighted_anew, twin_networks, empty_parts,
        few_samples,
    )
}  # fmt: skip


def write(name: str, seed: int) -> tuple[str, str]:
    """Return the name of the file of such a log, and what stands in it: a table, or JSON lines."""
    numbers = Random(f"{name} {seed}")
    rows = QUIRKS[name](numbers)
    if numbers.random() < 0.5:
        return "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows)
    names = list(rows[0])
    lines = [",".join(names), *(",".join(f"{row[column]:.6g}" for column in names) for row in rows)]
    return "log.csv", "\n".join(lines) + "\n"
