"""What alarms are worth: how many there were, which were right and how late, and what was missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from trainvitals.diagnose.backtest.labels import Expected, Label, Labels
from trainvitals.diagnose.backtest.trial import Alarm, Alarms, Trial
from trainvitals.diagnose.read import Reading

PER = 10_000.0


class Answer(NamedTuple):
    """What became of something that should have been said: by which alarm, or None where it was missed."""

    expected: Expected
    alarm: Alarm | None

    @property
    def delay(self) -> int | None:
        """Steps from the event to the alarm; below 0 where it came before.  None where nobody knows."""
        if self.alarm is None or self.expected.step is None:
            return None
        return self.alarm.step - self.expected.step


@dataclass(frozen=True)
class Judged:
    """One run under one set of rules.  ``false`` are alarms that the labels contradict, None where there are none."""

    alarms: Alarms
    answers: tuple[Answer, ...] = ()
    false: int | None = None


@dataclass(frozen=True)
class Row:
    """One run: by the rules, and by the defaults."""

    trial: Trial
    label: Label | None
    rules: Judged
    defaults: Judged


@dataclass
class Total:
    """All runs under one set of rules.  ``judged_steps`` are those of runs on which a false alarm can be told."""

    steps: int = 0
    alarms: int = 0
    runs_with_alarms: int = 0
    judged_steps: int = 0
    false: int = 0
    expected: int = 0
    found: int = 0
    delays: list[int] = field(default_factory=list)
    #: By signal: alarms.
    by_signal: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Alarms in 10,000 steps."""
        return _per(self.alarms, self.steps)

    @property
    def false_rate(self) -> float | None:
        """False alarms in 10,000 steps; None without labels of runs that were well."""
        return _per(self.false, self.judged_steps) if self.judged_steps else None

    @property
    def missed(self) -> int:
        """How much should have been said, and was not."""
        return self.expected - self.found

    @property
    def delay(self) -> float | None:
        """The middle of the delays, in steps."""
        return float(median(self.delays)) if self.delays else None

    def add(self, steps: int, judged: Judged) -> None:
        """Take a run."""
        self.steps += steps
        self.alarms += len(judged.alarms)
        self.runs_with_alarms += bool(len(judged.alarms))
        self.by_signal.update(alarm.signal for alarm in judged.alarms.kept)
        if judged.false is not None:
            self.judged_steps += steps
            self.false += judged.false
        self.expected += len(judged.answers)
        self.found += sum(answer.alarm is not None for answer in judged.answers)
        self.delays += [answer.delay for answer in judged.answers if answer.delay is not None]


def _per(count: int, steps: int) -> float:
    return PER * count / steps if steps else 0.0


@dataclass(frozen=True)
class Result:
    """All that a backtest found.  ``unscored`` are labels of which no signal speaks, and how many runs have each."""

    rows: Sequence[Row]
    rules: Total
    defaults: Total
    problems: dict[str, str]
    labelled: int
    unscored: Counter[str]


def score(reading: Reading, labels: Labels) -> Result:
    """Return what came of a reading whose cases are trials."""
    rows: list[Row] = []
    rules, defaults = Total(), Total()
    unscored: Counter[str] = Counter()
    for trial in reading.useful():
        if not isinstance(trial, Trial) or not trial.steps:
            continue
        label = labels.of(trial.paths)
        if label is not None:
            unscored.update(label.other)
        one, other = (_judge(alarms, label) for alarms in trial.alarms())
        rows.append(Row(trial, label, one, other))
        rules.add(trial.span, one)
        defaults.add(trial.span, other)
    problems = dict(reading.problems)
    if labels.odd:
        problems["labels"] = f"{len(labels.odd)} steps are no numbers, and count as not known: {labels.odd[0]!r}, ..."
    return Result(rows, rules, defaults, problems, sum(row.label is not None for row in rows), unscored)


def _judge(alarms: Alarms, label: Label | None) -> Judged:
    if label is None or not label.scored:
        return Judged(alarms)
    answers = tuple(Answer(expected, _answer(alarms, expected)) for expected in label.expected)
    if label.healthy and not label.expected:
        return Judged(alarms, (), len(alarms))
    # Beside an event other signals may be right too; one that was over before it was not.
    first = min((one.step for one in label.expected if one.step is not None), default=None)
    early = [alarm for alarm in alarms.kept if first is not None and alarm.until is not None and alarm.until < first]
    return Judged(alarms, answers, len(early))


def _answer(alarms: Alarms, expected: Expected) -> Alarm | None:
    """Return the first alarm of such a signal that was on at the event, or came behind it."""
    step = expected.step
    fitting = [
        alarm
        for alarm in alarms.kept
        if alarm.signal in expected.signals and (step is None or alarm.until is None or alarm.until >= step)
    ]
    return min(fitting, key=lambda alarm: alarm.step, default=None)
