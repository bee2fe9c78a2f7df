"""What was seen not long ago, in bounded memory."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

#: Shapes of lines that are remembered: so many, of so many bytes each.  More lines than that are prose.
MOST, LONGEST = 20_000, 1024


class Recent:
    """A set of byte strings, of which those that do not come again are forgotten."""

    def __init__(self) -> None:
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def new(self, some: AbstractSet[bytes]) -> AbstractSet[bytes]:
        """Return those of some that are not in it; the others stay."""
        rest = some - self._young
        again = rest & self._old
        if again:
            self._young |= again
            rest = rest - again
        return rest

    def add(self, some: AbstractSet[bytes]) -> None:
        """Add some, except those that are long."""
        if len(self._young) + len(some) > MOST // 2:
            self._old, self._young = self._young, set()
        if len(some) <= MOST // 2:
            self._young.update(one for one in some if len(one) <= LONGEST)
