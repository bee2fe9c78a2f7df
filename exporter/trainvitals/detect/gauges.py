"""The four gauges of a run, from 0 to 1: what they are made of, written once.

The recording rules (:mod:`trainvitals.generate.records`) say the same in PromQL over all nodes, and the exporter's page
by these functions over its own node.  None: it cannot be said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trainvitals.detect import build

#: In the order in which they are shown.
GAUGES = ("progress", "learning", "efficiency", "health")
#: Efficiency looks back for so many seconds.
WINDOW_SECONDS = 300.0
#: Phases that are training proper: a training that marks no phases spends all its time in "train".
TRAINING_PHASES = ("train", "forward", "backward", "optimizer", "communication", "device")
#: Signals that say how well the run learns.
#: Waits for data are a matter of efficiency, though data is what must change.
LEARNING_SIGNALS = tuple(
    detector.signal for detector in build() if detector.category != "resource" and detector.signal != "data_starvation"
)
#: The noise of a good run moves signals below this share of their threshold.
NOISE = 0.5
#: Below the first a gauge is bad, from the second on it is good.  Progress is neither.
BAD, GOOD = 0.5, 0.8
#: A rank in one of these states is well.
WELL = frozenset({"running", "finished"})


def progress(step: int | None, target: int | None) -> float | None:
    """Return steps done over steps planned."""
    if step is None or not target or target <= 0:
        return None
    return _ratio(step / target)


def learning(ratios: Collection[float]) -> float | None:
    """Return 1 while every learning signal is below the noise, falling to 0 at the threshold."""
    return _ratio((1.0 - max(ratios)) / (1.0 - NOISE)) if ratios else None


def efficiency(training: float, whole: float, utilizations: Iterable[float]) -> float | None:
    """Return the share of seconds in training proper, or the mean utilization of the devices where that is smaller."""
    return _smaller(training / whole if whole > 0.0 else None, _mean(utilizations))


def health(states: Collection[str], expected: int, devices: Iterable[bool]) -> float | None:
    """Return the share of ranks that are well, or of their devices that answer where that is smaller.

    ``states`` are those of the ranks, ``devices`` whether each one's answers, as far as that is known.  Of a log that
    is silent nothing is known.
    """
    if "silent" in states:
        return None
    ranks = sum(state in WELL for state in states) / expected if expected > 0 else None
    return _smaller(ranks, _mean(map(float, devices)))


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def _smaller(one: float | None, other: float | None) -> float | None:
    found = [_ratio(value) for value in (one, other) if value is not None]
    return min(found, default=None)


def _ratio(value: float) -> float:
    return min(max(value, 0.0), 1.0)
