"""What a log told already, for logs that say their items again: a few bytes for each item."""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Iterable

from trainvitals.follow.base import Facts, Item, Piece, Row, Rows


class Told:
    """Passes on the items of one log that are new, run by run of those in it.

    The values of every item are compared, or (``every``) of one in so many; of the others the step.
    """

    def __init__(self, every: int = 1) -> None:
        self._every = every
        self._marks: dict[str, array[int]] = {}
        #: Of runs whose items are compared with those that were told: the place of the next one.
        self._places: dict[str, int] = {}
        self._run = ""
        self._announced = ""
        #: Checksums of the items at the places 0, 1, 3, 7, 15, ..., which are the same in any process.
        self._samples: dict[str, list[int]] = {}
        #: Of runs of which more was told before a restart: how much, and what it was.
        self._owed: dict[str, int] = {}
        self._wanted: dict[str, list[int]] = {}

    def owe(self, counts: dict[str, int], samples: dict[str, list[int]]) -> None:
        """Take so many items as told, as long as they are what they were: the file may have been written again."""
        self._owed = {run: count for run, count in counts.items() if count > len(self._marks.get(run, ()))}
        self._wanted = samples

    def begin_again(self) -> None:
        """Begin to compare: what comes is the log from its begin."""
        self._places = dict.fromkeys(self._marks, 0)
        self._run = ""

    def announce_again(self) -> None:
        """Name the run before the next item, in a log that has several."""
        self._announced = ""

    def counts(self) -> dict[str, int]:
        """Return how many items were told, by run."""
        return {run: len(marks) for run, marks in self._marks.items()} | self._owed

    def samples(self) -> dict[str, list[int]]:
        """Return what to know them by after a restart."""
        owed = {run: self._wanted.get(run, []) for run in self._owed}
        return {run: list(samples) for run, samples in self._samples.items()} | owed

    def new(self, pieces: Iterable[Piece], limits: dict[str, int] | None = None) -> list[Piece]:
        """Return the new ones; with ``limits``, of each run only so many, and the rest is not told.

        Where an item is another one than it was, it and all behind it is new.
        """
        new: list[Piece] = []
        for piece in pieces:
            if not isinstance(piece, Rows):
                new += self._new((piece,), limits)
            elif limits is not None or self._run in self._places or self._run != self._announced or self._owed:
                new += self._new(piece, limits)
            else:
                self._remember(piece)
                new.append(piece)
        return new

    def _remember(self, rows: Rows) -> None:
        """Add the marks of rows that are new."""
        marks = self._marks.setdefault(self._run, array("q"))
        begin = len(marks)
        end = begin + len(rows)
        place = _next_sample(begin)
        while place < end:
            self._sample(rows[place - begin])
            place = 2 * place + 1
        marks.extend(map(hash, rows.steps))
        some = range(-begin % self._every, len(rows), self._every)
        columns = [column[some.start :: self._every] for column in rows.columns.values()]
        for place, total in zip(some, map(_total, zip(*columns, strict=True)), strict=True):
            marks[begin + place] = hash((rows.steps[place], "", total, len(columns)))

    def _new(self, items: Iterable[Item], limits: dict[str, int] | None) -> list[Item]:
        new: list[Item] = []
        for item in items:
            if isinstance(item, Facts) and item.run:
                self._run = item.run
            run = self._run
            marks = self._marks.get(run)
            if marks is None:
                marks = self._marks[run] = array("q")
            if run in self._places:
                place = self._places[run]
                if place < len(marks) and marks[place] == self._mark(item, place):
                    self._places[run] = place + 1
                    continue
                del marks[place:]
                del self._samples.setdefault(run, [])[place.bit_length() :]
                del self._places[run]
            place = len(marks)
            if limits is not None and place >= limits.get(run, 0):
                continue
            marks.append(self._mark(item, place))
            if place & (place + 1) == 0:
                self._sample(item)
            if run in self._owed:
                if place < self._owed[run] and self._is_wanted(place):
                    continue
                del self._owed[run]
            if run != self._announced:
                self._announced = run
                new.append(Facts(run=run))
            new.append(item)
        return new

    def _sample(self, item: Item) -> None:
        self._samples.setdefault(self._run, []).append(_checksum(item))

    def _is_wanted(self, place: int) -> bool:
        """Whether the item at a place of the run is the one that was there before the restart, as far as is known."""
        if place & (place + 1):
            return True
        wanted = self._wanted.get(self._run, [])
        number = place.bit_length()
        return number >= len(wanted) or self._samples[self._run][number] == wanted[number]

    def _mark(self, item: Item, place: int) -> int:
        """Return a number that is another for another item, in all likelihood, whatever the order of its values."""
        if not isinstance(item, Row):
            return hash(repr(item))
        if place % self._every:
            return hash((item.step, item.split) if item.split else item.step)
        return hash((item.step, item.split, _total(item.values.values()), len(item.values)))


def _next_sample(place: int) -> int:
    """Return the first of 0, 1, 3, 7, ... that is not less."""
    return (1 << place.bit_length()) - 1


def _total(values: Iterable[float]) -> float | str | None:
    try:
        total = math.fsum(values)
    except (ValueError, OverflowError):
        return None
    # The hash of NaN is another one for each NaN.
    return total if total == total else "nan"  # noqa: PLR0124


def _checksum(item: Item) -> int:
    if not isinstance(item, Row):
        return zlib.crc32(repr(item).encode("utf-8", "replace"))
    values = sorted((name, repr(value)) for name, value in item.values.items())
    return zlib.crc32(repr((item.step, item.split, values)).encode("utf-8", "replace"))
