"""Runs: what is known of each run and rank, kept across attempts, and judged step by step.

Counters go on when a run is restarted: what an ended attempt had counted becomes the base of the next.
"""

from __future__ import annotations

import bisect
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from trainvitals import rankfile
from trainvitals.collect.spool import RankFile
from trainvitals.detect import Detector, Verdict
from trainvitals.metrics import STEP_BUCKETS
from trainvitals.telemetry import Event, Identity, Step

log = logging.getLogger(__name__)

#: A run can report so many names of splits or kinds of events; later ones are ignored and counted.
MAX_SPLITS = 16
MAX_KINDS = 32


@dataclass
class Evaluation:
    """The last results on one split."""

    step: int
    values: dict[str, float]


@dataclass
class Rank:
    """Everything about one rank of one run."""

    identity: Identity
    detectors: list[Detector]
    state: str = "running"
    started: float = 0.0
    heartbeat: float = 0.0
    last_step: Step | None = None
    target_steps: int | None = None
    phase: str = "init"
    disabled: bool = False
    values: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    phase_seconds: dict[str, float] = field(default_factory=dict)
    buckets: list[int] = field(default_factory=lambda: [0] * (len(STEP_BUCKETS) + 1))
    bucket_sum: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    checkpoint: Event | None = None
    checkpoints: int = 0
    checkpoint_failures: int = 0
    _source: tuple[int, int] | None = None
    _base: dict[str, float] = field(default_factory=dict)
    _phase_base: dict[str, float] = field(default_factory=dict)

    @property
    def up(self) -> bool:
        """Whether the process lives."""
        return self.state == "running"

    def update(self, file: RankFile, now: float) -> None:
        """Take over what a poll of a rank file found."""
        if file.reader.inode != self._source:
            self._source = file.reader.inode
            self._base = dict(self.counters)
            self._phase_base = dict(self.phase_seconds)
            self.last_step = None
        self.identity, self.started = file.identity, file.started
        self.heartbeat = file.last_activity
        self.target_steps = file.identity.target_steps
        self.state = _state(file)
        self.disabled = bool(file.state.flags & rankfile.FLAG_DISABLED)
        for step in file.steps:
            self._take_step(step)
        for event in file.events:
            self._take_event(event)
        self._count(file, now)

    def _take_step(self, step: Step) -> None:
        before = self.last_step
        if before is None or step.count > before.count:
            if before is not None and step.count == before.count + 1:
                duration = max(0.0, step.time - before.time)
                self.buckets[bisect.bisect_left(STEP_BUCKETS, duration)] += 1
                self.bucket_sum += duration
            self.last_step = step
            self.heartbeat = max(self.heartbeat, step.time)
        self.values.update(step.values)
        for detector in self.detectors:
            detector.observe(step)

    def _take_event(self, event: Event) -> None:
        if event.kind in self.kinds or len(self.kinds) < MAX_KINDS:
            self.kinds[event.kind] += 1
        if event.kind == "checkpoint" and event.fields.get("action") == "save":
            if event.fields.get("ok") is True:
                self.checkpoint = event
                self.checkpoints += 1
            else:
                self.checkpoint_failures += 1
        values = event.fields.get("values")
        if event.kind == "evaluation" and isinstance(values, dict):
            split = str(event.fields.get("name"))
            if split in self.evaluations or len(self.evaluations) < MAX_SPLITS:
                numbers = {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}
                self.evaluations[split] = Evaluation(event.step, numbers)

    def _count(self, file: RankFile, now: float) -> None:
        state = file.state
        count = max(state.count, self.last_step.count if self.last_step else 0)
        current: dict[str, float] = {
            "steps": count,
            "skipped": state.skipped,
            "nonfinite": state.nonfinite,
            "samples": state.samples,
            "tokens": state.tokens,
            "errors": state.errors,
            "dropped": state.dropped,
        }
        for name, value in current.items():
            self.counters[name] = _growing(self.counters.get(name, 0.0), self._base.get(name, 0.0) + value)
        self.phase = rankfile.PHASES[state.phase] if state.phase < len(rankfile.PHASES) else "other"
        for index, name in enumerate(rankfile.PHASES):
            seconds = state.phase_seconds[index]
            if file.alive and name == self.phase:
                seconds += max(0.0, now - file.wall(state.phase_since))
            if seconds:
                total = self._phase_base.get(name, 0.0) + seconds
                self.phase_seconds[name] = _growing(self.phase_seconds.get(name, 0.0), total)


def _state(file: RankFile) -> str:
    if file.state.flags & rankfile.FLAG_FAILED:
        return "failed"
    if file.state.flags & rankfile.FLAG_FINISHED:
        return "finished"
    return "running" if file.alive else "died"


def _growing(before: float, now: float) -> float:
    """A counter never falls; a hostile or torn number does not count."""
    return max(before, now) if math.isfinite(now) else before


@dataclass(frozen=True)
class Finding:
    """The verdict of one detector on a run: the worst rank's, and all ranks on which the signal is active."""

    signal: str
    category: str
    verdict: Verdict
    ranks: tuple[int, ...]

    @property
    def location(self) -> str:
        """Where, in words: "rank 3" or "ranks 0, 1, 2 and 5 more"."""
        shown = ", ".join(str(rank) for rank in self.ranks[:8])
        more = f" and {len(self.ranks) - 8} more" if len(self.ranks) > 8 else ""
        return f"rank{'s' * (len(self.ranks) > 1)} {shown}{more}"


class Runs:
    """All runs with a rank on this node.  ``detectors`` makes fresh ones for a rank."""

    def __init__(self, detectors: Callable[[], list[Detector]]) -> None:
        self._make_detectors = detectors
        self._ranks: dict[tuple[str, int], Rank] = {}
        self._shown: list[tuple[str, int]] = []
        self.broken = 0

    def update(self, files: Sequence[RankFile], now: float) -> None:
        """Take over one poll of the spool; ``files`` come in the order in which they were started."""
        newest: dict[tuple[str, int], RankFile] = {}
        for file in files:
            key = (file.identity.run, file.identity.rank)
            rank = self._ranks.get(key)
            if rank is None:
                rank = self._ranks[key] = Rank(file.identity, self._make_detectors())
            if key in newest and not file.alive and newest[key].alive:
                continue
            try:
                rank.update(file, now)
            except Exception:
                # A file that checks but makes no sense costs itself.
                log.warning("rank file %s makes no sense", file.reader.path, exc_info=True)
                self.broken += 1
                continue
            newest[key] = file
        self._shown = sorted(key for key, file in newest.items() if not _superseded(file, newest.values()))
        for key in [key for key in self._ranks if key not in newest]:
            del self._ranks[key]

    def ranks(self) -> list[Rank]:
        """Return the ranks to show, by run and number."""
        return [self._ranks[key] for key in self._shown]

    def by_run(self) -> dict[str, list[Rank]]:
        """Return the ranks to show of each run."""
        runs: dict[str, list[Rank]] = {}
        for rank in self.ranks():
            runs.setdefault(rank.identity.run, []).append(rank)
        return runs

    def findings(self, ranks: Iterable[Rank]) -> list[Finding]:
        """Return the verdicts on the ranks of one run, in the order of the table of detectors."""
        verdicts: dict[str, list[tuple[int, Verdict, str]]] = {}
        for rank in ranks:
            for detector in rank.detectors:
                verdict = detector.verdict()
                if verdict is not None:
                    entry = (rank.identity.rank, verdict, detector.category)
                    verdicts.setdefault(detector.signal, []).append(entry)
        findings = []
        for signal, entries in verdicts.items():
            _, worst, category = max(entries, key=lambda entry: entry[1].ratio)
            active = tuple(rank for rank, verdict, _ in entries if verdict.active)
            findings.append(Finding(signal, category, worst, active))
        return findings


def _superseded(file: RankFile, others: Iterable[RankFile]) -> bool:
    """Whether the run went on without this rank: it ended, and another rank of the run started after that."""
    return not file.alive and any(
        other.identity.run == file.identity.run and other.started > file.last_activity for other in others
    )
