"""One run while it is read, judged by two sets of rules; and the alarms that come of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trainvitals import detect
from trainvitals.detect.base import Severity
from trainvitals.detect.engine import Outcome, Panel, Record, in_order
from trainvitals.detect.rules import ALARMS, Rules, known
from trainvitals.diagnose.case import Case
from trainvitals.diagnose.curves import Curves
from trainvitals.diagnose.recorded import RecordedRun
from trainvitals.follow.run import FollowedRun
from trainvitals.telemetry import Event, Step


class Alarm(NamedTuple):
    """What would have been said: ``step`` is the one after which it was known, ``since`` where it began by its words.

    ``severity`` is the gravest that it came to.  ``until`` is None for what was on at the end of the log.
    """

    signal: str
    severity: Severity
    step: int
    since: int | None
    until: int | None
    evidence: str


class Alarms(NamedTuple):
    """Those of one run by one set of rules.  ``more`` were not kept, of a signal that comes and goes without end."""

    kept: tuple[Alarm, ...]
    more: int

    def __len__(self) -> int:
        """How many there were in all."""
        return len(self.kept) + self.more


class _NoCurves(Curves):
    """Keeps nothing: a backtest draws nothing, and may read hundreds of runs."""

    def add(self, steps: Sequence[Step], events: Sequence[Event]) -> None:
        """Keep nothing."""


@dataclass(kw_only=True)
class Trial(Case):
    """A run under rules.  A signal whose settings are the defaults is judged once."""

    rules: Rules
    curves: Curves = field(default_factory=_NoCurves)
    #: Steps of the training, over all attempts: a log that tells one in ten tells of ten.
    span: int = 0
    _number: int | None = None
    _other: Record = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        changed = [detector for detector in self.rules.build() if _is_changed(self.rules, detector.signal)]
        self._other = Record(Panel(changed, self._complain))

    def _feed(self, steps: Sequence[Step], run: FollowedRun | RecordedRun) -> None:
        for step in steps:
            number, before = step.step, self._number
            self.span += 1 if before is None or number <= before else number - before
            self._number = number
        super()._feed(steps, run)
        self._other.feed(in_order(steps, run.events, run.places))

    def alarms(self) -> tuple[Alarms, Alarms]:
        """Return the alarms by the rules, and by the defaults."""
        usual = self._record.outcomes()
        changed = {outcome.signal: outcome for outcome in self._other.outcomes()}
        chosen = [changed.get(outcome.signal, outcome) for outcome in usual if self.rules[outcome.signal].enabled]
        return _alarms(chosen, self.rules), _alarms(usual, Rules())


def _is_changed(rules: Rules, signal: str) -> bool:
    settings = rules[signal].settings
    return settings is not None and settings != type(settings)()


def build() -> list[detect.Detector]:
    """Return the detectors of the defaults, for one run."""
    return detect.build()


def _alarms(outcomes: Sequence[Outcome], rules: Rules) -> Alarms:
    found: list[Alarm] = []
    more = 0
    for outcome in outcomes:
        least = ALARMS.index(rules[outcome.signal].alarm)
        for episode in outcome.episodes:
            grave = [step for severity, step in episode.reached.items() if ALARMS.index(severity) >= least]
            if grave:
                worst = episode.worst
                found.append(
                    Alarm(outcome.signal, worst.severity, grave[0], worst.since_step, episode.until, worst.evidence)
                )
        # Which of those that were not kept were grave enough, nobody knows: as many as of the others.
        if outcome.episodes and outcome.more:
            kept = sum(alarm.signal == outcome.signal for alarm in found)
            more += round(outcome.more * kept / len(outcome.episodes))
    return Alarms(tuple(found), more)


def signals() -> list[str]:
    """Return the signals that may be alarms, in the order of the detectors."""
    return list(known())
