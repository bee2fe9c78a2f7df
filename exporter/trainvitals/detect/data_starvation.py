"""Data starvation: the training waits for its next batch.

The profiler of TensorFlow calls a program highly input-bound from 20 % on, moderately from 5 %.  Of 15 public logs with
this number, all of detection and most on machines that others share, 14 waited for 20 % of their time or more, and
learned well: that is advice ("info").  From half of the time on (SageMaker's rule of the same purpose) it is a
warning: half of the devices would do as well.

Seconds come from ``data_seconds`` and ``step_seconds`` of a log, or from the phases of the probe, where only waits
that the training could not go on without count.
"""

from __future__ import annotations

from trainvitals.detect.base import Category, Verdict
from trainvitals.detect.shares import PHASES, Finding, Share
from trainvitals.telemetry import Event, Step

INFO, WARNING = 0.2, 0.5
#: The first lines of a log, and those after a restart, are those of workers that start.
SKIPPED_LINES = 2
_ACTION = (
    "Data first, no more devices: more loader workers and prefetching, data on a local or faster store, "
    "decoding and augmentation done beforehand. If one rank alone waits, look at the disk of its node."
)


class DataStarvation:
    """Watches the share of waits for data in the last ten minutes of training; ratio 1 is 20 %."""

    signal = "data_starvation"
    category: Category = "data"
    needs = (
        "two minutes of training with its waits for data (data_seconds and step_seconds, or the phases of the probe)"
    )

    def __init__(self) -> None:
        self._share = Share()
        self._finding = Finding(INFO, WARNING)
        self._number = -1
        self._to_skip = SKIPPED_LINES

    @property
    def held(self) -> bool:
        """Whether there is a finding."""
        return self._finding.since is not None

    def observe(self, step: Step) -> None:
        """Look at ``data_seconds`` and ``step_seconds``."""
        data = step.values.get("data_seconds")
        if data is None:
            return
        whole = step.values.get("step_seconds")
        if whole is None:
            return
        steps = step.step - self._number if self._number >= 0 else 1
        if steps < 0:
            self._share.clear()
            self._to_skip, steps = SKIPPED_LINES, 1
        self._number = step.step
        if self._to_skip:
            self._to_skip -= 1
            return
        # Some loops time the wait beside the step and not within.
        self._share.add(step.step, max(1, steps), data * max(1, steps), max(whole, data) * max(1, steps))
        self._finding.update(self._share)

    def observe_event(self, event: Event) -> None:
        """Look at the seconds in each phase; a restart begins anew."""
        if event.kind == "restart":
            self._share.clear()
            self._to_skip = SKIPPED_LINES
        elif event.kind == PHASES:
            self._share.add_phases(event.step, "data", event.fields)
            self._finding.update(self._share)

    def verdict(self) -> Verdict | None:
        """Return the share (statistic ``share``) over 20 % as the ratio."""
        share = self._share.ratio
        if share is None:
            return None
        return self._finding.verdict(share, "of training is waiting for data", _ACTION)
