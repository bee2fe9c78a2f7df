"""The check list: what the detectors and the errors of the log amount to, a row for each signal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from trainvitals.detect.base import Severity, Verdict
from trainvitals.detect.engine import Outcome
from trainvitals.diagnose.case import Case
from trainvitals.diagnose.short import MOST, look
from trainvitals.follow.base import LineFormat
from trainvitals.follow.formats import FORMATS
from trainvitals.telemetry import Event

LOG_ERROR = "log_error"
#: Causes of which nobody need be told: a person ended the run.
_MEANT = frozenset({"interrupted"})
_LONGEST = 300
#: What a rank file says of a process that did not end as it should.
_ENDED_BADLY = {"died": "the process died without a word", "failed": "the process ended with an exception"}

#: What each signal is about, and what is so when it is off.  One that is not here is shown by its name.
_FALLS, _JUMPS, _FORK = "loss hardly falls", "loss jumps or is NaN", "training good, validation bad"
_PROGRESS, _EFFICIENCY = "progress", "efficiency"
_ABOUT = {
    "loss_not_falling": (_FALLS, "loss falls"),
    "loss_nonfinite": (_JUMPS, "loss is a number"),
    "loss_collapsed": (_JUMPS, "loss is no constant"),
    "loss_diverged": (_JUMPS, "loss stays below where it began"),
    "loss_spike": (_JUMPS, "loss without jumps"),
    "loss_drift": (_JUMPS, "loss does not creep up"),
    "gradient_anomaly": (_JUMPS, "gradients as usual"),
    "overfitting": (_FORK, "validation follows training"),
    "evaluation_mismatch": (_FORK, "evaluation fits training"),
    "leakage_suspected": (_FORK, "validation apart from training"),
    "forgetting": ("new skill up, old skill down", "old skills stay"),
    "metric_decoupled": ("loss falls, metric does not", "metric follows loss"),
    "plateau": ("long effort, flat return", "effort pays"),
    "stop_loss": ("long effort, flat return", "effort pays as agreed"),
    "stall": (_PROGRESS, "steps go on"),
    "eta": (_PROGRESS, "the end is in sight"),
    "slowdown": (_PROGRESS, "pace holds"),
    "data_starvation": (_EFFICIENCY, "data comes in time"),
    "communication_bound": (_EFFICIENCY, "little time in communication"),
    "straggler": (_EFFICIENCY, "no rank lags"),
    "bottleneck": (_EFFICIENCY, "no single bottleneck"),
    LOG_ERROR: ("health", "no fatal error in the log"),
}
_GROUPS = {"data": "data", "parameter": "learning", "resource": "health"}


class State(str, Enum):
    """See docs/diagnose.md."""

    fine = "fine"
    watch = "watch"
    act = "act"
    cannot_say = "cannot_say"


@dataclass(frozen=True, kw_only=True)
class Signal:
    """One row.  ``severity`` is that of the finding, "info" where there is none; ``over``: it ended before the log."""

    signal: str
    state: State
    severity: Severity = "info"
    category: str = "parameter"
    since_step: int | None = None
    location: str = ""
    evidence: str = ""
    action: str = ""
    gated: str = ""
    #: What came before a finding, in words, the nearest first.
    changes: Sequence[str] = ()
    confidence: float | None = None
    ratio: float | None = None
    over: bool = False
    statistics: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What is so when the signal is off, in words."""
        return _ABOUT.get(self.signal, ("", self.signal.replace("_", " ")))[1]

    @property
    def question(self) -> str:
        """Which of the questions to a training it answers; of one that is not known, by its category."""
        found = _ABOUT.get(self.signal)
        return found[0] if found is not None else _GROUPS.get(self.category, "health")

    @property
    def is_finding(self) -> bool:
        """Whether there is something to look at."""
        return self.state in {State.watch, State.act}


def signals(case: Case) -> list[Signal]:
    """Return the rows of a run, in the order of the detectors; the errors of its log come last."""
    place = _place(case)
    rows = [*(_glanced(_row(outcome, place), case, place) for outcome in case.outcomes()), _errors(case, place)]
    return [replace(row, changes=case.before(row.since_step)) if row.is_finding else row for row in rows]


def _row(outcome: Outcome, place: str) -> Signal:
    last, worst = outcome.last, outcome.worst
    if last is not None and last.active:
        state = State.watch if last.severity == "info" else State.act
        return _finding(outcome, last, state, place, over=False)
    if worst is not None and worst.severity != "info":
        return _finding(outcome, worst, State.watch, place, over=True)
    if last is None and not outcome.judged:
        return Signal(
            signal=outcome.signal,
            state=State.cannot_say,
            category=outcome.category,
            evidence=f"needs {outcome.needs}",
        )
    return Signal(
        signal=outcome.signal,
        state=State.fine,
        category=outcome.category,
        evidence="" if last is None else last.evidence,
        gated="" if last is None else last.gated,
        ratio=None if last is None else last.ratio,
        statistics={} if last is None else last.statistics,
    )


def _glanced(row: Signal, case: Case, place: str) -> Signal:
    """Return a row; where its detector cannot say, look whether a few losses tell anything."""
    curve = case.curves.training["loss"]
    if row.state is not State.cannot_say or len(curve) > MOST or case.last is None:
        return row
    found = look(row.signal, curve.steps, curve.values, case.last.values)
    if found is None:
        return row
    return replace(
        row,
        state=State.watch,
        since_step=found.since,
        location=f"{place}, step {found.since}" if place else f"step {found.since}",
        evidence=found.evidence,
        action=found.action,
        confidence=0.3,
    )


def _finding(outcome: Outcome, verdict: Verdict, state: State, place: str, *, over: bool) -> Signal:
    since = verdict.since_step
    where = place if since is None else f"{place}, step {since}" if place else f"step {since}"
    return Signal(
        signal=outcome.signal,
        state=state,
        severity=verdict.severity,
        category=outcome.category,
        since_step=since,
        location=where,
        evidence=verdict.evidence + ("; over before the end" if over else ""),
        action=verdict.action,
        gated=verdict.gated,
        confidence=verdict.confidence,
        ratio=verdict.ratio,
        over=over,
        statistics=verdict.statistics,
    )


def _errors(case: Case, place: str) -> Signal:
    """Return the row about the errors of the log: the one that began what the run did not survive."""
    root = _root(case)
    if root is not None:
        fields = root.fields
        cause, text = (" ".join(str(fields.get(name, "")).split()) for name in ("cause", "text"))
        is_meant = cause in _MEANT
        return Signal(
            signal=LOG_ERROR,
            state=State.watch if is_meant else State.act,
            severity="info" if is_meant else "critical",
            category=str(fields.get("category", "resource")),
            since_step=root.step if root.step >= 0 else None,
            location=str(fields.get("place", ""))[:_LONGEST] or place,
            evidence=f"{cause.replace('_', ' ')}: {text[:_LONGEST]}" if text else cause,
            action=str(fields.get("action", "")),
        )
    if case.causes:
        told = ", ".join(f"{cause.replace('_', ' ')} ({count})" for cause, count in case.causes.most_common(4))
        return Signal(signal=LOG_ERROR, state=State.fine, category="resource", evidence=f"survived: {told}")
    if case.status in _ENDED_BADLY:
        return Signal(
            signal=LOG_ERROR,
            state=State.act,
            severity="critical",
            category="resource",
            since_step=None if case.last is None else case.last.step,
            location=place,
            evidence=_ENDED_BADLY[case.status],
            action="read the last lines that the program printed, and the kernel's log of that minute",
        )
    if case.formats and not any(map(_has_text, case.formats)):
        text = "needs the text that the program prints"
        return Signal(signal=LOG_ERROR, state=State.cannot_say, category="resource", evidence=text)
    return Signal(signal=LOG_ERROR, state=State.fine, category="resource")


def _has_text(name: str) -> bool:
    """Whether a program may write an error into a log of this format: one that holds its text."""
    known = FORMATS.named(name)
    return isinstance(known, LineFormat) and known.prefixed


def _root(case: Case) -> Event | None:
    if case.finished or not case.errors:
        return None
    from trainvitals.follow.errors import root_cause  # noqa: PLC0415  Its tables take longer than many a log.

    return root_cause(case.errors, -1 if case.last is None else case.last.step)


def _place(case: Case) -> str:
    """Return whose loss it is, where there are several ranks."""
    return f"rank {case.identity.rank}" if case.identity.world_size > 1 else ""
