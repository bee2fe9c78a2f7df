"""Figures about interruptions: mean time to failure, where the time went, how often to save."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from trainvitals.detect.gauges import TRAINING_PHASES
from trainvitals.history.lives import Life
from trainvitals.journal import Entry, Incident

#: Probability of an interval.
CONFIDENCE = 0.95
#: Fewer interruptions or saves carry no advice; the first by the reference's remark that an error of 4 in the mean time
#: to failure is one of 2 in the interval, which 5 failures reach.
LEAST_FAILURES, LEAST_SAVES = 5, 3
#: Advice is worth its words when the interval is off by such a factor, and the change saves such a share of the time.
OFF_BY, LEAST_SAVING = 2.0, 0.005
_YEAR = 365.25 * 86400.0


class Mttf(NamedTuple):
    """Mean time to failure in seconds, with the bounds of its interval; None is unbounded or unknown."""

    failures: int
    seconds: float
    mean: float | None
    low: float | None
    high: float | None


def mttf(failures: int, seconds: float) -> Mttf:
    """Return the mean time to failure of a constant rate, after so many failures in so many seconds of work.

    The interval is the exact one for a time that is given: 2T/chi2(0.975; 2k+2) to 2T/chi2(0.025; 2k).
    """
    if seconds <= 0.0:
        return Mttf(failures, seconds, None, None, None)
    tail = (1.0 - CONFIDENCE) / 2.0
    low = 2.0 * seconds / chi_squared(1.0 - tail, failures + 1)
    high = 2.0 * seconds / chi_squared(tail, failures) if failures else None
    return Mttf(failures, seconds, seconds / failures if failures else None, low, high)


def chi_squared(probability: float, half: int) -> float:
    """Return the quantile of the chi-squared distribution with ``2 * half`` degrees of freedom.

    With an even number of them it is a sum of Poisson: P(X > x) = sum of exp(-x/2) (x/2)^j / j! over j < half.
    """
    low, high = 0.0, 4.0 * half + 40.0
    while _above(high, half) > 1.0 - probability:
        high *= 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if _above(middle, half) > 1.0 - probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _above(x: float, half: int) -> float:
    mean = x / 2.0
    if mean <= 0.0:
        return 1.0
    return math.fsum(math.exp(j * math.log(mean) - mean - math.lgamma(j + 1)) for j in range(half))


#: Where the time of a run goes: name, and the phases that it is made of.  ``repeated`` is taken out of ``productive``;
#: ``other`` is the rest of the time in which a process lived, ``down`` that in which none did.
_PHASES = {
    "productive": TRAINING_PHASES,
    "data": ("data",),
    "checkpoint": ("checkpoint",),
    "evaluation": ("evaluation",),
    "start": ("init",),
}
BUCKETS = ("productive", "repeated", "data", "checkpoint", "evaluation", "start", "other", "down")


def buckets(found: Sequence[Life], incidents: Iterable[Incident]) -> dict[str, float]:
    """Return the seconds of the wall time of a run by what they were spent on; they add up to it.

    Ranks count alike.  A run whose source tells of no phases (a log) is all ``other`` while it lives.
    """
    spent = dict.fromkeys(BUCKETS, 0.0)
    until: float | None = None
    for life in found:
        begin = life.began if until is None else max(life.began, until)
        spent["down"] += 0.0 if until is None else begin - until
        lived = max(0.0, life.ended - begin)
        parts = {name: life.mean(*phases) for name, phases in _PHASES.items()}
        whole = math.fsum(parts.values())
        share = min(1.0, lived / whole) if whole > 0.0 else 0.0
        for name, seconds in parts.items():
            spent[name] += seconds * share
        spent["other"] += lived - whole * share
        until = max(begin, life.ended)
    repeated = min(spent["productive"], math.fsum(one.seconds_lost or 0.0 for one in incidents))
    spent["repeated"], spent["productive"] = repeated, spent["productive"] - repeated
    return spent


class Advice(NamedTuple):
    """How often to save, in seconds: now, better, and the share of the wall time that it saves."""

    cost: float
    present: float
    better: float
    saving: float


def advice(failures: Mttf, saves: Sequence[Entry]) -> Advice | None:
    """Return a better interval between two checkpoints, or None where the data cannot carry it or it is well chosen.

    After Young (1974) and Daly (2006).  It must be better at both ends of the interval of the mean time to failure.
    """
    cost, present = blocking(saves), interval(saves)
    if failures.failures < LEAST_FAILURES or cost is None or present is None or failures.mean is None:
        return None
    bounds = [daly(cost, mean) for mean in (failures.low, failures.high) if mean is not None]
    better = daly(cost, failures.mean)
    if not OFF_BY <= max(present / better, better / present) or not all(
        (bound < present) == (better < present) for bound in bounds
    ):
        return None
    saving = overhead(present, cost, failures.mean) - overhead(better, cost, failures.mean)
    return Advice(cost, present, better, saving) if saving >= LEAST_SAVING else None


def daly(cost: float, mean: float) -> float:
    """Return the interval between checkpoints that loses least, by Daly's estimate of higher order."""
    if cost >= 2.0 * mean:
        return mean
    root = math.sqrt(cost / (2.0 * mean))
    return math.sqrt(2.0 * cost * mean) * (1.0 + root / 3.0 + cost / (2.0 * mean) / 9.0) - cost


def overhead(every: float, cost: float, mean: float) -> float:
    """Return the share of the time that saving, and work done again, take at an interval: cost/t + t/2M."""
    return min(1.0, cost / every + every / (2.0 * mean))


def blocking(saves: Sequence[Entry]) -> float | None:
    """Return the seconds for which a save held up the training, by the slowest rank of each; their median."""
    slowest: dict[int | None, float] = {}
    for entry in saves:
        seconds = entry.details.get("seconds")
        if isinstance(seconds, (int, float)) and 0.0 < seconds < _YEAR:
            slowest[entry.step] = max(float(seconds), slowest.get(entry.step, 0.0))
    return statistics.median(slowest.values()) if len(slowest) >= LEAST_SAVES else None


def interval(saves: Sequence[Entry]) -> float | None:
    """Return the median time between two saves of an attempt."""
    times: dict[int | None, float] = {}
    for entry in saves:
        times.setdefault(entry.step, entry.time)
    steps = [step for step in times if step is not None]
    pauses = [times[b] - times[a] for a, b in pairwise(steps) if b > a and times[b] > times[a]]
    return statistics.median(pauses) if len(pauses) >= LEAST_SAVES - 1 else None


def is_save(entry: Entry) -> bool:
    """Whether an entry is a checkpoint that was saved."""
    return entry.kind == "checkpoint" and entry.details.get("action") == "save" and entry.details.get("ok") is True
