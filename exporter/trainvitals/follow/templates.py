"""Lines that say the same words again with other numbers: one pattern for all of a line, made from the first one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import methodcaller
from typing import NamedTuple

from trainvitals.follow.text import shape

#: Not all that matches is a number, but all such numbers match, quickly.
_NUMBER = r"([\d.eE+-]+)"
_GROUPS = methodcaller("groups")
_MASKED = shape(b"0")[0]
#: Making a pattern takes as long as reading a hundred lines by words.
MOST = 16


class Word(NamedTuple):
    """What stands before a number, blanks apart; our name of it (empty: none) and what one of ours is in its unit.

    With ``only``, the number must be written so.
    """

    text: str
    name: str
    factor: float = 1.0
    only: str = ""


class _Layout(NamedTuple):
    """Where lines of one shape have their numbers, blanks around them included, by the groups of the pattern.

    Every other character stands in the shape, or at one of the places at which all lines are ``same``.
    """

    shape: bytes
    slots: list[slice]
    same: list[int]

    @classmethod
    def of(cls, found: re.Match[str], outline: bytes) -> _Layout:
        """Return that of a line that a template reads, with this shape."""
        line = found.string
        # Of what stands before the step, a time in brackets may differ.
        slots = [slice(0, line.find("]", 0, found.end(1)) + 1)]
        for group in range(2, len(found.groups()) + 1):
            start, end = found.span(group)
            while line[start - 1] == " ":
                start -= 1
            while line[end : end + 1] == " ":
                end += 1
            slots.append(slice(start, end))
        free = {place for slot in slots for place in range(slot.start, slot.stop)}
        same = [place for place, masked in enumerate(outline) if masked == _MASKED and place not in free]
        return cls(outline, slots, same)


class Template:
    """Reads lines of two whole numbers, a step and of how many, and of words with their numbers between bars.

    ``begin`` is the pattern of what stands before the step, and ``between`` that from the target to the first word.
    """

    def __init__(self, begin: str, between: str, words: Sequence[Word]) -> None:
        parts = [f" *{re.escape(word.text)} *{re.escape(word.only) or _NUMBER} *" for word in words]
        known = [word for word in words if not word.only]
        self._fixed = {word.name: float(word.only) / word.factor for word in words if word.only and word.name}
        self._pattern = re.compile(
            rf"^({begin})(\d{{1,12}})/ *(\d{{1,12}}){between}{'[|]'.join(parts)}[| ]*$", re.MULTILINE
        )
        self._columns = [(place, word.name, word.factor) for place, word in enumerate(known, 3) if word.name]
        self._layout: _Layout | None = None

    def read(self, line: str) -> tuple[str, int, int, dict[str, float]] | None:
        """Return what stands before the step, the step, the target and the values of a line."""
        found = self._pattern.match(line)
        if found is None:
            return None
        groups = found.groups()
        try:
            values = {name: float(groups[place]) / factor for place, name, factor in self._columns}
        except ValueError:
            return None
        return groups[0], int(groups[1]), int(groups[2]), {**values, **self._fixed} if self._fixed else values

    def read_alike(self, lines: Sequence[str]) -> tuple[list[str], list[int], set[str], dict[str, list[float]]] | None:
        """Return the same as :meth:`read_all` of lines that differ in the figures of their numbers only, or None."""
        layout = self._layout_of(lines)
        if layout is None:
            return None
        begin, steps, targets = ([line[part] for line in lines] for part in layout.slots[:3])
        if not all(map(str.isdigit, map(str.strip, [*steps, *set(targets)]))):
            return None
        try:
            columns = {name: _floats(lines, layout.slots[place], factor) for place, name, factor in self._columns}
        except ValueError:
            return None
        columns.update((name, [fixed] * len(lines)) for name, fixed in self._fixed.items())
        return begin, list(map(int, steps)), set(targets), columns

    def _layout_of(self, lines: Sequence[str]) -> _Layout | None:
        """Return where lines have their numbers, if they differ in nothing else."""
        first, text = lines[0], "\n".join(lines) + "\n"
        width = len(first) + 1
        if len(text) != width * len(lines) or not text.isascii():
            return None
        outline = shape(first.encode())
        if self._layout is None or self._layout.shape != outline:
            found = self._pattern.match(first)
            if found is None:
                return None
            self._layout = _Layout.of(found, outline)
        if shape(text.encode()) != (outline + b"\n") * len(lines):
            return None
        if any(text[place::width] != first[place] * len(lines) for place in self._layout.same):
            return None
        return self._layout

    def match(self, lines: Sequence[str]) -> list[re.Match[str] | None]:
        """Return which of several lines it reads, for :meth:`read_all`."""
        return list(map(self._pattern.match, lines))

    def read_all(
        self, found: Sequence[re.Match[str]]
    ) -> tuple[Sequence[str], list[int], set[str], dict[str, list[float]]]:
        """Return the same of several lines, the values in columns, and of their targets those that there are.

        ValueError where something is no number.
        """
        columns = list(zip(*map(_GROUPS, found), strict=True))
        values = {name: [float(text) / factor for text in columns[place]] for place, name, factor in self._columns}
        values.update((name, [fixed] * len(found)) for name, fixed in self._fixed.items())
        return columns[0], list(map(int, columns[1])), set(columns[2]), values


def _floats(lines: Sequence[str], part: slice, factor: float) -> list[float]:
    """Return the numbers in a part of lines.  ValueError where one is none."""
    if factor == 1.0:
        return [float(line[part]) for line in lines]
    return [float(line[part]) / factor for line in lines]
