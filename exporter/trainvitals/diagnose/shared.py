"""Odd steps that several runs share: with one order of the data, the same step is the same data.

In five groups of public runs with one order of the data, 98 % of 269 outliers of single steps fell on a step that was
odd in another run of the group too; two runs with different orders shared 2 % of 100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from trainvitals.detect import recurring
from trainvitals.detect.recurring import RecurringOutlier
from trainvitals.diagnose.case import Case
from trainvitals.diagnose.signals import Signal, State

#: Runs beyond which pairs are too many to look at.
_MOST_RUNS = 512


def mark(cases: Sequence[Case], rows: Sequence[Sequence[Signal]]) -> list[list[Signal]]:
    """Return the rows of all runs; where an odd step is odd in another run too, the row about outliers says so."""
    outliers = [_outliers(case) for case in cases[:_MOST_RUNS]]
    shared: list[dict[int, str]] = [{} for _ in cases]
    for (one, mine), (other, theirs) in combinations(enumerate(outliers), 2):
        if mine is None or theirs is None:
            continue
        for step in recurring.shared(mine, theirs, len(outliers) - 1):
            shared[one].setdefault(step, cases[other].name)
            shared[other].setdefault(step, cases[one].name)
    return [
        [_marked(row, found) if row.signal == RecurringOutlier.signal and found else row for row in own]
        for own, found in zip(rows, shared, strict=True)
    ]


def _outliers(case: Case) -> recurring.Odd | None:
    found = next((one for one in case.detectors if isinstance(one, RecurringOutlier) and one.outliers), None)
    return None if found is None else recurring.Odd(found.outliers, found.points)


def _marked(row: Signal, found: Mapping[int, str]) -> Signal:
    if row.is_finding:
        return row
    steps = sorted(found)
    return replace(
        row,
        state=State.watch,
        severity="info",
        since_step=steps[0],
        evidence=recurring.in_words(steps, found[steps[0]]),
        action=recurring.ACTION,
        confidence=0.9,
        gated="",
    )
