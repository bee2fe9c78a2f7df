"""One run while it is read: the detectors judge it, and what the report shows of it is kept."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from trainvitals.detect import Detector
from trainvitals.detect.changes import NEAR, ChangeWatch
from trainvitals.detect.engine import Outcome, Panel, Record, in_order
from trainvitals.diagnose.curves import Curves
from trainvitals.diagnose.recorded import RecordedRun
from trainvitals.follow.run import FollowedRun
from trainvitals.telemetry import Event, Identity, Step, StepList, Steps, parts_of

#: Errors of a log that are kept, to tell which of them began it.
_ERRORS = 512
#: Where a log tells no times, a step is taken to last so many seconds: detectors hold their signals by time.
_SECONDS = 1.0
#: Changes of a run that are remembered.
_CHANGES = 4096
#: Messages about detectors that failed.
_COMPLAINTS = 16
#: Subjects of a lineage that are kept.
_SUBJECTS = 16


@dataclass
class Case:
    """What is known of one run.  ``build`` makes its detectors."""

    name: str
    build: Callable[[], list[Detector]]
    identity: Identity = field(init=False)
    paths: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    #: Number of steps that the log tells, over all attempts.
    steps: int = 0
    first_step: int | None = None
    last: Step | None = None
    attempts: int = 1
    finished: bool = False
    #: What the rank file says of its process ("running", "finished", "failed", "died"); empty: it is known by logs.
    status: str = ""
    #: Lines and records that made no sense.
    bad: int = 0
    curves: Curves = field(default_factory=Curves)
    kinds: Counter[str] = field(default_factory=Counter)
    #: Errors in the log by their cause, and the first of them.
    causes: Counter[str] = field(default_factory=Counter)
    errors: list[Event] = field(default_factory=list)
    #: What it is made of, by subject, where its program has the probe.
    lineage: dict[str, dict[str, object]] = field(default_factory=dict)
    changes: ChangeWatch = field(default_factory=lambda: ChangeWatch(recent=deque(maxlen=_CHANGES)))
    #: Whether the log tells when its steps were.
    timed: bool = False
    #: What went wrong with our detectors.
    complaints: list[str] = field(default_factory=list)
    _record: Record = field(init=False)

    def __post_init__(self) -> None:
        self.identity = Identity(run=self.name)
        self._record = Record(Panel(self.build(), self._complain))

    def _complain(self, message: str) -> None:
        if len(self.complaints) < _COMPLAINTS:
            self.complaints.append(message[:300])

    def take(self, run: FollowedRun | RecordedRun) -> None:
        """Take over what a poll found."""
        self.identity, self.paths, self.formats = run.identity, run.paths, run.formats
        self.attempts, self.bad = run.attempt + 1, run.bad
        self.finished, self.timed = run.finished is not None, run.timed
        self.status = run.status if isinstance(run, RecordedRun) else ""
        if not run.steps and not run.events:
            return
        steps = _paced(run.steps, self.last)
        if steps:
            self.first_step = steps[0].step if self.first_step is None else self.first_step
            self.last = steps[-1]
            self.steps = self.last.count
        self.curves.add(steps, run.events)
        for event in run.events:
            self.kinds[event.kind] += 1
            if event.kind == "lineage":
                self._take_lineage(event)
            if event.kind == "log_error":
                self.causes[str(event.fields.get("cause", ""))] += 1
                if len(self.errors) < _ERRORS:
                    self.errors.append(event)
        self._feed(steps, run)

    def _take_lineage(self, event: Event) -> None:
        values = event.fields.get("values")
        if len(self.lineage) < _SUBJECTS:
            subject = str(event.fields.get("subject", ""))[:64]
            self.lineage[subject] = values if isinstance(values, dict) else {"hash": event.fields.get("hash")}

    def _feed(self, steps: Sequence[Step], run: FollowedRun | RecordedRun) -> None:
        """Hand on what a poll found to the detectors."""
        self._record.feed(self._watched(in_order(steps, run.events, run.places)))

    def _watched(self, items: Iterable[Step | Steps | Event]) -> Iterator[Step | Steps | Event]:
        """Pass on what is looked at for changes."""
        for item in items:
            self.changes.take(item)
            yield item

    def before(self, step: int | None) -> tuple[str, ...]:
        """Return in words what changed before a step, the nearest first, and what broke in the same minute."""
        if step is None:
            return ()
        found = [str(change) for change in self.changes.before(step)]
        moment = self.changes.time_of(step) if self.timed else None
        if moment is not None:
            near = [error for error in self.errors if error.fields.get("root") and abs(error.time - moment) <= NEAR]
            causes = dict.fromkeys(str(error.fields.get("cause", "")).replace("_", " ") for error in near)
            found += [f"in the same minute: {cause}" for cause in causes if cause]
        return tuple(found)

    @property
    def detectors(self) -> Sequence[Detector]:
        """Those of this run."""
        return self._record.detectors

    def outcomes(self) -> list[Outcome]:
        """Return what the detectors say, in their order."""
        return self._record.outcomes()


def _paced(steps: Sequence[Step], before: Step | None) -> Sequence[Step]:
    """Return steps of which nobody knows the times with times of their own, behind those of ``before``."""
    if not steps or steps[0].time != steps[-1].time or (before is None and len(steps) == 1):
        return steps
    first = steps[0].count
    start = before.time + _SECONDS if before is not None else steps[0].time - (steps[-1].count - first) * _SECONDS
    return StepList(parts_of(steps)).evenly(first, start, _SECONDS)
