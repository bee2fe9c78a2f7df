"""Which lines of a block may matter to a format: those that hold one of its needles.

Logs say the same again and again with other numbers, so it is the shapes of lines that are searched, each once.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import compress, count

from trainvitals.follow.recent import LONGEST, MOST, Recent
from trainvitals.follow.text import Shapes, shape


class Needles:
    """Finds the lines that hold one of these byte strings, or one that differs in numbers, blanks and points."""

    def __init__(self, needles: tuple[bytes, ...]) -> None:
        self._shapes = tuple(dict.fromkeys(map(shape, needles)))
        self._known = Recent()
        #: Those of them whose lines may hold a needle.
        self._wanted: set[bytes] = set()

    def lines(self, block: bytes, shapes: Shapes) -> list[tuple[int, bytes]]:
        """Return the places of these lines of a block and what they are; ``shapes`` are those of all its lines."""
        new = self._known.new(shapes.distinct)
        wanted = shapes.distinct & (self._wanted | self._search(new) if new else self._wanted)
        found: list[tuple[int, bytes]] = []
        if not wanted:
            return found
        # In C up to the lines that are wanted.
        place, before = 0, 0
        for number in compress(count(), map(wanted.__contains__, shapes)):
            if number > before:
                place += len(b"\n".join(shapes[before:number])) + 1
            end = place + len(shapes[number])
            found.append((place, block[place:end]))
            place, before = end + 1, number + 1
        return found

    def _search(self, new: AbstractSet[bytes]) -> set[bytes]:
        """Return those of several shapes whose lines may hold a needle; remember all, as far as they are short."""
        text = b"\n".join(new)
        found = set()
        for needle in self._shapes:
            place = text.find(needle)
            while place >= 0:
                end = text.find(b"\n", place)
                end = len(text) if end < 0 else end
                found.add(text[text.rfind(b"\n", 0, place) + 1 : end])
                place = text.find(needle, end)
        self._known.add(new)
        if len(self._wanted) > MOST:
            self._wanted, self._known = set(), Recent()
        self._wanted.update(one for one in found if len(one) <= LONGEST)
        return found
