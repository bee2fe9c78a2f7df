"""Data starvation: the training waits for its next batch.

The profiler of TensorFlow calls a program highly input-bound from 20 % on, moderately from 5 %.  Of 15 public logs with
this number, all of detection and most on machines that others share, 14 waited for 20 % of their time or more, and
learned well, three of them for half of their time (the threshold of SageMaker's rule of the same purpose): that is
advice ("info").  From two thirds on it is a warning: a third of the devices would do as well.

Seconds come from ``data_seconds`` and ``step_seconds`` of a log, or from the phases of the probe, where only waits
that the training could not go on without count.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import mul, sub

from trainvitals.detect.base import Category, Verdict, one_by_one
from trainvitals.detect.settings import setting
from trainvitals.detect.shares import PHASES, Finding, Share
from trainvitals.telemetry import Event, Step, Steps

INFO, WARNING = 0.2, 2.0 / 3.0
#: The first lines of a log, and those after a restart, are those of workers that start.
SKIPPED_LINES = 2
#: Seconds that make sense.
_MOST = 1e9
_ACTION = (
    "Data first, no more devices: more loader workers and prefetching, data on a local or faster store, "
    "decoding and augmentation done beforehand. If one rank alone waits, look at the disk of its node."
)


@dataclass(frozen=True, kw_only=True)
class StarvationSettings:
    """Thresholds."""

    info: float = setting(INFO, "share of the time", "so much waiting for data is information", most=1.0)
    warning: float = setting(WARNING, "share of the time", "and so much a warning", most=1.0)


class DataStarvation:
    """Watches the share of waits for data in the last ten minutes of training; ratio 1 is 20 %."""

    signal = "data_starvation"
    category: Category = "data"
    needs = (
        "two minutes of training with its waits for data (data_seconds and step_seconds, or the phases of the probe)"
    )
    settings = StarvationSettings

    def __init__(self, settings: StarvationSettings = StarvationSettings()) -> None:
        self._settings = settings
        self._share = Share()
        self._finding = Finding(settings.info, settings.warning)
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
        if self._share.add(step.step, max(1, steps), data * max(1, steps), max(whole, data) * max(1, steps)):
            self._finding.update(self._share)

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps, from one move of the window to the next."""
        data, whole = steps.columns.get("data_seconds"), steps.columns.get("step_seconds")
        if data is None or whole is None:
            return len(steps)
        if not self._is_plain(steps):
            return one_by_one(self, steps)
        if steps.extent("data_seconds")[1] > steps.extent("step_seconds")[0]:
            whole = list(map(max, whole, data))
        numbers = steps.numbers
        if numbers[-1] - self._number > len(numbers):
            strides = list(map(sub, numbers, [self._number, *numbers]))
            data, whole = list(map(mul, data, strides)), list(map(mul, whole, strides))
        reached, self._number, was_held = self._number, numbers[-1], self.held
        for end in self._share.add_all(numbers, reached, data, whole):
            self._finding.update(self._share)
            if self.held and not was_held:
                self._number = numbers[end - 1]
                return end
            was_held = self.held
        return len(numbers)

    def _is_plain(self, steps: Steps) -> bool:
        """Whether nothing in a block has to be looked at alone."""
        if self._to_skip or not 0 <= self._number < steps.numbers[0]:
            return False
        (least, most), (shortest, longest) = steps.extent("data_seconds"), steps.extent("step_seconds")
        # The longest stride is not more than all of them.
        return least >= 0.0 and shortest > 0.0 and max(most, longest) * (steps.numbers[-1] - self._number) < _MOST

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
