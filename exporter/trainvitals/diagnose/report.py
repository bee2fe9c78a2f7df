"""The report on all runs: what the terminal, the JSON document and the page show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainvitals.diagnose.case import Case
from trainvitals.diagnose.compare import Comparison, compare
from trainvitals.diagnose.read import Reading
from trainvitals.diagnose.shared import mark
from trainvitals.diagnose.signals import Signal, State, signals

FailOn = Literal["watch", "act", "warning", "critical"]
#: What ``--fail-on`` takes: findings of such a state or severity, and graver ones.
FAIL_ON: tuple[FailOn, ...] = ("watch", "act", "warning", "critical")


@dataclass(frozen=True)
class RunReport:
    """One run and the rows about it."""

    case: Case
    signals: Sequence[Signal]

    @property
    def state(self) -> State:
        """The gravest of its rows."""
        states = {row.state for row in self.signals}
        return next((state for state in (State.act, State.watch, State.fine) if state in states), State.cannot_say)


@dataclass(frozen=True)
class Report:
    """``problems`` says by path what could not be read; ``comparison`` is there when there are several runs."""

    runs: Sequence[RunReport]
    problems: dict[str, str]
    comparison: Comparison | None

    def fails(self, limit: FailOn) -> bool:
        """Return whether a finding is as grave as ``limit`` or graver."""
        found = [row for run in self.runs for row in run.signals if row.is_finding]
        if limit == "watch":
            return bool(found)
        if limit == "act":
            return any(row.state is State.act for row in found)
        grave = {"critical"} if limit == "critical" else {"warning", "critical"}
        return any(row.severity in grave for row in found)


def make(reading: Reading) -> Report:
    """Return the report on what was read."""
    cases = reading.useful()
    rows = mark(cases, [signals(case) for case in cases])
    runs = [RunReport(case, own) for case, own in zip(cases, rows, strict=True)]
    return Report(runs, reading.problems, compare(cases) if len(cases) > 1 else None)
