"""Several runs side by side: their losses after as many tokens, or steps, as the shortest of them saw."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainvitals.detect.window import MAD_TO_SIGMA, MEDIAN_ERROR, middle
from trainvitals.diagnose.case import Case
from trainvitals.diagnose.curves import Curve

#: The loss at a step is the median of the last such share of the steps up to it, and of so many points at least.
_SHARE, _LEAST = 0.05, 8
_MOST_DIFFERENCES = 16


@dataclass(frozen=True)
class Compared:
    """One run: ``step`` is where it is compared, ``error`` the standard error of its loss by its own noise.

    ``validation`` is the last result up to there, and ``validation_step`` its step.
    """

    run: str
    step: int
    tokens: float | None
    loss: float | None
    error: float | None
    validation: float | None
    validation_step: int | None


@dataclass(frozen=True)
class Comparison:
    """``unit`` says at equal what, ``at`` how many of it.

    ``differences`` are what is known to differ: a name and the value of each run ("" where it is not known).
    """

    unit: str
    at: float
    rows: Sequence[Compared]
    differences: Sequence[tuple[str, tuple[str, ...]]]


def compare(cases: Sequence[Case]) -> Comparison | None:
    """Compare the runs that have a loss; None where there are fewer than two."""
    usable = [case for case in cases if len(case.curves.loss)]
    if len(usable) < 2:
        return None
    tokens = [case.curves.tokens for case in usable]
    if all(len(curve) and (curve.last or 0.0) > 0.0 for curve in tokens):
        at = min(curve.last or 0.0 for curve in tokens)
        steps = [_step_at(curve, at) for curve in tokens]
        unit = "tokens"
    else:
        last = min(case.curves.loss.steps[-1] for case in usable)
        at, steps, unit = float(last), [last] * len(usable), "steps"
    rows = [_compared(case, step, at if unit == "tokens" else None) for case, step in zip(usable, steps, strict=True)]
    return Comparison(unit, at, rows, _differences(usable))


def _step_at(tokens: Curve, at: float) -> int:
    points = tokens.until(2**63 - 1)
    place = bisect_right(points, at, key=lambda point: point[1])
    return points[max(0, place - 1)][0]


def _compared(case: Case, step: int, tokens: float | None) -> Compared:
    points = case.curves.loss.until(step)
    window = points[-max(_LEAST, round(_SHARE * len(points))) :]
    values = sorted(value for _, value in window)
    loss = middle(values) if values else None
    error = None
    if loss is not None and len(values) >= _LEAST:
        spread = MAD_TO_SIGMA * middle(sorted(abs(value - loss) for value in values))
        error = MEDIAN_ERROR * spread / math.sqrt(len(values))
    results = [] if case.curves.validation is None else case.curves.validation.until(step)
    found, at = (results[-1][1], results[-1][0]) if results else (None, None)
    return Compared(case.name, step, tokens, loss, error, found, at)


def _peak(case: Case) -> str:
    finite = [value for value in case.curves.training["learning_rate"].values if math.isfinite(value)]
    return f"{max(finite):.4g}" if finite else ""


def _tokens_per_step(case: Case) -> str:
    points = case.curves.tokens.until(2**63 - 1)
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return ""
    return f"{(points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]):.4g}"


#: What a log tells of the making of its run.
_FACTS: dict[str, Callable[[Case], str]] = {
    "format": lambda case: ", ".join(case.formats),
    "framework": lambda case: case.identity.framework,
    "ranks": lambda case: str(case.identity.world_size),
    "planned steps": lambda case: "" if case.identity.target_steps is None else str(case.identity.target_steps),
    "highest learning rate": _peak,
    "tokens per step": _tokens_per_step,
    "attempts": lambda case: str(case.attempts),
}


def _differences(cases: Sequence[Case]) -> list[tuple[str, tuple[str, ...]]]:
    found = []
    for name, tell in _FACTS.items():
        values = tuple(tell(case) for case in cases)
        if len(set(values)) > 1:
            found.append((name, values))
    return found[:_MOST_DIFFERENCES]
