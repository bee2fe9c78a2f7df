"""A training with evaluations, as a detector sees it: epochs or steps, each with a loss, and events between them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from trainvitals.detect.base import EventDetector, Verdict
from trainvitals.telemetry import Event, Step


class Course:
    """Feeds a detector.  Between two evaluations there are ``every`` steps, of ``seconds`` each."""

    def __init__(self, detector: EventDetector, *, every: int = 1, seconds: float = 1.0, first: int = 1) -> None:
        self.detector = detector
        self.every = every
        self.seconds = seconds
        self.step = first - 1
        self.count = 0
        self.time = 1_700_000_000.0

    def train(self, loss: float | None, count: int | None = None, **values: float) -> None:
        """Feed steps that all have this loss."""
        for _ in range(self.every if count is None else count):
            self.step += 1
            self.count += 1
            self.time += self.seconds
            known = dict(values) if loss is None else {"loss": loss, **values}
            self.detector.observe(Step(self.step, self.count, self.time, known))

    def evaluate(self, name: str = "validation", **values: float) -> Verdict | None:
        """Feed the results of an evaluation at the present step; return the verdict."""
        self.tell(name, values)
        return self.detector.verdict()

    def tell(self, name: str, values: Mapping[str, float]) -> None:
        """Feed results whose names are no names of Python."""
        self.detector.observe_event(Event(self.time, "evaluation", self.step, {"name": name, "values": dict(values)}))

    def restart(self, step: int) -> None:
        """Go on after ``step`` in a new process."""
        self.detector.observe_event(Event(self.time, "restart", step + 1, {"attempt": 1, "previous_step": self.step}))
        self.step, self.count = step, 0

    def run(
        self, train: Iterable[float | None], validation: Sequence[float], **metrics: Sequence[float]
    ) -> list[Verdict | None]:
        """Feed one evaluation after the other, with the training loss before it; return the verdict after each."""
        verdicts = []
        for index, (loss, own) in enumerate(zip(train, validation, strict=True)):
            self.train(loss)
            verdicts.append(self.evaluate(loss=own, **{name: values[index] for name, values in metrics.items()}))
        return verdicts


def falling(count: int, *, first: float = 2.0, last: float = 0.5, sigma: float = 0.0, seed: int = 1) -> list[float]:
    """Return losses that fall by the same share each time, with noise that is a share of them."""
    numbers = random.Random(seed)
    share = (last / first) ** (1.0 / max(count - 1, 1))
    return [first * share**index * (1.0 + numbers.gauss(0.0, sigma)) for index in range(count)]


def fork(
    count: int, *, best: int, low: float = 1.0, last: float = 1.5, sigma: float = 0.0, seed: int = 2
) -> list[float]:
    """Return validation losses that fall from 2 to ``low`` at index ``best``, and rise to ``last``."""
    numbers = random.Random(seed)
    down = falling(best + 1, first=2.0, last=low)
    up = [low + (last - low) * (index + 1) / (count - best - 1) for index in range(count - best - 1)]
    return [value * (1.0 + numbers.gauss(0.0, sigma)) for value in (*down, *up)]
