"""What happens in runs, for the journal: compares each with what it was at the last look, and reads no file for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainvitals.collect.rank import Rank
from trainvitals.collect.runs import Finding, Runs
from trainvitals.collect.source import Source
from trainvitals.collect.told import entry_of, key_of
from trainvitals.detect.changes import Change
from trainvitals.detect.gauges import TRAINING_PHASES
from trainvitals.journal import Attempt, Entry, Run
from trainvitals.telemetry import Event

#: Seconds between two writings of how far a run is.
PACE = 60.0
#: Events of one source that are taken at a poll; what a training tells beyond is counted only.
MOST_EVENTS = 500
#: Two changes that look alike are one, read again, when their times are so near: where lines of a log have no times.
_NEAR = 3600.0
#: Runs that are remembered, those that are gone included.
_MOST_RUNS = 1024
#: What must be known of a run before a restart of the exporter.
RECALLED = ("change", "restart", "finding", "over")
_FAILED = frozenset({"failed", "died"})


class Pen(Protocol):
    """Who writes down what was seen."""

    def entry(self, entry: Entry, key: str = "") -> None:
        """Take an entry, and what it is known by."""

    def run(self, run: Run) -> None:
        """Take how far a run is."""

    def attempt(self, attempt: Attempt, key: str) -> None:
        """Take how far a process is, and what it is known by."""


@dataclass
class _Seen:
    """What is known of a run: its state, phase, changes and findings at the last look."""

    state: str = ""
    phase: str = ""
    written: float = 0.0
    counted: int = -1
    #: When each change was, by what it is.
    changes: dict[Hashable, float] = field(default_factory=dict)
    #: Findings that are on, with the step that they begin at.
    active: dict[str, int | None] = field(default_factory=dict)


@dataclass
class _Process:
    """What is known of one source: its first and last step, its status, and when it was written."""

    first: int | None = None
    last: int | None = None
    status: str = ""
    written: float = 0.0


class RunsWatch:
    """Gives what is new to a ``pen``; ``left_out`` counts events that were too many for a poll."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self.left_out = 0
        self._runs: dict[str, _Seen] = {}
        self._processes: dict[Hashable, _Process] = {}

    def recall(self, entries: Iterable[Entry]) -> None:
        """Take what was told of runs, of the kinds RECALLED, before the exporter was restarted; oldest first."""
        for entry in entries:
            seen = self._runs.setdefault(entry.run, _Seen())
            if entry.kind in {"change", "restart"}:
                seen.changes[_key(entry.details.get("kind"), entry.step, entry.details.get("differences"))] = entry.time
            elif entry.kind == "finding":
                seen.active[str(entry.details.get("signal"))] = entry.step
            else:
                seen.active.pop(str(entry.details.get("signal")), None)

    def observe(
        self,
        sources: Sequence[Source],
        runs: Runs,
        by_run: Mapping[str, Sequence[Rank]],
        findings: Mapping[str, Sequence[Finding]],
        now: float,
    ) -> None:
        """Take what a poll found; a source whose name belongs to somebody else is left out."""
        present = set()
        for source in sources:
            if runs.follows(source):
                present.add(source.incarnation)
                self._process(source, now)
                self._events(source, now)
        self._processes = {key: known for key, known in self._processes.items() if key in present}
        for run, ranks in by_run.items():
            seen = self._runs.setdefault(run, _Seen())
            lead = min(ranks, key=lambda rank: (not rank.up, rank.identity.rank))
            self._changes(run, seen, lead, now)
            self._findings(run, seen, lead, findings.get(run, ()), now)
            self._run(run, seen, lead, ranks, now)
        # One that comes again must not be told again.
        for run in [run for run in self._runs if run not in by_run][: max(0, len(self._runs) - _MOST_RUNS)]:
            del self._runs[run]

    def _events(self, source: Source, now: float) -> None:
        first = source.mark.event - len(source.events)
        for place, event in enumerate(source.events):
            if place >= MOST_EVENTS:
                self.left_out += len(source.events) - place
                break
            self._event(source, event, first + place, now)

    def _event(self, source: Source, event: Event, number: int, now: float) -> None:
        entry = entry_of(event, source, now)
        if entry is not None:
            self._pen.entry(entry, key_of(event, source, number))

    def _process(self, source: Source, now: float) -> None:
        known = self._processes.setdefault(source.incarnation, _Process())
        if len(source.steps):
            known.first = source.steps[0].step if known.first is None else known.first
            known.last = source.steps[-1].step
        status, attempt = source.status, source.identity.attempt
        if status == known.status and (not source.alive or now - known.written < PACE):
            return
        known.status, known.written = status, now
        row = Attempt(
            run=source.run,
            node="",
            rank=source.identity.rank,
            attempt=attempt,
            began=source.started,
            seen=source.last_activity,
            ended=None if source.alive else source.last_activity,
            state=status,
            first_step=known.first,
            last_step=known.last,
            steps=int(source.counters.get("steps", 0)),
            phases=dict(source.phase_seconds(now)),
        )
        self._pen.attempt(row, f"{source.incarnation}\0{attempt}")

    def _run(self, run: str, seen: _Seen, lead: Rank, ranks: Sequence[Rank], now: float) -> None:
        state = next((rank.state for rank in ranks if rank.state in _FAILED), lead.state)
        phase = "train" if lead.phase in {*TRAINING_PHASES, "data"} else lead.phase
        if lead.up and phase != seen.phase:
            seen.phase = phase
            step = None if lead.last_step is None else lead.last_step.step
            self._pen.entry(Entry(kind="phase", run=run, time=now, rank=lead.identity.rank, step=step, text=phase))
        if state == seen.state and (not lead.up or now - seen.written < PACE):
            return
        seen.state, seen.written = state, now
        row = Run(
            run=run,
            node="",
            began=min(rank.started for rank in ranks),
            seen=max(rank.heartbeat for rank in ranks),
            state=state,
            step=max((rank.last_step.step for rank in ranks if rank.last_step is not None), default=None),
            target=lead.target_steps,
            framework=lead.identity.framework,
            world_size=lead.identity.world_size,
        )
        self._pen.run(row)

    def _changes(self, run: str, seen: _Seen, lead: Rank, now: float) -> None:
        watch = lead.changes.watch
        counted = sum(watch.counts.values())
        if counted == seen.counted:
            return
        seen.counted = counted
        for change in watch.recent:
            key = _key(change.kind, change.since, change.differences)
            before = seen.changes.get(key)
            seen.changes[key] = change.time
            if before is None or abs(change.time - before) > _NEAR:
                self._pen.entry(_changed(run, change, now))

    def _findings(self, run: str, seen: _Seen, lead: Rank, findings: Sequence[Finding], now: float) -> None:
        active: dict[str, int | None] = {}
        for finding in findings:
            verdict, signal = finding.verdict, finding.signal
            if not verdict.active:
                continue
            active[signal] = verdict.since_step
            if signal in seen.active and seen.active[signal] == verdict.since_step:
                continue
            since = verdict.since_step
            moment = None if since is None else lead.changes.watch.time_of(since)
            details = {"signal": signal, "category": finding.category, "severity": verdict.severity, "seen": now}
            self._pen.entry(
                Entry(
                    kind="finding",
                    run=run,
                    time=now if moment is None else min(moment, now),
                    rank=finding.ranks[0] if finding.ranks else None,
                    step=since,
                    text=f"{signal.replace('_', ' ')}: {finding.evidence}",
                    details={**details, "location": finding.location},
                )
            )
        step = None if lead.last_step is None else lead.last_step.step
        for signal in seen.active.keys() - active.keys():
            text, details = f"{signal.replace('_', ' ')} is over", {"signal": signal}
            self._pen.entry(Entry(kind="over", run=run, time=now, step=step, text=text, details=details))
        seen.active = active


def _key(kind: object, since: int | None, differences: object) -> Hashable:
    pairs = [tuple(map(str, one)) for one in differences] if isinstance(differences, (list, tuple)) else []
    return (kind, -1 if since is None else since, tuple(pairs))


def _changed(run: str, change: Change, now: float) -> Entry:
    return Entry(
        kind="restart" if change.kind == "attempt" else "change",
        run=run,
        time=change.time if change.time > 0.0 else now,
        step=change.since if change.since >= 0 else None,
        text=str(change),
        details={"kind": change.kind, "differences": [list(one) for one in change.differences[:32]]},
    )
