"""What a log told already, for logs that say their items again: a few bytes for each item."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from itertools import repeat

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

    def begin_again(self) -> None:
        """Begin to compare: what comes is the log from its begin."""
        self._places = dict.fromkeys(self._marks, 0)
        self._run = ""

    def counts(self) -> dict[str, int]:
        """Return how many items were told, by run."""
        return {run: len(marks) for run, marks in self._marks.items()}

    def new(self, pieces: Iterable[Piece], limits: dict[str, int] | None = None) -> list[Piece]:
        """Return the new ones; with ``limits``, of each run only so many, and the rest is not told.

        Where an item is another one than it was, it and all behind it is new.
        """
        new: list[Piece] = []
        for piece in pieces:
            if not isinstance(piece, Rows):
                new += self._new((piece,), limits)
            elif limits is not None or self._run in self._places or self._run != self._announced:
                new += self._new(piece, limits)
            else:
                self._remember(piece)
                new.append(piece)
        return new

    def _remember(self, rows: Rows) -> None:
        """Add the marks of rows that are new."""
        marks = self._marks.setdefault(self._run, array("q"))
        begin = len(marks)
        marks.extend(map(hash, zip(rows.steps, repeat(""), strict=False)))
        for place in range(begin + -begin % self._every, len(marks), self._every):
            row = Row(rows.steps[place - begin], rows.values[place - begin])
            marks[place] = self._mark(row, place)

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
                del self._places[run]
            if limits is not None and len(marks) >= limits.get(run, 0):
                continue
            marks.append(self._mark(item, len(marks)))
            if run != self._announced:
                self._announced = run
                new.append(Facts(run=run))
            new.append(item)
        return new

    def _mark(self, item: Item, place: int) -> int:
        """Return a number that is another for another item, in all likelihood, whatever the order of its values."""
        if not isinstance(item, Row):
            return hash(repr(item))
        if place % self._every:
            return hash((item.step, item.split))
        try:
            total: object = math.fsum(item.values.values())
        except (ValueError, OverflowError):
            total = None
        # The hash of NaN is another one for each NaN.
        return hash((item.step, item.split, total if total == total else "nan", len(item.values)))  # noqa: PLR0124
