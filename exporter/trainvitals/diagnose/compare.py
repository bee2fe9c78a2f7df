"""Several runs side by side: their losses after as many tokens, or steps, as the shortest of them saw."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainvitals.detect.window import MAD_TO_SIGMA, MEDIAN_ERROR, middle
from trainvitals.diagnose import noise, settings
from trainvitals.diagnose.case import Case
from trainvitals.diagnose.curves import Curve

#: The loss at a step is the median of the last such share of the steps up to it, and of so many points at least.
_SHARE, _LEAST = 0.05, 8
_MOST_DIFFERENCES = 64
_NAMED = 6


@dataclass(frozen=True)
class Compared:
    """One run: ``step`` is where it is compared, ``error`` the standard error of its loss by its own noise.

    ``validation`` is the last result up to there, and ``validation_step`` its step.  ``difference`` is that of the loss
    to the first run, ``floor`` what it must exceed to be one, and ``verdict`` says in words what it is.
    """

    run: str
    step: int
    tokens: float | None
    loss: float | None
    error: float | None
    validation: float | None
    validation_step: int | None
    difference: float | None = None
    floor: float | None = None
    verdict: str = ""


@dataclass(frozen=True)
class Comparison:
    """``unit`` says at equal what, ``at`` how many of it.

    ``differences`` are what is known to differ: a name and the value of each run ("" where it is not known).
    ``noise`` says what the floor was taken from ("seeds", "within the runs"), ``checked`` in words whether one variable
    differs; ``variables`` are their names, seeds left out, and ``unknown`` the runs of which no setting is known.
    """

    unit: str
    at: float
    rows: Sequence[Compared]
    differences: Sequence[tuple[str, tuple[str, ...]]]
    noise: str = ""
    variables: Sequence[str] = ()
    unknown: Sequence[str] = ()
    checked: str = ""


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
    known = settings.settings(usable)
    found = [_compared(case, step, at if unit == "tokens" else None) for case, step in zip(usable, steps, strict=True)]
    rows, noise = _judged([row for row, _ in found], [sigma for _, sigma in found], _alike(usable, known))
    told = _differences(usable)
    chosen = _settings_that_differ(known)
    unknown = [case.name for case, values in zip(usable, known, strict=True) if not values]
    variables = [name for name, _ in chosen if not settings.is_seed(name)] or [
        name for name, _ in told if name in _CHOSEN
    ]
    has_seeds = any(settings.is_seed(name) for name, _ in chosen)
    return Comparison(
        unit,
        at,
        rows,
        [*told, *chosen][:_MOST_DIFFERENCES],
        noise,
        variables,
        unknown,
        _check(variables, unknown, has_seeds=has_seeds),
    )


def _judged(
    rows: Sequence[Compared], sigmas: Sequence[float | None], groups: Sequence[Sequence[int]]
) -> tuple[list[Compared], str]:
    """Return the rows with what each differs from the first by, and what the floor was taken from."""
    losses = [[loss for place in group if (loss := rows[place].loss) is not None] for group in groups]
    seeds = noise.between_seeds(losses)
    first, judged = rows[0], [rows[0]]
    for row, sigma in zip(rows[1:], sigmas[1:], strict=True):
        floor = seeds
        if floor is None and sigma is not None and sigmas[0] is not None:
            floor = noise.of_two(sigmas[0], sigma)
        difference = None if row.loss is None or first.loss is None else row.loss - first.loss
        verdict = _verdict(row.run, first.run, difference, floor)
        judged.append(replace(row, difference=difference, floor=floor, verdict=verdict))
    if seeds is not None:
        return judged, f"between {sum(map(len, losses))} runs that differ by nothing but their seed"
    return judged, "within the runs; between runs with other seeds it is larger"


def _verdict(run: str, first: str, difference: float | None, floor: float | None) -> str:
    if difference is None:
        return f"{run}: no loss to compare"
    if floor is None:
        return f"{run}: too few points to tell its noise"
    if not abs(difference) > floor:
        return f"{run}: no difference to {first} beyond the noise ({floor:.2g})"
    word = "better" if difference < 0.0 else "worse"
    return f"{run} is {word} than {first} by {abs(difference):.3g} (noise {floor:.2g})"


def _alike(cases: Sequence[Case], known: Sequence[Mapping[str, str]]) -> list[list[int]]:
    """Return groups of runs of which settings are known that are the same but for the seed, which differs."""
    keys = []
    for case, values in zip(cases, known, strict=True):
        chosen = frozenset((name, value) for name, value in values.items() if not settings.is_seed(name))
        has_seed = any(settings.is_seed(name) for name in values)
        keys.append((chosen, tuple(tell(case) for tell in map(_FACTS.get, _CHOSEN) if tell)) if has_seed else None)
    return [
        group
        for group in noise.alike(keys)
        if len({tuple(sorted((n, v) for n, v in known[place].items() if settings.is_seed(n))) for place in group})
        == len(group)
    ]


def _settings_that_differ(known: Sequence[Mapping[str, str]]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the settings that differ between the runs that tell any; one that some do not tell differs as well."""
    names = dict.fromkeys(name for values in known for name in values)
    rows = [(name, tuple(values.get(name, "") for values in known)) for name in names]
    return [
        (name, found)
        for name, found in rows
        if len({value for value, values in zip(found, known, strict=True) if values}) > 1
    ]


def _check(variables: Sequence[str], unknown: Sequence[str], *, has_seeds: bool) -> str:
    """Say whether one variable differs, which is what makes a difference of the loss its effect."""
    some = ", ".join(variables[:_NAMED]) + (f" and {len(variables) - _NAMED} more" if len(variables) > _NAMED else "")
    doubt = f"; no setting is known of {', '.join(unknown[:_NAMED])}, so more may differ" if unknown else ""
    if not variables:
        what = "nothing but the seed differs, as far as is known" if has_seeds else "nothing is known to differ"
    elif len(variables) == 1:
        what = f"one variable differs: {some}"
    else:
        what = f"{len(variables)} variables differ ({some}): a difference of the loss cannot be laid to one of them"
    return what + doubt


def _step_at(tokens: Curve, at: float) -> int:
    points = tokens.until(2**63 - 1)
    place = bisect_right(points, at, key=lambda point: point[1])
    return points[max(0, place - 1)][0]


def _compared(case: Case, step: int, tokens: float | None) -> tuple[Compared, float | None]:
    """Return a run at a step, and the standard deviation of its smoothed loss there."""
    points = case.curves.loss.until(step)
    window = points[-max(_LEAST, round(_SHARE * len(points))) :]
    values = sorted(value for _, value in window)
    loss = middle(values) if values else None
    error = sigma = None
    if loss is not None and len(values) >= _LEAST:
        spread = MAD_TO_SIGMA * middle(sorted(abs(value - loss) for value in values))
        error = MEDIAN_ERROR * spread / math.sqrt(len(values))
        sigma = noise.within([value for _, value in points], len(values), error)
    results = [] if case.curves.validation is None else case.curves.validation.until(step)
    found, at = (results[-1][1], results[-1][0]) if results else (None, None)
    return Compared(case.name, step, tokens, loss, error, found, at), sigma


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

#: Of these, what somebody chose: the others follow from it, or from chance.
_CHOSEN = ("framework", "ranks", "planned steps", "highest learning rate", "tokens per step")


def _differences(cases: Sequence[Case]) -> list[tuple[str, tuple[str, ...]]]:
    found = []
    for name, tell in _FACTS.items():
        values = tuple(tell(case) for case in cases)
        if len(set(values)) > 1:
            found.append((name, values))
    return found[:_MOST_DIFFERENCES]
