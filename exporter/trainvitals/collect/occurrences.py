"""What happened in a run of late, as the exporter's page lists it: checkpoints, restarts, changes, findings, ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainvitals.collect.base import clean
from trainvitals.collect.rank import Rank
from trainvitals.collect.runs import Finding

#: So many are kept of a run, and so many changes are listed.
KEPT = 30
_CHANGES = 10


@dataclass
class _Known:
    """What was so at the last look at a run."""

    told: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT))
    state: str = "running"
    saved: int = -1
    failures: int = 0
    active: dict[str, int | None] = field(default_factory=dict)


class Occurrences:
    """Compares each run with what it was at the last poll.  A row is what the page gets: see docs/page.md."""

    def __init__(self) -> None:
        self._runs: dict[str, _Known] = {}

    def look(
        self, run: str, state: str, ranks: Sequence[Rank], findings: Sequence[Finding], now: float
    ) -> list[dict[str, Any]]:
        """Return what happened, the newest first.  ``ranks`` are not empty."""
        known = self._runs.setdefault(run, _Known())
        self._checkpoints(known, ranks, now)
        self._findings(known, ranks, findings, now)
        if state != known.state:
            known.state = state
            kind, level = ("started", "") if state == "running" else ("ended", "act" if state in _BAD else "")
            when = now if state == "running" else max(rank.heartbeat for rank in ranks)
            known.told.append(row(when, kind, level=level, state=state))
        # What changes in a run changes on all of its ranks.
        recent = min(ranks, key=lambda rank: (not rank.up, rank.identity.rank)).changes.watch.recent
        changes = [
            row(change.time, "restart" if change.kind == "attempt" else "change", change.since, str(change))
            for change in list(recent)[-_CHANGES:]
        ]
        return sorted([*known.told, *changes], key=lambda one: -float(one["time"]))[:KEPT]

    def forget(self, runs: Mapping[str, object]) -> None:
        """Forget all runs but these."""
        self._runs = {run: known for run, known in self._runs.items() if run in runs}

    def _checkpoints(self, known: _Known, ranks: Sequence[Rank], now: float) -> None:
        saved = [rank.checkpoint for rank in ranks if rank.checkpoint is not None]
        newest = max(saved, key=lambda event: event.time, default=None)
        if newest is not None and newest.step != known.saved:
            # Each rank saves its part.
            known.saved = newest.step
            seconds = newest.fields.get("seconds")
            took = f"{seconds:.3g} s" if isinstance(seconds, (int, float)) else ""
            known.told.append(row(newest.time, "checkpoint", newest.step, took))
        failures = sum(rank.checkpoint_failures for rank in ranks)
        if failures > known.failures:
            known.told.append(row(now, "checkpoint_failed", level="act"))
        known.failures = failures

    def _findings(self, known: _Known, ranks: Sequence[Rank], findings: Sequence[Finding], now: float) -> None:
        active = {}
        for finding in findings:
            if not finding.verdict.active:
                continue
            since = finding.verdict.since_step
            active[finding.signal] = since
            if finding.signal not in known.active or known.active[finding.signal] != since:
                level = "watch" if finding.verdict.severity == "info" else "act"
                when = _time_of(ranks, since, now)
                known.told.append(row(when, "finding", since, finding.evidence, level=level, signal=finding.signal))
        for signal in known.active.keys() - active.keys():
            known.told.append(row(now, "over", signal=signal))
        known.active = active


_BAD = frozenset({"failed", "died"})


def row(time: float, kind: str, step: int | None = None, text: str = "", **more: str) -> dict[str, Any]:
    """Return one row; what is not known is not in it."""
    found: dict[str, Any] = {"time": round(time, 1), "kind": kind}
    if step is not None and step >= 0:
        found["step"] = step
    if text:
        found["text"] = clean(text)
    found.update({name: value for name, value in more.items() if value})
    return found


def _time_of(ranks: Sequence[Rank], step: int | None, now: float) -> float:
    """Return about when a step was, or now where that is not known."""
    for rank in ranks:
        moment = None if step is None else rank.changes.watch.time_of(step)
        if moment is not None:
            return min(moment, now)
    return now
