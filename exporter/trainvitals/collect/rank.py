"""One rank: what its sources tell, over all of its attempts, judged step by step.

Counters go on when a run is restarted: they are the sum over all sources that the rank had.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from trainvitals.collect.changes import Changes
from trainvitals.collect.curve import LossCurve
from trainvitals.collect.data import RankData
from trainvitals.collect.log_errors import KIND as LOG_ERROR
from trainvitals.collect.log_errors import LogErrors
from trainvitals.collect.source import Mark, Source
from trainvitals.detect import Detector, Verdict, state
from trainvitals.detect.changes import NEAR, in_words
from trainvitals.detect.engine import Panel, in_order, one_by_one
from trainvitals.detect.eta import Eta, Remaining
from trainvitals.detect.shares import PHASES
from trainvitals.detect.stall import Stall
from trainvitals.metrics import PROBED_STATES, STEP_BUCKETS
from trainvitals.telemetry import Event, Identity, Step

log = logging.getLogger(__name__)

#: A rank can report so many splits, results in all of them, and kinds of events; later ones are ignored.
MAX_SPLITS = 16
MAX_RESULTS = 128
MAX_KINDS = 32
#: So many sources of a rank are remembered one by one.
MAX_ATTEMPTS = 64
#: Faults that are named beside a finding.
_MOST_FAULTS = 3
#: Seconds for which a finding is news.
_NEWS = 3600.0


#: What is kept of a rank besides what is of :mod:`trainvitals.detect`.
_CLASSES = (LogErrors,)


#: Says which faults there were within a minute of a time: on the device with this UUID or PCI address, or on any where
#: it is not known.
FaultsNear: TypeAlias = Callable[[float, str, str], list[str]]


@dataclass(frozen=True)
class Kept:
    """What was kept of a rank before a restart: how far each source was judged, and :mod:`trainvitals.detect.state`."""

    marks: dict[Hashable, Mark]
    state: object


@dataclass
class Evaluation:
    """The last results on one split."""

    step: int
    values: dict[str, float]


@dataclass
class _Attempt:
    """What one source said: its counters, its phases, and its last step and values if it was followed."""

    counters: dict[str, float] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    last_step: Step | None = None
    values: dict[str, float] = field(default_factory=dict)
    correction: float = 0.0

    def add(self, other: _Attempt) -> None:
        for mine, theirs in ((self.counters, other.counters), (self.phases, other.phases)):
            for name, value in theirs.items():
                mine[name] = mine.get(name, 0.0) + value

    def correct(self, correction: float) -> None:
        """Move the last step with the wall clock: it would seem an hour old, and the next one an hour long."""
        if self.last_step is not None and correction != self.correction:
            self.last_step = replace(self.last_step, time=self.last_step.time + correction - self.correction)
        self.correction = correction


@dataclass
class Rank:
    """Everything about one rank of one run.  ``last_step`` and ``values`` are those of the source that is shown."""

    identity: Identity
    detectors: list[Detector]
    state: str = "running"
    #: Those that it can be in.
    states: Sequence[str] = PROBED_STATES
    started: float = 0.0
    heartbeat: float = 0.0
    last_step: Step | None = None
    target_steps: int | None = None
    phase: str = "init"
    disabled: bool | None = False
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
    #: When an order was obeyed last (wall time), by who gave it and what it was.
    obeyed: dict[tuple[str, str], float] = field(default_factory=dict)
    data: RankData = field(default_factory=RankData)
    changes: Changes = field(default_factory=Changes)
    log_errors: LogErrors = field(default_factory=LogErrors)
    curve: LossCurve = field(default_factory=LossCurve)
    eta: Eta = field(default_factory=Eta)
    stall: Stall = field(default_factory=Stall)
    owner: int = 0
    #: The process, while it lives and can be seen, and its CLOCK_MONOTONIC time when it made its file.
    pid: int = 0
    started_monotonic: float = 0.0
    #: Things that made no sense and were left out.
    broken: int = 0
    #: When a source of this rank was last read.
    seen: float = 0.0
    #: How far each source was judged, by its incarnation; and a number that rises when anything was.
    marks: dict[Hashable, Mark] = field(default_factory=dict)
    version: int = 0
    _resumed: dict[Hashable, Mark] = field(default_factory=dict)
    _attempts: dict[Hashable, _Attempt] = field(default_factory=dict)
    _earlier: _Attempt = field(default_factory=_Attempt)
    _panel: Panel = field(init=False)
    #: Those that could not go on after a restart: what was judged before it is judged by them alone.
    _behind: Panel = field(init=False)
    _afresh: frozenset[str] = frozenset()
    #: By signal: since when a finding is known, of which step it is, and what came before it.
    _explained: dict[str, tuple[float, int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._panel, self._behind = Panel(self.detectors, self.complain), Panel([], self.complain)

    @property
    def up(self) -> bool:
        """Whether the process lives."""
        return self.state == "running"

    # Over restarts of the exporter ------------------------------------------------------------------------------------

    def _parts(self) -> dict[str, object]:
        return {
            **{detector.signal: detector for detector in self.detectors},
            "eta": self.eta,
            "stall": self.stall,
            "log_errors": self.log_errors,
            "changes": self.changes.watch,
            "segments": self._panel.segments,
        }

    def kept(self) -> tuple[dict[str, object], list[str]]:
        """Return the state of what judges, as JSON knows it, and the names of what has none."""
        return state.save(self._parts(), _CLASSES)

    def resume(self, kept: Kept, make: Callable[[], list[Detector]]) -> list[str]:
        """Go on, before anything was judged, where it was; return the names of what begins afresh.

        ``make`` makes detectors for those that cannot go on.
        """
        failed = state.restore(kept.state, self._parts(), _CLASSES)
        for detector in self.detectors:
            if detector.signal not in failed and not _speaks(detector):
                failed.append(detector.signal)
        fresh = {detector.signal: detector for detector in make() if detector.signal in failed} if failed else {}
        self.detectors = [fresh.get(detector.signal, detector) for detector in self.detectors]
        for name, part in (("eta", Eta), ("stall", Stall), ("log_errors", LogErrors), ("changes", Changes)):
            if name in failed:
                setattr(self, name, part())
        segments = None if "segments" in failed else self._panel.segments
        self._panel = Panel(self.detectors, self.complain, segments)
        self._behind, self._afresh = Panel(list(fresh.values()), self.complain), frozenset(failed)
        self.marks, self._resumed = dict(kept.marks), dict(kept.marks)
        return failed

    # At each poll -----------------------------------------------------------------------------------------------------

    def update(self, sources: Sequence[Source], shown: Source, now: float) -> None:
        """Take over what a poll found in the sources of this rank, oldest first; ``shown`` is the one that counts."""
        for source in sources:
            is_past = not source.alive and source.started <= shown.started
            if source is shown or (is_past and (source.steps or source.events)):
                self._follow(source, now)
        attempt = self._attempts[shown.incarnation]
        self.last_step, self.values = attempt.last_step, attempt.values
        self.identity = replace(shown.identity, run=shown.run)
        self.owner, self.started = shown.owner, shown.started
        self.pid, self.started_monotonic = shown.pid, shown.started_monotonic
        self.heartbeat = shown.last_activity
        self.target_steps = shown.identity.target_steps
        self.state, self.states = shown.status, shown.states
        self.phase = shown.phase
        self.disabled = shown.disabled
        self._count(sources, now)
        if self.phase_seconds and self.up:
            step = self.last_step.step if self.last_step is not None else 0
            self.version += 1
            self._panel.observe_event(Event(now, PHASES, step, dict(self.phase_seconds)))
        self.data.update(shown.data_path, shown.owner, self.counters.get("data_errors"), now)

    def _follow(self, source: Source, now: float) -> None:
        attempt = self._attempts.setdefault(source.incarnation, _Attempt())
        attempt.correct(source.correction)
        known = self._resumed.get(source.incarnation)
        history, steps, events = (0, 0, 0) if known is None else source.judged(known)
        self._mark(source)
        self.curve.take(source.history)
        self.curve.take(source.steps)
        for place, step in enumerate(source.history):
            attempt.last_step = step
            attempt.values.update(step.values)
            self._judge_step(step, step, is_past=place < history)
        taken = told = 0
        for item in one_by_one(in_order(source.steps, source.events, source.places)):
            # Signals are released by the time of the steps.  What was over before the exporter came would be released
            # before anybody saw it: an exporter that was down for a while must not swallow a NaN.
            is_news = source.is_new and 0.0 <= now - item.time < _NEWS
            if isinstance(item, Step):
                self._take_step(attempt, item, source)
                taken += 1
                self._judge_step(item, replace(item, time=now) if is_news else item, is_past=taken <= steps)
            else:
                told += 1
                self._judge_event(item, replace(item, time=now) if is_news else item, is_past=told <= events)
        # A source may change its names at every poll; its table is bounded, what it had in the past is not.
        attempt.values = {name: attempt.values[name] for name in source.names if name in attempt.values}
        for place, event in enumerate(source.events):
            self._take_event(event)
            if event.kind == LOG_ERROR and (place >= events or "log_errors" in self._afresh):
                self.log_errors.take(event)
            self.data.take(event, now)
        try:
            self.changes.follow(source, *((0, 0) if "changes" in self._afresh else (steps, events)))
        except Exception:
            self.complain("changes make no sense")

    def _judge_step(self, step: Step, shown: Step, *, is_past: bool) -> None:
        """Hand on a step; ``shown`` has the time by which signals are released.

        What was judged before the exporter was restarted is only for those that began afresh then.
        """
        (self._behind if is_past else self._panel).observe(shown)
        for name, part in (("eta", self.eta), ("stall", self.stall), ("log_errors", self.log_errors)):
            if not is_past or name in self._afresh:
                part.observe(step)

    def _judge_event(self, event: Event, shown: Event, *, is_past: bool) -> None:
        (self._behind if is_past else self._panel).observe_event(shown)
        if not is_past or "stall" in self._afresh:
            self.stall.observe_event(event)

    def _mark(self, source: Source) -> None:
        """Note how far a source is judged now; what is read again after a restart does not take that back."""
        before, mark = self.marks.get(source.incarnation, Mark(-1, -1)), source.mark
        mark = Mark(max(before.step, mark.step), max(before.event, mark.event))
        if mark != before or source.history:
            self.version += 1
            self.marks.pop(source.incarnation, None)
            self.marks[source.incarnation] = mark
            for old in list(self.marks)[:-MAX_ATTEMPTS]:
                del self.marks[old]

    def _take_step(self, attempt: _Attempt, step: Step, source: Source) -> None:
        before = attempt.last_step
        if before is None or step.count > before.count:
            duration = None if before is None else source.seconds(before, step)
            if before is not None and duration is not None:
                self.buckets[bisect.bisect_left(STEP_BUCKETS, duration)] += step.count - before.count
                self.bucket_sum += duration * (step.count - before.count)
            attempt.last_step = step
        attempt.values.update(step.values)
        # A mark for the detectors, and counted; no curve.
        attempt.values.pop("skipped", None)

    def remaining(self) -> Remaining | None:
        """Return the time that is left from the last step on, while the process lives."""
        return self.eta.remaining(self.target_steps) if self.up else None

    def stalled(self, now: float) -> Verdict | None:
        """Say whether it does steps; None when it has ended or is done, and for a log, whose rhythm is judged."""
        step = None if self.last_step is None else self.last_step.step
        is_done = step is not None and self.target_steps is not None and step >= self.target_steps - 1
        if not self.up or is_done or not self.phase:
            return None
        since = self.started if self.last_step is None else self.last_step.time
        return self.stall.verdict(now, phase=self.phase, since=since, step=step)

    def explain(self, signal: str, verdict: Verdict, faults: FaultsNear, now: float) -> str:
        """Return what came before a finding, in words that stay: changes, and faults within the same minute.

        Faults are told a little later than they come, by others: for so long the words may still change.
        """
        step = verdict.since_step
        if not verdict.active or step is None:
            self._explained.pop(signal, None)
            return ""
        known = self._explained.get(signal)
        if known is not None and known[1] == step and not 0.0 <= now - known[0] < NEAR / 2.0:
            return known[2]
        watch = self.changes.watch
        moment = watch.time_of(step)
        found = []
        if moment is not None:
            errors = [] if signal == LOG_ERROR else watch.errors_near(moment)
            found = [*faults(moment, self.identity.device_uuid, self.identity.pci_bus_id), *errors]
        text = in_words(watch.before(step), found[:_MOST_FAULTS])
        begun = known[0] if known is not None and known[1] == step else now
        self._explained[signal] = (begun, step, text)
        return text

    def complain(self, message: str) -> None:
        """Count something that made no sense; the first of a rank is logged."""
        self.broken += 1
        if self.broken == 1:
            who = self.identity
            log.warning("run %r, rank %d: %s", who.run, who.rank, message, exc_info=True)  # noqa: LOG014  its callers'

    def _take_order(self, event: Event) -> None:
        by, what = event.fields.get("by"), event.fields.get("what")
        if isinstance(by, str) and isinstance(what, str):
            last = max(event.time, self.obeyed.pop((by, what), event.time))
            self.obeyed[by, what] = last
            if len(self.obeyed) > MAX_KINDS:
                del self.obeyed[next(iter(self.obeyed))]

    def _take_event(self, event: Event) -> None:
        if event.kind == "lineage":
            return
        if event.kind in self.kinds or len(self.kinds) < MAX_KINDS:
            self.kinds[event.kind] += 1
        if event.kind == "checkpoint" and event.fields.get("action") == "save":
            if event.fields.get("ok") is True:
                self.checkpoint = event
                self.checkpoints += 1
            elif event.fields.get("error") != "KeyboardInterrupt":
                # Ctrl-C inside a save is what somebody wanted.
                self.checkpoint_failures += 1
        if event.kind == "order" and event.fields.get("state") == "done":
            self._take_order(event)
        values = event.fields.get("values")
        if event.kind == "evaluation" and isinstance(values, dict):
            split = str(event.fields.get("name"))
            others = [evaluation for name, evaluation in self.evaluations.items() if name != split]
            room = MAX_RESULTS - sum(len(evaluation.values) for evaluation in others)
            if len(others) < MAX_SPLITS:
                self.evaluations[split] = Evaluation(event.step, _numbers(values, room))

    def _count(self, sources: Sequence[Source], now: float) -> None:
        for source in sources:
            _count(self._attempts.setdefault(source.incarnation, _Attempt()), source, now)
        present = {source.incarnation for source in sources}
        for incarnation in [key for key in self._attempts if key not in present][:-MAX_ATTEMPTS]:
            self._earlier.add(self._attempts.pop(incarnation))
        total = _Attempt()
        for attempt in (self._earlier, *self._attempts.values()):
            total.add(attempt)
        self.counters, self.phase_seconds = total.counters, total.phases


def _speaks(detector: Detector) -> bool:
    """Whether a detector that was restored can say what it has to say."""
    try:
        detector.verdict()
    except Exception:
        return False
    return True


def _count(attempt: _Attempt, source: Source, now: float) -> None:
    """Take over the counters of a source; one never falls, and a number that makes no sense does not count."""
    for counted, current in ((attempt.counters, source.counters), (attempt.phases, source.phase_seconds(now))):
        for name, value in current.items():
            counted[name] = _growing(counted.get(name, 0.0), value)


def _numbers(values: Mapping[str, object], room: int) -> dict[str, float]:
    """Return the first numbers that a 64-bit float can hold."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, (int, float)) and len(numbers) < room:
            with contextlib.suppress(OverflowError):
                numbers[name] = float(value)
    return numbers


def _growing(before: float, now: float) -> float:
    return max(before, now) if math.isfinite(now) else before
