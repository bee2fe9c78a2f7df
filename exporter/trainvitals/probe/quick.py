"""The way of the usual step: the names of the step before, and numbers or tensors of the host.

A training step throws what we touch out of the caches of the processor, so a call costs three times what it costs in
a loop of its own, and most of that is fetching code and tables.  So the fewest things are touched here: plain Python,
words of 8 bytes, no ``struct`` and no checksum by ``zlib`` (5 microseconds each after a step of 1.5 ms).
"""

from __future__ import annotations

import gc
import math
import operator
import struct
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from trainvitals import rankfile
from trainvitals.probe.phases import FRESH, Phases

#: Values that are added up over the run and not drawn as a curve.
CUMULATIVE = ("samples", "tokens")
#: Names that are no values of a record.
SPECIAL = (*CUMULATIVE, "skipped")
NUMBERS = frozenset({float, int, bool})

#: Takes the number of a step and its values.
Step = Callable[[int | None, Mapping[str, Any]], None]

_WORDS = rankfile.RECORD_AREA // 8
#: Words of a record before its values, and before its check.
_HEAD, _CHECK = 5, _WORDS - 1
_AMOUNTS = rankfile.AMOUNTS_OFFSET // 8
#: Frameworks whose tensors the garbage collector may not know.
_UNTRACKED = ("mindspore", "paddle")


class QuickStep:
    """Steps with just these names.

    What is unusual in one (a tensor of a device, a value that is not finite, another name) goes to ``learn`` with
    nothing published: a record counts when its sum does, and it is counted when all is well.
    """

    __slots__ = (
        "_check",
        "_fields",
        "_first",
        "_floats",
        "_folded",
        "_integers",
        "_learn",
        "_map",
        "_mask",
        "_monotonic",
        "_number",
        "_phases",
        "_publish",
        "_slots",
        "_special",
        "_state",
        "_tensor",
        "_width",
        "_words",
    )

    def __init__(
        self,
        names: tuple[str, ...],
        indexes: Mapping[str, int],
        writer: rankfile.Writer,
        phases: Phases,
        *,
        learn: Step,
        number: Callable[[Any], int],
        publish: Callable[[float], None],
    ) -> None:
        """Raise KeyError or ValueError for names that need a closer look in each step."""
        plain = sorted((indexes[name], name) for name in names if name not in SPECIAL)
        if not 0 < len(plain) <= rankfile.VALUES_PER_RECORD:
            raise ValueError(names)
        self._fields = tuple((name, _HEAD + place) for place, (_, name) in enumerate(plain))
        mask = sum(1 << index for index, _ in plain)
        self._mask = mask if mask < 1 << 63 else mask - (1 << 64)
        self._folded = mask % rankfile.MASK_MODULUS
        self._special = tuple(name for name in names if name in SPECIAL)
        self._width = len(names)
        self._floats, self._integers, self._map = writer.floats, writer.integers, writer.map
        self._state = writer.state
        self._phases = phases if phases.is_split else None
        self._learn, self._number, self._publish = learn, number, publish
        self._monotonic = time.monotonic
        # Attributes of this object lie side by side; those of the module do not.
        self._slots, self._words, self._check = rankfile.RING_RECORDS, _WORDS, _CHECK
        self._first = rankfile.RING_OFFSET // 8
        self._tensor: Any = getattr(sys.modules.get("torch"), "Tensor", QuickStep)

    def way(self) -> Step:
        """Return the quickest way for so many names."""
        return self._wide() if len(self._fields) >= rankfile.WIDE else self._take

    def _take(self, given: int | None, values: Mapping[str, Any]) -> None:
        number = given
        try:
            state = self._state
            if number.__class__ is not int:
                number = state.step + 1 if number is None else self._number(number)
            if len(values) == self._width:
                record, count = state.records + 1, state.count + 1
                place = record % self._slots * self._words + self._first
                floats, now = self._floats, self._monotonic()
                # The sum of layout.check_of.
                total = now + (record + count + number + self._folded)
                for name, word in self._fields:
                    value = values[name]
                    if value.__class__ is not float:
                        value = self._plain(value)
                    floats[place + word] = value
                    total += value
                if total - total == 0.0:
                    amounts = _amounts(values, self._special) if self._special else None
                    integers = self._integers
                    integers[place] = record
                    integers[place + 1] = count
                    integers[place + 2] = number
                    floats[place + 3] = now
                    integers[place + 4] = self._mask
                    floats[place + self._check] = total
                    state.records, state.count, state.step = record, count, number
                    if amounts or self._phases:
                        self._end(now, amounts)
                    return
        except Exception:  # noqa: S110  Another name, a value that is no number: the slow way sorts it out.
            pass
        # A number that was looked at is not looked at again; "one more" may have been too much.
        self._learn(None if given is None else number, values)

    def _plain(self, value: Any) -> Any:
        """Return a number; raise for what only a closer look can tell.

        Arithmetic on a tensor would run on its device, and on all ranks where it is a sharded one.
        One of a class that is derived from the usual may do anything when it is asked.
        """
        if value.__class__ is self._tensor and value.is_cpu:
            value = value.item()
        if value.__class__ not in NUMBERS:
            raise TypeError
        return value

    def _end(self, now: float, amounts: tuple[float, float] | None) -> None:
        state = self._state
        if amounts:
            state.samples += amounts[0]
            state.tokens += amounts[1]
            self._floats[_AMOUNTS], self._floats[_AMOUNTS + 1] = state.samples, state.tokens
        if self._phases:
            self._phases.end_step(now)
        if now - state.heartbeat > FRESH:
            self._publish(now)

    def _wide(self) -> Step:
        """Return the same for many names: the values are fetched, looked at, packed and checked by one call each.

        A closure has its tools at hand: in a loop of its own, this takes less than three times the bare writing.
        A dict that the garbage collector ignores holds numbers and texts only, and asking it is the cheapest look.
        """
        first, slots, area = self._first * 8, self._slots, rankfile.RECORD_AREA
        fetch = operator.itemgetter(*(name for name, _ in self._fields))
        packed = rankfile.RECORDS[len(self._fields)]
        pack, crc32, memory = packed.pack, zlib.crc32, self._map
        seal = struct.Struct(f"<{packed.size}s{self._check * 8 - packed.size}xd").pack_into
        # Only the loss has to be finite; without one, any value may stand for it.
        judged = next((place for place, (name, _) in enumerate(self._fields) if name == "loss"), 0)
        state, width, mask, special = self._state, self._width, self._mask % (1 << 64), self._special
        learn, plain, end, whole, phases = self._learn, self._plain, self._end, self._number, self._phases
        is_tracked, only_numbers, monotonic = _tracking(), NUMBERS.issuperset, time.monotonic

        def step(given: int | None, values: Mapping[str, Any]) -> None:
            number = given
            try:
                if number.__class__ is not int:
                    number = state.step + 1 if number is None else whole(number)
                if len(values) == width:
                    read = fetch(values)
                    if is_tracked(values) and not only_numbers(map(type, read)):
                        read = tuple(map(plain, read))
                    loss = read[judged]
                    if loss - loss == 0.0:
                        amounts = _amounts(values, special) if special else None
                        record, count, now = state.records + 1, state.count + 1, monotonic()
                        body = pack(record, count, number, now, mask, *read)
                        seal(memory, record % slots * area + first, body, crc32(body))
                        state.records, state.count, state.step = record, count, number
                        if amounts or phases:
                            end(now, amounts)
                        return
            except Exception:  # noqa: S110  As above.
                pass
            learn(None if given is None else number, values)

        return step


def _tracking() -> Callable[[object], bool]:
    """Return the test for a dict that may hold tensors; with some frameworks the garbage collector cannot tell."""
    return gc.is_tracked if sys.modules.keys().isdisjoint(_UNTRACKED) else lambda _: True


def _amounts(values: Mapping[str, Any], names: tuple[str, ...]) -> tuple[float, float]:
    """Return samples and tokens of a usual step; raises an exception for one that is not."""
    for name in names:
        if values[name].__class__ not in NUMBERS:
            raise TypeError
    samples = float(values["samples"]) if "samples" in names else 0.0
    tokens = float(values["tokens"]) if "tokens" in names else 0.0
    skipped = values["skipped"] if "skipped" in names else False
    if 0.0 <= samples < math.inf and 0.0 <= tokens < math.inf and not skipped:
        return samples, tokens
    raise ValueError
