"""A training as a detector sees it: steps with numbers, counts and times of their own."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from trainvitals.detect import Detector, Verdict
from trainvitals.telemetry import Step


class Tape:
    """Feeds a detector.  ``seconds`` pass per step."""

    def __init__(self, detector: Detector, *, first: int = 1, seconds: float = 1.0) -> None:
        self.detector = detector
        self.step = first - 1
        self.count = 0
        self.time = 1_700_000_000.0
        self.seconds = seconds

    def play(self, losses: Iterable[float | None], **values: float) -> list[Verdict | None]:
        """Feed one step for each loss (None: a step without one); return the verdict after each."""
        verdicts = []
        for loss in losses:
            self.step += 1
            self.count += 1
            self.time += self.seconds
            known = dict(values) if loss is None else {"loss": loss, **values}
            self.detector.observe(Step(self.step, self.count, self.time, known))
            verdicts.append(self.detector.verdict())
        return verdicts

    def restart(self, step: int, *, pause: float = 60.0) -> None:
        """Begin another process that goes on after ``step``."""
        self.step, self.count = step, 0
        self.time += pause

    def roll_back(self, step: int) -> None:
        """Load an older state within the process: the count goes on."""
        self.step = step

    @property
    def verdict(self) -> Verdict:
        """The verdict now, which must be there."""
        verdict = self.detector.verdict()
        assert verdict is not None
        return verdict


def noise(count: int, *, level: float = 3.0, sigma: float = 0.03, seed: int = 1) -> list[float]:
    """Return losses around a level, the same at each call."""
    numbers = random.Random(seed)
    return [numbers.gauss(level, sigma) for _ in range(count)]


def first_active(verdicts: Sequence[Verdict | None]) -> int | None:
    """Return the index of the first active verdict."""
    return next((index for index, verdict in enumerate(verdicts) if verdict is not None and verdict.active), None)
