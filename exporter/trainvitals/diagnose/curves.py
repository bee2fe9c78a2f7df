"""The curves of a run, kept as plain numbers: sixteen bytes a point, whatever the length of the run."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from trainvitals.detect.window import middle
from trainvitals.telemetry import Event, Step, Steps, parts_of

#: What is drawn of the training.
NAMES = ("loss", "learning_rate", "grad_norm")
#: Results on so many splits and names are kept.
_MOST = 32


class Curve:
    """Values by step, in the order in which they came; a step that is smaller than the one before is a new attempt."""

    def __init__(self, points: Iterable[tuple[int, float]] = ()) -> None:
        self.steps = array("q")
        self.values = array("d")
        self.extend(points)

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, points: Iterable[tuple[int, float]]) -> None:
        """Append points.  A step beyond 64 bits is left out."""
        found = list(points)
        self.append_all([step for step, _ in found], [value for _, value in found])

    def append_all(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Append points, of which there may be many, by their steps and their values."""
        try:
            numbers = array("q", steps)
        except OverflowError:
            fitting = [place for place, step in enumerate(steps) if -(2**63) <= step < 2**63]
            numbers, values = array("q", [steps[place] for place in fitting]), [values[place] for place in fitting]
        self.steps.extend(numbers)
        self.values.extend(array("d", values))

    @property
    def last(self) -> float | None:
        """The last finite value."""
        return next((value for value in reversed(self.values) if math.isfinite(value)), None)

    def until(self, step: int) -> list[tuple[int, float]]:
        """Return the finite points of the last attempt up to a step."""
        begin = next((n for n in range(len(self.steps) - 1, 0, -1) if self.steps[n] < self.steps[n - 1]), 0)
        return [
            (number, value)
            for number, value in zip(self.steps[begin:], self.values[begin:], strict=True)
            if number <= step and math.isfinite(value)
        ]

    def medians(self, count: int) -> list[float]:
        """Return the medians of at most ``count`` pieces of equally many finite points, in order."""
        finite = [value for value in self.values if math.isfinite(value)]
        return [middle(sorted(finite[begin:end])) for begin, end in _pieces(len(finite), count)]

    def extremes(self, count: int) -> list[Extreme]:
        """Return the extent of at most ``count`` pieces of equally many points, none over two attempts."""
        found = []
        for begin, end in _pieces(len(self.values), count):
            cuts = [n for n in range(begin + 1, end) if self.steps[n] < self.steps[n - 1]]
            for first, last in zip([begin, *cuts], [*cuts, end], strict=True):
                finite = [value for value in self.values[first:last] if math.isfinite(value)]
                low, high = (min(finite), max(finite)) if finite else (math.nan, math.nan)
                found.append(Extreme(self.steps[first], self.steps[last - 1], low, high))
        return found


class Extreme(NamedTuple):
    """Some points in a row: their first and last step, their lowest and highest finite value (NaN: there is none)."""

    first: int
    last: int
    low: float
    high: float


class Curves:
    """The curves of one run: those of the training by name, the results by split and name, and its tokens so far."""

    def __init__(self) -> None:
        self.training = {name: Curve() for name in NAMES}
        self.results: dict[tuple[str, str], Curve] = {}
        #: Totals of tokens by step; empty where the log tells none.
        self.tokens = Curve()
        self._amount = 0.0

    def add(self, steps: Sequence[Step], events: Sequence[Event]) -> None:
        """Take what is new."""
        for part in parts_of(steps):
            # Each curve of a block has the same steps.
            numbers = _packed(part.numbers) if isinstance(part, Steps) else ()
            for name, curve in self.training.items():
                if not isinstance(part, Steps):
                    curve.append_all(*_said(part, name))
                elif (column := part.columns.get(name)) is not None:
                    curve.append_all(numbers, column)
        self._add_tokens(steps)
        for event in events:
            values = event.fields.get("values")
            if event.kind == "evaluation" and isinstance(values, dict):
                for name, value in values.items():
                    self._add_result(str(event.fields.get("name")), str(name), event.step, value)

    def _add_tokens(self, steps: Sequence[Step]) -> None:
        numbers, totals = _said(steps, "total_tokens")
        if not totals:
            numbers, amounts = _said(steps, "tokens")
            totals = list(accumulate(amounts, initial=self._amount))[1:]
            self._amount = totals[-1] if totals else self._amount
        self.tokens.append_all(numbers, totals)

    def _add_result(self, split: str, name: str, step: int, value: object) -> None:
        curve = self.results.get((split, name))
        if curve is None:
            if len(self.results) >= _MOST:
                return
            curve = self.results[split, name] = Curve()
        if isinstance(value, (int, float)):
            try:
                curve.extend([(step, float(value))])
            except OverflowError:
                return

    @property
    def validation(self) -> Curve | None:
        """The loss on data that it does not train on: of the validation, else of the first split that has one."""
        losses = [(split, curve) for (split, name), curve in self.results.items() if name == "loss" and len(curve)]
        return next((curve for split, curve in losses if split == "validation"), losses[0][1] if losses else None)

    @property
    def loss(self) -> Curve:
        """The loss of the training, or where there is none, that of the validation."""
        training = self.training["loss"]
        return training if len(training) else (self.validation or training)


def _packed(numbers: list[int]) -> Sequence[int]:
    """Return the same in eight bytes each, if they fit."""
    try:
        return array("q", numbers)
    except OverflowError:
        return numbers


def _said(steps: Sequence[Step], name: str) -> tuple[list[int], list[float]]:
    """Return which steps say something under a name, and what."""
    numbers: list[int] = []
    values: list[float] = []
    for part in parts_of(steps):
        if isinstance(part, Steps):
            if (column := part.columns.get(name)) is not None:
                numbers += part.numbers
                values += column
            continue
        saying = [step for step in part if name in step.values]
        numbers += [step.step for step in saying]
        values += [step.values[name] for step in saying]
    return numbers, values


def _pieces(length: int, count: int) -> list[tuple[int, int]]:
    count = min(length, count)
    return [(number * length // count, (number + 1) * length // count) for number in range(count)]
