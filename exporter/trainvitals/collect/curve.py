"""The loss of a rank over its steps, in a bounded number of points: spikes stay, however long the run is."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from trainvitals.telemetry import Step, Steps, parts_of

#: Pieces of a curve, of each of which the lowest and the highest value are kept.
PIECES = 300
#: Numbers of a piece: where it begins and ends; the lowest and highest value and their steps; the first step without a
#: number (or -1); whether a new attempt begins with it.
_BEGIN, _END, _LOW_STEP, _LOW, _HIGH_STEP, _HIGH, _BAD, _ANEW = range(8)
_SIZE = 8
#: Values may become known so many steps late; further back it is another attempt.
_LATE = 16
_LARGEST_STEP = 2**53

_Piece: TypeAlias = tuple[float, float, float, float, float, float, float, float]


class LossCurve:
    """Takes steps as they come; ``name`` is the value that is drawn.

    A piece stands for so many points; when there are too many pieces, each two become one that stands for twice as
    many.  No piece is over two attempts, as long as there are fewer attempts than pieces.
    """

    def __init__(self, name: str = "loss", pieces: int = PIECES) -> None:
        self._name = name
        self._most = pieces
        self._pieces = array("d")
        #: Points of a full piece, and of the last one.
        self._width = 1
        self._filled = 0

    def take(self, steps: Sequence[Step]) -> None:
        """Take the next steps; those that say nothing are left out."""
        for part in parts_of(steps):
            if isinstance(part, Steps):
                column = part.columns.get(self._name)
                if column is not None:
                    for number, value in zip(part.numbers, column, strict=True):
                        self._add(number, value)
            else:
                for step in part:
                    if self._name in step.values:
                        self._add(step.step, step.values[self._name])

    def _add(self, step: int, value: float) -> None:
        if not -_LARGEST_STEP < step < _LARGEST_STEP:
            return
        pieces = self._pieces
        anew = len(pieces) > 0 and step < pieces[-_SIZE + _END] - _LATE
        if self._filled >= self._width or not pieces or anew:
            pieces.extend((step, step, step, math.inf, step, -math.inf, -1.0, float(anew)))
            self._filled = 0
        self._filled += 1
        pieces[-_SIZE + _END] = max(pieces[-_SIZE + _END], step)
        if math.isfinite(value):
            if value < pieces[-_SIZE + _LOW]:
                pieces[-_SIZE + _LOW], pieces[-_SIZE + _LOW_STEP] = value, step
            if value > pieces[-_SIZE + _HIGH]:
                pieces[-_SIZE + _HIGH], pieces[-_SIZE + _HIGH_STEP] = value, step
        elif pieces[-_SIZE + _BAD] < 0.0:
            pieces[-_SIZE + _BAD] = max(step, 0)
        if len(pieces) > self._most * _SIZE:
            self._pieces = _halved(pieces)
            self._width *= 2
            # The last piece may be any part of a new one: it is full when it has as many points again.
            self._filled = 0

    def __len__(self) -> int:
        return len(self._pieces) // _SIZE

    def copy(self) -> LossCurve:
        """Return the curve as it is now, for another thread to draw."""
        other = LossCurve(self._name, self._most)
        other._pieces, other._width, other._filled = self._pieces[:], self._width, self._filled
        return other

    def points(self, most: int = PIECES) -> tuple[list[list[float | None]], list[list[int]]]:
        """Return the curve in at most twice so many points [step, value], and where there was no number [from, to].

        A point without a value parts two attempts.
        """
        pieces = self._pieces
        while len(pieces) > most * _SIZE:
            pieces = _halved(pieces)
        points: list[list[float | None]] = []
        bad: list[list[int]] = []
        goes_on = False
        for begin, end, low_step, low, high_step, high, odd, anew in _each(pieces):
            if anew and points:
                points.append([begin, None])
            is_empty = low > high
            if odd >= 0.0:
                until = int(end if is_empty else odd)
                if goes_on and not anew:
                    bad[-1][1] = until
                else:
                    bad.append([int(odd), until])
            goes_on = odd >= 0.0
            if is_empty:
                continue
            points.append([low_step, low] if low_step <= high_step else [high_step, high])
            if low_step != high_step:
                points.append([high_step, high] if low_step < high_step else [low_step, low])
        return points, bad

    def draw(self, most: int = PIECES, stretches: int = 16) -> dict[str, Any]:
        """Return :meth:`points` as JSON has them: steps, values with six digits, and the first stretches without."""
        points, bad = self.points(most)
        return {
            "steps": [int(step or 0) for step, _ in points],
            "values": [None if value is None else float(f"{value:.6g}") for _, value in points],
            "bad": bad[:stretches],
        }


def _each(pieces: array[float]) -> Iterator[_Piece]:
    return zip(*[iter(pieces)] * _SIZE, strict=True)


def _halved(pieces: array[float]) -> array[float]:
    """Put each two pieces of one attempt together; where that leaves too many, attempts are put together too."""
    for over_attempts in (False, True):
        found = array("d")
        before: _Piece | None = None
        for piece in _each(pieces):
            if before is None:
                before = piece
            elif piece[_ANEW] and not over_attempts:
                found.extend(before)
                before = piece
            else:
                found.extend(_together(before, piece))
                before = None
        if before is not None:
            found.extend(before)
        if len(found) <= len(pieces) * 3 // 4:
            break
    return found


def _together(one: _Piece, other: _Piece) -> _Piece:
    low = one if one[_LOW] <= other[_LOW] else other
    high = one if one[_HIGH] >= other[_HIGH] else other
    bad = one if one[_BAD] >= 0.0 else other
    end = max(one[_END], other[_END])
    return (one[_BEGIN], end, low[_LOW_STEP], low[_LOW], high[_HIGH_STEP], high[_HIGH], bad[_BAD], one[_ANEW])
