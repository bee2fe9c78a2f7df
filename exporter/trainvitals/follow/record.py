"""Records of named values, as JSON lines and printed dicts of trainers hold them, turned into rows.

Sources of the names: the Hugging Face Trainer's log (``eval_`` before results; a last record with ``train_runtime``
and the mean of all losses), LLaMA-Factory's ``trainer_log.jsonl`` (current_steps, total_steps, elapsed_time "0:02:51",
``throughput`` in tokens a second, also as a string), ms-swift's ``logging.jsonl`` ("global_step/max_steps": "5/94",
"memory(GiB)", "train_speed(iter/s)" and later "train_speed(s/it)").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import orjson

from trainvitals import names
from trainvitals.follow.base import Facts, Item, Piece, Row, Rows
from trainvitals.follow.columns import floats, wholes
from trainvitals.follow.text import timestamp

#: Names of the number of the step, the best first; epochs last, and only where there is no other.
STEPS = (
    "step", "global_step", "trainer/global_step", "train/global_step", "_step", "iteration", "iter", "iters", "steps",
    "current_steps", "global_step/max_steps", "num_updates", "update", "train_step", "epoch", "epochs",
)  # fmt: skip
TIMES = ("time", "timestamp", "_timestamp", "wall_time", "wall time", "datetime", "date")
_TARGETS = ("total_steps", "max_steps", "total_iters", "num_steps")
#: A number of seconds since the epoch, and not since a start: September 2001 and later.
EARLIEST = 1e9

#: Names with a unit: ours, and what one of theirs is in our unit.
_UNITS: dict[str, tuple[str, float]] = {
    "elapsed_time": ("elapsed_seconds", 1.0),
    "memory(GiB)": ("memory_bytes", 2.0**30),
    "throughput": ("tokens_per_second", 1.0),
    "train_speed(iter/s)": ("steps_per_second", 1.0),
    "train_speed(s/it)": ("step_seconds", 1.0),
    # Said by the step and its target already.
    "percentage": ("", 1.0),
    "remaining_time": ("", 1.0),
    "total_flos": ("", 1.0),
}
#: Whoever writes this has ended the training; what stands beside it are means of the whole of it.
_END = "train_runtime"
#: A record has so many values at most; what comes behind is left out, as are names that are longer.
_MAX_VALUES, _MAX_NAME = 512, 200
_MAX_PLANS = 256

_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)")
_SPOKEN = re.compile(r"(?:(\d+)d ?)?(?:(\d+)h ?)?(?:(\d+)m ?)?(?:(\d+)s)?")
_OF = re.compile(r"(\d+)/(\d+)")


def number(value: object) -> float | None:
    """Return the number that a value of a record is: 0.5, "0.5", "nan", "4,096", "5.32%" (0.0532), "0:01:40" (100.0).

    None for what is none: null, true, a list, "bert".
    """
    kind = value.__class__
    if kind is float:
        return value  # type: ignore[return-value]
    if kind is int:
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            return None
    return _from_text(value.strip()) if isinstance(value, str) and len(value) < 64 else None


def _from_text(text: str) -> float | None:
    if _NUMBER.fullmatch(text):
        return float(text.replace(",", ""))
    if text.endswith("%") and _NUMBER.fullmatch(text[:-1]):
        return float(text[:-1].replace(",", "")) / 100.0
    return seconds(text)


def seconds(text: str) -> float | None:
    """Return the seconds of a duration: "1:02:03", "2 days, 1:02:03", "1h 2m 3s", "4m 28s"."""
    if (found := _CLOCK.fullmatch(text)) or (text and (found := _SPOKEN.fullmatch(text))):
        days, hours, minutes, rest = (float(part or 0) for part in found.groups())
    else:
        return None
    return ((days * 24.0 + hours) * 60.0 + minutes) * 60.0 + rest


def wall_time(value: object) -> tuple[float | None, float | None]:
    """Return wall time, or seconds since the start, of what stands in a column for the time."""
    found = number(value)
    if found is None:
        return (timestamp(value) if isinstance(value, str) else None), None
    return place_in_time(found)


def place_in_time(found: float) -> tuple[float | None, float | None]:
    """Return wall time, or seconds since the start, of a number in a column for the time."""
    if not 0.0 <= found < float("inf"):
        return None, None
    while found > 1e11:
        found /= 1e3  # Milliseconds, or microseconds.
    return (found, None) if found >= EARLIEST else (None, found)


def load(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object that a line is, or None.  NaN and Infinity count as numbers, as Python writes them."""
    try:
        record = orjson.loads(text)
    except (ValueError, RecursionError):
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return record if record.__class__ is dict else None


class _Plan(NamedTuple):
    """What the keys of a record are.  Records of one file have few sets of keys, so each is thought about once."""

    step: str
    target: str
    time: str
    is_end: bool
    #: Keys whose values are records themselves: one level of them counts, as "train/loss".
    nested: frozenset[str]
    #: There is nothing but a step and values of training in our units: keys and our names.
    simple: tuple[tuple[str, str], ...]
    training: tuple[tuple[str, str, float], ...]
    results: tuple[tuple[str, tuple[tuple[str, str, float], ...]], ...]


class Records:
    """Turns records into rows.  ``renamed`` maps names of the format to ours, with the factor of the unit.

    ``steps`` and ``times`` are the names that a step and a time may have.
    """

    def __init__(
        self,
        renamed: Mapping[str, tuple[str, float]] | None = None,
        *,
        steps: Iterable[str] = STEPS,
        times: Iterable[str] = TIMES,
    ) -> None:
        self._units = {**_UNITS, **(renamed or {})}
        self._steps, self._times = tuple(steps), tuple(times)
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def rows(self, record: Mapping[str, Any], step: int | None = None, split: str = "") -> tuple[Item, ...]:
        """Return what a record says; ``step`` and ``split`` are what is known of it otherwise."""
        keys = tuple(record)
        plan = self._plans.get(keys) or self._think(keys, record)
        if plan.simple and step is None and record[plan.step].__class__ is int:
            values = {}
            for key, ours in plan.simple:
                value = record[key]
                if value.__class__ is not float:
                    break
                values[ours] = value
            else:
                return (Row(record[plan.step], values, None, None, split),)
        if plan.nested:
            return self.rows(_flat(record, plan.nested), step, split)
        return self._rows(record, plan, step, split)

    def many(self, records: Sequence[dict[str, Any]]) -> list[Piece]:
        """Return what :meth:`rows` would of each of several records, with those that have the same names together."""
        pieces: list[Piece] = []
        for keys, group in groupby(records, tuple):
            alike = list(group)
            plan = self._plans.get(keys) or self._think(keys, alike[0])
            rows = None
            if plan.simple and len(alike) > 1:
                rows = _alike(dict(zip(keys, zip(*map(dict.values, alike), strict=True), strict=True)), plan)
            if rows is not None:
                pieces.append(rows)
            else:
                for record in alike:
                    pieces += self.rows(record)
        return pieces

    def alike(self, columns: Mapping[str, Sequence[Any]]) -> Rows | None:
        """Return the rows of records with the same names, given in columns; None where they are not simple."""
        keys = tuple(columns)
        plan = self._plans.get(keys) or self._think(keys, {key: column[0] for key, column in columns.items()})
        return _alike(columns, plan) if plan.simple else None

    def _rows(self, record: Mapping[str, Any], plan: _Plan, step: int | None, split: str) -> tuple[Item, ...]:
        facts: tuple[Item, ...] = ()
        target = None
        if step is None and plan.step:
            step, target = _step(record[plan.step])
        if plan.target:
            target = _step(record[plan.target])[0]
        if target is not None and target > 0:
            facts = (Facts(target_steps=target),)
        if plan.is_end:
            # The mean of all losses is no loss of a step.
            return (*facts, Facts(finished=0.0))
        moment, elapsed = wall_time(record[plan.time]) if plan.time else (None, None)
        training = _values(record, plan.training)
        if elapsed is not None:
            training["elapsed_seconds"] = elapsed
        found = []
        if training.keys() - _BESIDE:
            found.append(Row(step, training, moment, split=split))
        for name, columns in plan.results:
            if values := _values(record, columns):
                found.append(Row(step, values, moment, split=name))
        return (*facts, *found)

    def _think(self, keys: tuple[str, ...], record: Mapping[str, Any]) -> _Plan:
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        plan = self._plans[keys] = self._plan(keys[:_MAX_VALUES], record)
        return plan

    def _plan(self, keys: Iterable[str], record: Mapping[str, Any]) -> _Plan:
        step, target, moment = _first(self._steps, keys), _first(_TARGETS, keys), _first(self._times, keys)
        training: dict[str, tuple[str, str, float]] = {}
        results: dict[str, dict[str, tuple[str, str, float]]] = {}
        for key in keys:
            if key in {step, target, moment} or not 0 < len(key) <= _MAX_NAME:
                continue
            found = None if key in self._units else names.result(key)
            if found is not None:
                results.setdefault(found.split, {}).setdefault(found.name, (key, found.name, 1.0))
                continue
            ours, factor = self._units.get(key) or (names.ours(key), 1.0)
            if ours:
                # Of two that we call the same, the later keeps the log's name.
                ours = key if ours in training else ours
                training[ours] = (key, ours, factor)
        is_simple = bool(step) and not (target or moment or results or _END in keys)
        is_simple = (
            is_simple and bool(training.keys() - _BESIDE) and all(unit == 1.0 for _, _, unit in training.values())
        )
        return _Plan(
            step=step,
            target=target,
            time=moment,
            is_end=_END in keys,
            nested=frozenset(key for key in keys if record[key].__class__ is dict),
            simple=tuple((key, ours) for key, ours, _ in training.values()) if is_simple else (),
            training=tuple(training.values()),
            results=tuple((split, tuple(columns.values())) for split, columns in results.items()),
        )


def _alike(columns: Mapping[str, Sequence[Any]], plan: _Plan) -> Rows | None:
    """Return the rows of records of one simple plan; None where a value is no number or a step is none."""
    steps = wholes(columns[plan.step])
    values = None if steps is None else floats({ours: columns[key] for key, ours in plan.simple})
    return None if steps is None or values is None else Rows(steps, values)


def _first(wanted: Iterable[str], keys: Iterable[str]) -> str:
    return next((key for key in wanted if key in keys), "")


def _flat(record: Mapping[str, Any], nested: frozenset[str]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if value.__class__ is dict:
            # Deeper ones are no numbers, and so nothing.
            flat.update(
                (f"{key}/{inner}", None if found.__class__ is dict else found) for inner, found in value.items()
            )
        elif key not in nested:
            flat[key] = value
    return flat


#: Values that alone make no step: LLaMA-Factory writes them beside each result, too.
_BESIDE = frozenset({"epoch", "elapsed_seconds", "total_tokens", "memory_bytes", "tokens_per_second"})


def _step(value: object) -> tuple[int | None, int | None]:
    """Return a step and, where it says so, of how many: 5, 5.0, "5", "5/94"."""
    if value.__class__ is int:
        return value, None
    if isinstance(value, str) and (found := _OF.fullmatch(value.strip()[:40])):
        return int(found[1]), int(found[2])
    real = number(value)
    return (int(real), None) if real is not None and abs(real) < 2**63 else (None, None)


def _values(record: Mapping[str, Any], columns: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    values = {}
    for key, ours, factor in columns:
        value = record[key]
        if value.__class__ is not float:
            value = number(value)
            if value is None:
                continue
        values[ours] = value if factor == 1.0 else value * factor
    return values
