"""Odd steps that runs of this node share, at once or one after the other: with one order of the data, it is the data.

Runs that ended are remembered, the newest of them, as long as the exporter lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainvitals.collect.rank import Rank
from trainvitals.detect import Verdict, recurring
from trainvitals.detect.recurring import Odd, RecurringOutlier

#: So many runs are remembered: a table of each takes some 100 kB at most.
_MOST_RUNS = 64


class OddSteps:
    """The odd steps of each run, and in which other run they were odd too."""

    def __init__(self) -> None:
        self._runs: dict[str, Odd] = {}
        #: By run: how many outliers it had when it was compared, and what was found: the steps and the other run.
        self._found: dict[str, tuple[int, tuple[list[int], str] | None]] = {}

    def update(self, ranks: Iterable[Rank]) -> None:
        """Take over what the ranks that are known now have; one that has nothing new costs a look at two numbers."""
        changed = False
        for rank in ranks:
            detector, run = _detector(rank), rank.identity.run
            if detector is None or not detector.outliers:
                continue
            known = self._runs.get(run)
            if known is not None and (len(known.steps) >= len(detector.outliers)):
                continue
            self._runs.pop(run, None)
            self._runs[run] = Odd(dict(detector.outliers), detector.points)
            changed = True
        while len(self._runs) > _MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        if changed:
            self._found = {run: (len(own.steps), self._compare(run, own)) for run, own in self._runs.items()}

    def _compare(self, run: str, own: Odd) -> tuple[list[int], str] | None:
        """Return the steps that are odd in another run too, and which run that is: the one that shares the most."""
        others = len(self._runs) - 1
        pairs = [(recurring.shared(own, other, others), name) for name, other in self._runs.items() if name != run]
        steps, name = max(pairs, key=lambda pair: len(pair[0]), default=([], ""))
        return (steps, name) if steps else None

    def verdict(self, rank: Rank, own: Verdict | None) -> Verdict | None:
        """Return the verdict on the outliers of a rank: its own where it has one, else what another run shares."""
        _, found = self._found.get(rank.identity.run, (0, None))
        detector = _detector(rank)
        if found is None or detector is None or (own is not None and own.active):
            return own
        steps, name = found
        return Verdict(
            ratio=1.0,
            since_step=steps[0],
            evidence=recurring.in_words(steps, name),
            statistics={} if own is None else own.statistics,
            counts=_counts(detector, steps),
            severity="info",
            action=recurring.ACTION,
            confidence=0.9,
        )


def _detector(rank: Rank) -> RecurringOutlier | None:
    return next((one for one in rank.detectors if isinstance(one, RecurringOutlier)), None)


def _counts(detector: RecurringOutlier, steps: Sequence[int]) -> tuple[int, ...]:
    """Return the counts of steps of this attempt: by them their files and samples are known."""
    counts = detector.counts
    return tuple(counts[step] for step in steps if step in counts)[: recurring.NAMED]
