"""Straggler: one rank of a run works longer than the others in each step, and they wait for it.

In synchronous training all ranks take the same time for a step.  What tells them apart is how long each waits in
collective operations: the one that waits least is the one that is waited for.  So the work of a rank is its time of
training without communication, and its score is the middle of the others' work over its own.  A score below 0.9 is a
warning, below 0.75 critical (NVIDIA's resiliency extension: 0.75), when it is the same rank in five windows on end:
lengths of sequences and pauses of garbage collectors hit another rank each time.

Only ranks that tell their communication are compared; that is DDP, where all have the same part.  Where work is uneven
by design (stages of a pipeline, experts), ranks of one part should be compared, and nobody tells which those are.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainvitals.detect.base import Category, Severity, Verdict
from trainvitals.detect.shares import NO_TRAINING
from trainvitals.detect.window import middle

SIGNAL = "straggler"
CATEGORY: Category = "resource"
NEEDS = "two ranks or more of a run on this node that tell their phase communication, for ten minutes"

WARNING, CRITICAL = 0.9, 0.75
#: Two minutes hold a step on which DDP measures, as a rule; five of them are the ten minutes of the published advice.
WINDOW_SECONDS, WINDOWS = 120.0, 5


class Straggler:
    """Compares the ranks of one run on this node."""

    def __init__(self) -> None:
        self._before: dict[int, dict[str, float]] = {}
        self._opened = 0.0
        #: Windows on end in which a rank was slow; scores of the last one; what is shown: score, and whether it waits.
        self._slow: dict[int, int] = {}
        self._scores: dict[int, float] = {}
        self._shown: dict[int, tuple[float, bool]] = {}

    def observe(self, time: float, ranks: Mapping[int, Mapping[str, float]]) -> None:
        """Take the seconds in each phase, since its start, of each rank that lives; at each poll."""
        told = {rank: dict(phases) for rank, phases in ranks.items() if phases.get("communication", 0.0) > 0.0}
        if told.keys() != self._before.keys() or not 0.0 <= time - self._opened < 10.0 * WINDOW_SECONDS:
            self._open(time, told)
            self._slow, self._scores, self._shown = {}, {}, {}
            return
        if time - self._opened < WINDOW_SECONDS or len(told) < 2:
            return
        if any(value < self._before[rank].get(name, 0.0) for rank in told for name, value in told[rank].items()):
            # A rank that began anew, or an exporter that did and has not seen what came before: another window.
            self._open(time, told)
            return
        grown = {
            rank: {name: value - self._before[rank].get(name, 0.0) for name, value in phases.items()}
            for rank, phases in told.items()
        }
        if all(phases["communication"] <= 0.0 for phases in grown.values()):
            return  # Not measured yet: go on with this window.
        self._open(time, told)
        self._judge(grown)

    def _open(self, time: float, told: dict[int, dict[str, float]]) -> None:
        self._before, self._opened = told, time

    def _judge(self, grown: Mapping[int, Mapping[str, float]]) -> None:
        work = {
            rank: sum(seconds for name, seconds in phases.items() if name not in NO_TRAINING) - phases["communication"]
            for rank, phases in grown.items()
        }
        self._scores = {}
        for rank, own in work.items():
            others = middle(sorted([seconds for other, seconds in work.items() if other != rank]))
            if own <= 0.0 or others < 0.0:
                continue
            score = self._scores[rank] = min(others / own, 1.0)
            if score >= WARNING:
                self._slow.pop(rank, None)
                self._shown.pop(rank, None)
                continue
            self._slow[rank] = self._slow.get(rank, 0) + 1
            waits_for_data = grown[rank].get("data", 0.0) > 0.5 * (own - others)
            shown = self._shown.get(rank)
            if shown is None or (score < CRITICAL) != (shown[0] < CRITICAL):
                self._shown[rank] = (score, waits_for_data)

    def verdicts(self) -> dict[int, Verdict]:
        """Return the verdict on each rank: the ratio is its lack (1 - score) over 0.1."""
        found = {}
        for rank, score in self._scores.items():
            ratio = (1.0 - score) / (1.0 - WARNING)
            if self._slow.get(rank, 0) < WINDOWS:
                found[rank] = Verdict(ratio=min(ratio, 0.99), statistics={"score": score})
                continue
            shown, waits_for_data = self._shown[rank]
            severity: Severity = "critical" if shown < CRITICAL else "warning"
            what = "most of it waiting for data" if waits_for_data else "computing or in the host"
            found[rank] = Verdict(
                ratio=max(1.0, ratio),
                evidence=f"works {1.0 / max(shown, 0.01) - 1.0:.0%} longer in each step than the others, {what}",
                statistics={"score": score},
                severity=severity,
                action="Look at the disk and the loader of its node."
                if waits_for_data
                else "Look at clocks, throttling, temperature and other processes of its device and node against those "
                "of the others; drain the node if it comes again.",
            )
        return found
