"""Pauses between attempts at something that fails."""

from __future__ import annotations


class Backoff:
    """Pauses in seconds, each twice as long as the one before: from ``first`` to ``longest``."""

    def __init__(self, first: float, longest: float) -> None:
        self.longest = longest
        self._first = first
        self._pause = first

    def next(self) -> float:
        """Return the pause after one more failure."""
        pause = self._pause
        self._pause = min(2 * pause, self.longest)
        return pause

    def reset(self) -> None:
        """Begin with the first pause again: it worked."""
        self._pause = self._first
