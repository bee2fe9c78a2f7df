"""Stall: no step ends any more.  The only judgement here that needs to know what time it is: it is told.

How long is too long depends on what the training does (reference values: PyTorch's watchdog of NCCL 600 s, DLRover
600 s, SageMaker 1800 s, NVIDIA's resiliency extension 5 times the longest seen):

- between steps: 5 times the 99th percentile of the times between steps, and at least 2 minutes: a warning; 10 times
  and at least 10 minutes: critical.
- twice the second longest pause that this run came back from is no stall either: evaluations and saves that are not
  called so come again.
- at the start 20 and 40 minutes: weights and data are loaded, and kernels compiled.
- in an evaluation or checkpoint one and two hours, or 5 and 10 times the longest that was seen: BLOOM-176B hung in an
  evaluation for 18 hours with its devices at 100 %.

The use of the devices is no witness: a collective operation that waits spins.  Nor is this for logs, which say nothing
of phases: a log that falls silent is judged by its own rhythm (:mod:`trainvitals.follow`).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from trainvitals.detect.base import Category, Severity, Timeline, Verdict
from trainvitals.telemetry import Event, Step

SIGNAL = "stall"
CATEGORY: Category = "resource"
NEEDS = "a training that lives, and the time"
#: So many of the last times between steps are kept, and so many of the first ones of a process do not count.
KEPT, SKIPPED = 512, 2
#: A percentile of fewer is their largest.
_PERCENTILE = 0.99
_SLOW_PHASES = ("evaluation", "checkpoint")


class Limits(NamedTuple):
    """Seconds without a step that are a warning, and that are critical."""

    warning: float
    critical: float


class Stall:
    """Learns how long steps take, and says whether the present one takes too long."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=KEPT)
        #: The two longest times between steps of the run, and the longest with such an event in it.
        self._longest = (0.0, 0.0)
        self._slow: dict[str, float] = {}
        self._event = ""
        self._count = -1
        self._number = 0
        self._time = 0.0
        self._to_skip = SKIPPED

    def observe(self, step: Step) -> None:
        """Take the next step: when it ended."""
        before, gap = self._count, step.time - self._time
        if before - Timeline.LATE < step.count <= before and step.step <= self._number:
            return  # Late values.
        if before < 0 or step.count <= before:
            self._to_skip = SKIPPED  # Another process.
        elif gap > 0.0:
            self._take(gap)
        self._count, self._number, self._time, self._event = step.count, step.step, step.time, ""

    def _take(self, gap: float) -> None:
        if self._event:
            self._slow[self._event] = max(gap, self._slow.get(self._event, 0.0))
        elif self._to_skip:
            self._to_skip -= 1
        else:
            self._gaps.append(gap)
        if not self._to_skip and gap > self._longest[1]:
            self._longest = (max(gap, self._longest[0]), min(gap, self._longest[0]))

    def observe_event(self, event: Event) -> None:
        """Take the next event: the time until the next step is that of an evaluation or a save."""
        if event.kind in _SLOW_PHASES:
            self._event = event.kind
        elif event.kind == "order":
            # A pause that somebody wanted is no usual gap.
            self._to_skip = max(1, self._to_skip)

    def limits(self, phase: str) -> Limits:
        """Return how long is too long in a phase, by what was seen."""
        if phase == "init":
            return Limits(1200.0, 2400.0)
        if phase in _SLOW_PHASES:
            known = self._slow.get(phase, 0.0)
            return Limits(max(5.0 * known, 3600.0), max(10.0 * known, 7200.0))
        usual = 0.0
        if self._gaps:
            ordered = sorted(self._gaps)
            usual = ordered[min(len(ordered) - 1, int(len(ordered) * _PERCENTILE))]
        again = 2.0 * self._longest[1]
        return Limits(max(5.0 * usual, again, 120.0), max(10.0 * usual, 2.0 * again, 600.0))

    def verdict(self, now: float, *, phase: str, since: float, step: int | None) -> Verdict:
        """Return the age of the last step over what is a warning; below a tenth of that it is 0, and does not change.

        ``since`` is the wall time of the last step (``step``), or of the start where there was none (None).
        """
        if phase == "paused":
            return Verdict(ratio=0.0, gated="somebody has paused the run")
        limits = self.limits("init" if step is None and phase not in _SLOW_PHASES else phase)
        age = max(0.0, now - since)
        ratio = age / limits.warning if age > 0.1 * limits.warning else 0.0
        statistics = {"warning_seconds": limits.warning, "critical_seconds": limits.critical}
        if ratio < 1.0:
            return Verdict(ratio=ratio, statistics=statistics)
        severity: Severity = "critical" if age >= limits.critical else "warning"
        limit = limits.critical if severity == "critical" else limits.warning
        what = "no first step" if step is None else f"since step {step}: no other step"
        return Verdict(
            ratio=ratio,
            since_step=step,
            evidence=f"{what} for more than {_duration(limit)}" + f" (phase {phase})",
            statistics=statistics,
            severity=severity,
            action="Dump the stacks of the rank that is in another phase than the others, or of all: a rank in its "
            "loader waits for storage, ranks in a collective operation wait for the one that is missing. Check devices "
            "and links of its node; then resume from the last checkpoint, without that node if it comes again.",
        )


def _duration(seconds: float) -> str:
    """Write seconds coarsely, for the text is a label."""
    if seconds >= 7200.0:
        return f"{seconds / 3600.0:.0f} hours"
    return f"{seconds / 60.0:.0f} minutes"
