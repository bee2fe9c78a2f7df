"""The contract of a detector: steps in, verdict out.  No clock, no file, no log, no network of its own.

A detector turns its statistic into a ratio to its threshold; 1 or more is active.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from trainvitals.telemetry import Step

Category = Literal["resource", "data", "parameter"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a detector says now.

    ``statistics`` are the numbers behind the ratio; ``evidence`` is a sentence, given when the signal is active.
    """

    ratio: float
    since_step: int | None = None
    evidence: str = ""
    statistics: dict[str, float] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Whether the signal is on."""
        return self.ratio >= 1.0


class Detector(Protocol):
    """Judges one rank of one run.  ``signal`` and ``category`` name what it looks for."""

    signal: str
    category: Category

    def observe(self, step: Step) -> None:
        """Take the next step; steps come in order, and a smaller number than before is a rollback."""

    def verdict(self) -> Verdict | None:
        """Return the verdict on what was seen so far, or None as long as nothing can be said."""


class Latch:
    """Keeps a signal active for a while, so that a scrape sees what lasted for one step.

    Time is that of the steps: released once ``hold_seconds`` and ``hold_steps`` have passed since the last excess.
    """

    def __init__(self, *, hold_seconds: float, hold_steps: int) -> None:
        self._hold_seconds = hold_seconds
        self._hold_steps = hold_steps
        self.since: Step | None = None
        self.peak = 0.0
        self._last: Step | None = None

    def update(self, ratio: float, step: Step) -> float:
        """Return the ratio to show: the present one, or the peak while the signal is held."""
        if ratio >= 1.0:
            if self.since is None:
                self.since = step
            self._last = step
            self.peak = max(self.peak, ratio)
        elif self._last is not None:
            waited = step.time - self._last.time >= self._hold_seconds
            if waited and step.count - self._last.count >= self._hold_steps:
                self.reset()
        return self.peak if self.since is not None else ratio

    def reset(self) -> None:
        """Release the signal at once."""
        self.since = self._last = None
        self.peak = 0.0
