"""Logs that tests write, and detectors that say what a test wants."""

from __future__ import annotations

import math

from trainvitals.detect import Verdict
from trainvitals.diagnose.read import read
from trainvitals.diagnose.report import make


class Said:
    """A detector that gives a verdict from one step on, up to another."""

    category = "parameter"
    needs = "9 steps with a loss"

    def __init__(self, signal, *, since=None, until=math.inf, silent=False, **words):
        self.signal, self._since, self._until, self._silent, self._words = signal, since, until, silent, words
        self._step = -1

    def observe(self, step):
        """Remember the step."""
        self._step = step.step

    def verdict(self):
        """Return the verdict at this step."""
        if self._silent:
            return None
        is_on = self._since is not None and self._since <= self._step <= self._until
        return Verdict(ratio=2.0, since_step=self._since, **self._words) if is_on else Verdict(ratio=0.0)


def table(path, rows=40, *, columns="step,loss,val_loss,lr", line=None):
    """Write a table with a loss that falls from 8; every tenth row has a validation loss."""
    line = line or (lambda n: f"{n},{8.0 - 0.1 * n:.3f},{8.5 - 0.1 * n if n % 10 == 0 else ''},0.01")
    path.write_text("\n".join([columns, *(line(n) for n in range(rows))]) + "\n")
    return path


def report(*paths, detectors=()):
    """Return the report on logs, judged by these makers of detectors."""
    return make(read([str(path) for path in paths], lambda: [maker() for maker in detectors]))
