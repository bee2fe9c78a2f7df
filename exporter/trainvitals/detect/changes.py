"""What changed in a run, since which step: found in its steps and events.

A change is one of a value that should stay (batch size), or a jump of one that moves smoothly (the learning rate):
it is no judgement.  All is compared over attempts as well: a run that goes on with another data set has changed it.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainvitals.detect.segments import SETTINGS
from trainvitals.telemetry import Event, Identity, Step, Steps

#: A learning rate jumps when it is so many times the one before, or less than one part of so many, and when it moves
#: so many times faster than before: a warm-up, a cosine and a decay are smooth, a restart and a step decay are not.
#: Chosen so that ReduceLROnPlateau's usual factor of 0.5 is a jump and a linear warm-up's first doubling is none.
_JUMP, _FASTER = 1.5, 3.0
#: Rates are looked at by so many, as long as none of these can be a jump.
_FEW = 64
#: Samples or tokens of a step have changed when their mean over so many steps or more did by such a factor: the last
#: batch of an epoch is smaller, and packed texts vary.
_WINDOW = 16
LEVELS = {"samples": ("batch_size", 1.2), "tokens": ("tokens_per_step", 1.5)}
#: Values of steps that should stay, and the kind of change that another one is.
STEADY = {**SETTINGS, "loss_scale": "loss_scale"}
#: Tables of a lineage.
SUBJECTS = ("config", "dataset", "model", "code", "packages", "environment", "platform")
#: Differences that are shown of a change, and characters of a name and a value.
_MOST_SHOWN, _LONGEST = 6, 64
_MOST_ROWS = 256
#: So many changes are remembered one by one, and so many times of steps.
_REMEMBERED, _TIMES = 256, 512
#: Seconds between two of these times, at least.
_PACE = 10.0
#: Consequences and no causes.
_SYMPTOMS = frozenset({"loss_scale"})
#: Errors of the log that are remembered, and the seconds around a finding within which a fault belongs to it.
_ERRORS, NEAR = 32, 60.0
#: What a change is called; others by their kind, or by what differs.
_NAMED = {"attempt": "restart", "reported": ""}
#: How many differences of one change are told in words.
_TOLD = 2

Difference = tuple[str, str, str]


@dataclass
class Change:
    """A change: what it was (name, before, after) and when it came.

    ``since`` is the first step that it was in force for: an attempt may begin before the step that it ended at.
    """

    kind: str
    step: int
    time: float
    differences: tuple[Difference, ...]
    since: int

    def __str__(self) -> str:
        """Say it in words: "learning rate 0.001 -> 0.003 at step 1200"."""
        name = _NAMED.get(self.kind, self.kind.replace("_", " "))
        told = [_told(name, difference) for difference in self.differences[:_TOLD]]
        more = len(self.differences) - _TOLD
        text = ", ".join(told) + (f" and {more} more" if more > 0 else "")
        return f"{text} at step {self.since}" if self.since >= 0 else text


def _told(kind: str, difference: Difference) -> str:
    name, old, new = difference
    plain = name.replace("_", " ")
    if kind == "restart":
        return f"restart (attempt {new})"
    what = plain if kind in {"", plain} else f"{kind} {name}"
    return f"{what} {old} -> {new}" if old or new else what


@dataclass
class _Level:
    """The mean of a step over a window."""

    mean: float | None = None
    #: A mean that is another; it counts when the next window agrees, for the change lies somewhere in this one.
    other: float | None = None
    #: The step since which it is another.
    step: int = 0
    #: Steps and amount of the present window.
    steps: int = 0
    amount: float = 0.0


@dataclass
class ChangeWatch:
    """Takes steps and events in order; ``counts`` and ``last`` are by kind, ``recent`` are the newest in order."""

    counts: Counter[str] = field(default_factory=Counter)
    last: dict[str, Change] = field(default_factory=dict)
    recent: deque[Change] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    #: The hash of each table of the newest attempt.
    hashes: dict[str, str] = field(default_factory=dict)
    _tables: dict[str, bytes] = field(default_factory=dict)
    _step: int = -1
    _values: dict[str, float] = field(default_factory=dict)
    _slope: tuple[int, float | None] = (0, None)
    _levels: dict[str, _Level] = field(default_factory=dict)
    #: Changes behind which no step came yet.
    _waiting: list[Change] = field(default_factory=list)
    #: Steps and their times, some seconds apart, or more; errors of the log.
    _times: list[tuple[int, float]] = field(default_factory=list)
    _errors: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=_ERRORS))

    def note(self, kind: str, time: float, *differences: Difference, step: int | None = None) -> None:
        """Take a change that was found elsewhere; it is that of the last step, unless one is given."""
        at = self._step if step is None else step
        change = Change(kind, at, time, differences[:_MOST_SHOWN], at)
        self.counts[kind] += 1
        self.last[kind] = change
        self.recent.append(change)
        if step is None:
            self._waiting.append(change)

    # Steps ----------------------------------------------------------------------------------------------------------

    def begin_attempt(self) -> None:
        """Compare the first learning rate that comes with the last one, however fast it moves."""
        self._slope = (0, None)

    def compare(self, before: Identity, after: Identity, time: float) -> None:
        """Compare two attempts.  The framework is no change: it may become known late."""
        self.note("attempt", time, ("attempt", str(before.attempt), str(after.attempt)))
        if before.world_size != after.world_size:
            self.note("world_size", time, ("world_size", str(before.world_size), str(after.world_size)))

    def take(self, item: Step | Steps | Event) -> None:
        """Take what comes next, as :func:`trainvitals.detect.engine.in_order` gives it; samples are those of steps."""
        if isinstance(item, Steps):
            self.observe_all(item)
            self.measure_all(item)
        elif isinstance(item, Step):
            self.observe(item)
            if not LEVELS.keys().isdisjoint(item.values):
                self.measure_all((item,))
        else:
            self.observe_event(item)

    def observe(self, step: Step) -> None:
        """Take the next step."""
        self._arrive(step.step, step.time)
        values = step.values
        rate = values.get("learning_rate")
        if rate is not None:
            self._learning_rate(step.step, step.count, step.time, rate)
        for name in values.keys() & STEADY.keys():
            self._steady(name, step.step, step.time, values[name])
        self._step = step.step

    def observe_all(self, steps: Steps) -> None:
        """Take the next steps: where a column is even, its end is enough."""
        if not len(steps):
            return
        numbers, times, columns = steps.numbers, steps.times, steps.columns
        self._arrive(numbers[0], times[0])
        if "learning_rate" in columns:
            self._rates(steps, columns["learning_rate"])
        for name in columns.keys() & STEADY.keys():
            column = columns[name]
            if name not in self._values or column.count(self._values[name]) != len(column):
                for number, moment, value in zip(numbers, times, column, strict=True):
                    self._steady(name, number, moment, value)
        self._step = numbers[-1]
        self._arrive(numbers[-1], times[-1])

    def _arrive(self, number: int, moment: float) -> None:
        for change in self._waiting:
            # An attempt may begin before the step that the one before it came to.
            change.since = min(change.since, number) if change.since >= 0 else number
        self._waiting.clear()
        times = self._times
        if not times or abs(moment - times[-1][1]) >= _PACE or number < times[-1][0]:
            times.append((number, moment))
            if len(times) > _TIMES:
                # Long ago they are further apart.
                del times[1 : _TIMES // 2 : 2]

    def _steady(self, name: str, number: int, moment: float, value: float) -> None:
        before = self._values.get(name)
        if value == before:
            return
        self._values[name] = value
        # A scale grows every some thousand steps; to fall is what overflows make it do.
        falls_only = name == "loss_scale"
        if before is not None and math.isfinite(value) and (not falls_only or 0.0 < value < before):
            self.note(STEADY[name], moment, (STEADY[name], _number(before), _number(value)), step=number)

    def _rates(self, steps: Steps, rates: list[float]) -> None:
        before = self._values.get("learning_rate")
        low, high = steps.extent("learning_rate")
        count = self._slope[0]
        if before is not None and count and 0.0 <= low and high < math.inf:
            low, high = min(low, before), max(high, before)
            # No value can be far from the one before it.
            if not (high > _JUMP * low or _JUMP * low < high):
                end = steps.first + len(rates) - 1
                if len(rates) > 1:
                    self._slope = (end, abs(rates[-1] - rates[-2]))
                else:
                    self._slope = (end, abs(rates[0] - before) / max(end - count, 1))
                self._values["learning_rate"] = rates[-1]
                return
        if len(rates) > _FEW:
            # A schedule moves far over many steps, and seldom over few.
            for begin in range(0, len(rates), _FEW):
                part = steps.part(begin, begin + _FEW)
                self._rates(part, part.columns["learning_rate"])
            return
        numbers = zip(steps.numbers, steps.times, rates, strict=True)
        for place, (number, moment, rate) in enumerate(numbers, steps.first):
            self._learning_rate(number, place, moment, rate)

    def _learning_rate(self, number: int, at: int, moment: float, value: float) -> None:
        if not 0.0 <= value < math.inf:
            return
        before = self._values.get("learning_rate")
        count, speed = self._slope
        self._values["learning_rate"] = value
        if before is None:
            self._slope = (at, None)
            return
        # The first value of an attempt is compared with the last one of the attempt before.
        is_first = count == 0
        now = abs(value - before) / max(at - count, 1)
        is_far = value > _JUMP * before or _JUMP * value < before
        if is_far and (is_first or (speed is not None and now > _FASTER * speed)):
            self.note("learning_rate", moment, ("learning_rate", _number(before), _number(value)), step=number)
        self._slope = (at, None if is_first else now)

    def begin_levels(self) -> None:
        """Forget the windows that are open: counters begin again."""
        for level in self._levels.values():
            level.steps, level.amount = 0, 0.0

    def measure_all(self, steps: Sequence[Step]) -> None:
        """Measure what these steps say of their samples and tokens; :meth:`observe` comes first."""
        for name in LEVELS:
            if isinstance(steps, Steps):
                column = steps.columns.get(name)
                amounts = column if column is not None else []
            else:
                amounts = [step.values[name] for step in steps if name in step.values]
            if amounts:
                self.measure(name, len(amounts), sum(amounts), steps[-1].time)

    def measure(self, name: str, steps: int, amount: float, moment: float) -> None:
        """Take the samples or tokens of the last steps, all together; a window that is too short waits for more."""
        kind, factor = LEVELS[name]
        level = self._levels.setdefault(name, _Level())
        if not 0.0 < amount < math.inf:
            return
        level.steps, level.amount = level.steps + steps, level.amount + amount
        if level.steps < _WINDOW:
            return
        mean, steps = level.amount / level.steps, level.steps
        level.steps, level.amount = 0, 0.0
        if level.mean is None or _is_near(mean, level.mean, factor):
            level.mean, level.other = mean, None
        elif level.other is None:
            level.other, level.step = mean, self._step - steps + 1
        elif not _is_near(mean, level.other, factor):
            level.other = mean
        else:
            self.note(kind, moment, (kind, _number(level.mean), _number(mean)), step=level.step)
            level.mean, level.other = mean, None

    # Events ---------------------------------------------------------------------------------------------------------

    def observe_event(self, event: Event) -> None:
        """Take the next event: a change, a lineage, a restart, an error of the log."""
        fields = event.fields
        if event.kind == "change":
            texts = [str(fields.get(name, ""))[:_LONGEST] for name in ("name", "old", "new")]
            texts[0] = texts[0] or str(fields.get("message", ""))[:_LONGEST]
            self.note("reported", event.time, (texts[0], texts[1], texts[2]), step=event.step)
        elif event.kind == "lineage":
            subject, hashed, values = fields.get("subject"), fields.get("hash"), fields.get("values")
            if subject in SUBJECTS and isinstance(hashed, str):
                self._compare(event, str(subject), hashed[:_LONGEST], values if isinstance(values, dict) else None)
        elif event.kind == "restart":
            self._restart(event)
        elif event.kind == "log_error" and fields.get("root"):
            self._errors.append((event.time, str(fields.get("cause", ""))[:_LONGEST].replace("_", " ")))

    def _restart(self, event: Event) -> None:
        attempt = str(event.fields.get("attempt", ""))[:_LONGEST]
        known = self.last.get("attempt")
        # The identity of its source may have told before.
        if attempt and (known is None or known.differences[0][2] != attempt):
            self.begin_attempt()
            self.note("attempt", event.time, ("attempt", "", attempt))

    def _compare(self, event: Event, subject: str, hashed: str, values: Mapping[str, object] | None) -> None:
        before, known = self.hashes.get(subject), self._tables.get(subject)
        self.hashes[subject] = hashed
        rows: dict[str, str] = {}
        if values is not None:
            pairs = list(values.items())[:_MOST_ROWS]
            rows = {str(name)[:128]: value[:128] for name, value in pairs if isinstance(value, str)}
            # A thousand ranks may bring one each.
            self._tables[subject] = zlib.compress(json.dumps(rows).encode(), 1)
        if before is None or before == hashed:
            return
        if known is None or values is None:
            found = [(subject, before, hashed)]
        else:
            found = list(_differences(subject, json.loads(zlib.decompress(known)), rows))
        if found:
            self.note(subject, event.time, *found, step=None if event.step < 0 else event.step)

    # What came before a finding -------------------------------------------------------------------------------------

    def before(self, step: int, most: int = 3) -> list[Change]:
        """Return the last changes that were in force at a step, the nearest first; symptoms are left out."""
        found = [change for change in self.recent if change.since <= step and change.kind not in _SYMPTOMS]
        # Of changes at one step the one that came last is the nearest.
        found.reverse()
        found.sort(key=lambda change: -change.since)
        return found[:most]

    def time_of(self, step: int) -> float | None:
        """Return about when a step was, in its newest attempt; None where that is not remembered."""
        after: tuple[int, float] | None = None
        for number, moment in reversed(self._times):
            if number <= step:
                if after is None or after[0] <= number:
                    return moment
                return moment + (after[1] - moment) * (step - number) / (after[0] - number)
            after = (number, moment)
        return None

    def errors_near(self, moment: float) -> list[str]:
        """Return the errors of the log within a minute of a time, in words."""
        return list(dict.fromkeys(text for time, text in self._errors if abs(time - moment) <= NEAR))


def in_words(changes: Sequence[Change], faults: Sequence[str] = ()) -> str:
    """Return what came before a finding as a part of a sentence; empty where there was nothing."""
    parts = []
    if changes:
        parts.append("before it: " + "; ".join(map(str, changes)))
    if faults:
        parts.append("in the same minute: " + "; ".join(faults))
    return "; ".join(parts)


def _differences(subject: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    """Yield what differs between two tables.

    A package that is missing was not imported yet; a row of a cut table may be behind the cut.
    """
    both_only = subject == "packages" or "..." in old or "..." in new
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, ""), new.get(name, "")
        if before != after and name != "..." and not (both_only and (name not in old or name not in new)):
            yield name[:_LONGEST], before[:_LONGEST], after[:_LONGEST]


def _is_near(one: float, other: float, factor: float) -> bool:
    return other / factor < one < other * factor


def _number(value: float) -> str:
    return f"{value:.6g}"
