"""What changed in a run, since which step: found in the steps, the counters and the lineage of one rank.

A change is one of a value that should stay (batch size), or a jump of one that moves smoothly (the learning rate):
it is no judgement.  All is compared over attempts as well: a run that goes on with another data set has changed it.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from trainvitals.collect.base import Sink
from trainvitals.collect.source import Source
from trainvitals.telemetry import Event, Identity, Step

#: A learning rate jumps when it is so many times the one before, or less than one part of so many, and when it moves
#: so many times faster than before: a warm-up, a cosine and a decay are smooth, a restart and a step decay are not.
#: Chosen so that ReduceLROnPlateau's usual factor of 0.5 is a jump and a linear warm-up's first doubling is none.
_JUMP, _FASTER = 1.5, 3.0
#: Samples or tokens of a step have changed when their mean over so many steps or more did by such a factor: the last
#: batch of an epoch is smaller, and packed texts vary.
_WINDOW = 16
_LEVELS = {"samples": ("batch_size", 1.2), "tokens": ("tokens_per_step", 1.5)}
#: Values of steps that are looked at.
_WATCHED = frozenset({"learning_rate", "loss_scale", "batch_size", "world_size"})
#: Tables of a lineage.
SUBJECTS = ("config", "dataset", "model", "code", "packages", "environment", "platform")
#: Differences that are shown of a change, and characters of a name and a value.
_MOST_SHOWN, _LONGEST = 6, 64
_MOST_ROWS = 256

Difference = tuple[str, str, str]


@dataclass
class Change:
    """The last change of a kind: what it was (name, before, after) and when it came."""

    step: int
    time: float
    differences: tuple[Difference, ...]


@dataclass
class _Level:
    """The mean of a step over a window, from the counters of the polls."""

    mean: float | None = None
    #: A mean that is another; it counts when the next window agrees, for the change lies somewhere in this one.
    other: float | None = None
    #: The step since which it is another.
    step: int = 0
    #: Steps and amount where the window began.
    count: int = 0
    amount: float = 0.0


@dataclass
class Changes:
    """The changes of one rank."""

    counts: Counter[str] = field(default_factory=Counter)
    last: dict[str, Change] = field(default_factory=dict)
    #: The hash of each table of the newest attempt.
    hashes: dict[str, str] = field(default_factory=dict)
    _tables: dict[str, bytes] = field(default_factory=dict)
    _identity: Identity | None = None
    _source: Hashable = None
    _started: float = -math.inf
    _step: int = -1
    _values: dict[str, float] = field(default_factory=dict)
    _slope: tuple[int, float | None] = (0, None)
    _levels: dict[str, _Level] = field(default_factory=dict)

    def follow(self, source: Source) -> None:
        """Take what a poll found in a source of the rank; an older attempt that still ends is left out."""
        if source.incarnation != self._source:
            if source.started < self._started:
                return
            self._begin(source)
        elif self._identity is not None and self._identity.attempt != source.identity.attempt:
            # A log goes on where another attempt writes into it.
            self._slope = (0, None)
            self._compare_identities(self._identity, source)
        for event in source.events:
            self._take(event)
        for step in source.steps:
            self._observe(step)
        for name, (kind, factor) in _LEVELS.items():
            self._measure(name, kind, factor, source)
        self._identity = source.identity

    def _begin(self, source: Source) -> None:
        before = self._identity
        self._source, self._started = source.incarnation, source.started
        self._slope = (0, None)
        for level in self._levels.values():
            level.count, level.amount = 0, 0.0
        if before is not None:
            self._compare_identities(before, source)

    def _compare_identities(self, before: Identity, source: Source) -> None:
        who = source.identity
        self._note("attempt", source.started, ("attempt", str(before.attempt), str(who.attempt)))
        # The framework is no change: it may become known later than the first poll comes.
        if before.world_size != who.world_size:
            self._note("world_size", source.started, ("world_size", str(before.world_size), str(who.world_size)))

    def _note(self, kind: str, time: float, *differences: Difference, step: int | None = None) -> None:
        self.counts[kind] += 1
        self.last[kind] = Change(self._step if step is None else step, time, differences[:_MOST_SHOWN])

    # Steps ----------------------------------------------------------------------------------------------------------

    def _observe(self, step: Step) -> None:
        self._step = step.step
        for name in step.values.keys() & _WATCHED:
            value = step.values[name]
            if name == "learning_rate":
                self._learning_rate(step, value)
                continue
            before = self._values.get(name)
            self._values[name] = value
            # A scale grows every some thousand steps; to fall is what overflows make it do.
            is_change = 0.0 < value < before if name == "loss_scale" and before is not None else value != before
            if before is not None and is_change and math.isfinite(value):
                self._note(name, step.time, (name, _number(before), _number(value)))

    def _learning_rate(self, step: Step, value: float) -> None:
        if not 0.0 <= value < math.inf:
            return
        before = self._values.get("learning_rate")
        count, speed = self._slope
        self._values["learning_rate"] = value
        if before is None:
            self._slope = (step.count, None)
            return
        # The first value of an attempt is compared with the last one of the attempt before.
        is_first = count == 0
        now = abs(value - before) / max(step.count - count, 1)
        is_far = value > _JUMP * before or _JUMP * value < before
        if is_far and (is_first or (speed is not None and now > _FASTER * speed)):
            self._note("learning_rate", step.time, ("learning_rate", _number(before), _number(value)))
        self._slope = (step.count, None if is_first else now)

    def _measure(self, name: str, kind: str, factor: float, source: Source) -> None:
        level = self._levels.setdefault(name, _Level())
        amount, count = source.counters.get(name, 0.0), int(source.counters.get("steps", 0.0))
        steps = count - level.count
        if not math.isfinite(amount) or amount <= level.amount or steps < _WINDOW:
            return
        mean = (amount - level.amount) / steps
        level.count, level.amount = count, amount
        if level.mean is None or _is_near(mean, level.mean, factor):
            level.mean, level.other = mean, None
        elif level.other is None:
            level.other, level.step = mean, self._step - steps + 1
        elif not _is_near(mean, level.other, factor):
            level.other = mean
        else:
            self._note(kind, source.last_activity, (kind, _number(level.mean), _number(mean)), step=level.step)
            level.mean, level.other = mean, None

    # Lineage --------------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        fields = event.fields
        if event.kind == "change":
            texts = [str(fields.get(name, ""))[:_LONGEST] for name in ("name", "old", "new")]
            texts[0] = texts[0] or str(fields.get("message", ""))[:_LONGEST]
            self._note("reported", event.time, (texts[0], texts[1], texts[2]), step=event.step)
        elif event.kind == "lineage":
            subject, hashed, values = fields.get("subject"), fields.get("hash"), fields.get("values")
            if subject in SUBJECTS and isinstance(hashed, str):
                self._compare(event, str(subject), hashed[:_LONGEST], values if isinstance(values, dict) else None)

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
            step = self._step if event.step < 0 else event.step
            self._note(subject, event.time, *found, step=step)

    # Families -------------------------------------------------------------------------------------------------------

    def add(self, sink: Sink, run: str) -> None:
        """Add the families of the run; without a change and a lineage there are none."""
        for subject, hashed in self.hashes.items():
            sink.add("trainvitals_lineage_info", 1.0, run, subject, hashed)
        for kind, count in self.counts.items():
            sink.add("trainvitals_changes_total", count, run, kind)
        for kind, change in self.last.items():
            sink.add("trainvitals_last_change_step", change.step if change.step >= 0 else None, run, kind)
            sink.add("trainvitals_last_change_timestamp_seconds", change.time, run, kind)
            for name, old, new in dict.fromkeys(change.differences):
                sink.add("trainvitals_last_change_info", 1.0, run, kind, name, old, new)


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
