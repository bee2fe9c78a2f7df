"""Lines that say the same words again with other numbers: one pattern for all of a line, made from the first one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import methodcaller
from typing import NamedTuple

#: Not all that matches is a number, but all such numbers match, quickly.
_NUMBER = r"([\d.eE+-]+)"
_GROUPS = methodcaller("groups")
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
