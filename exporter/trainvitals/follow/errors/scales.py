"""Tells an overflow of the loss scale that is part of fp16 from one that does not end."""

from __future__ import annotations

#: Below it there is nothing left to halve.  1.0 and less are in use: fairseq goes down to 1e-4 by default.
_SMALLEST = 2.0**-10
#: So often in a row the scale was tried again unchanged, as it may not go lower; with a hysteresis it is two or three.
_STUCK = 8
_MOST_RANKS = 4096


class LossScales:
    """Keeps for each rank how the scale went."""

    def __init__(self) -> None:
        self._stuck: dict[int | None, tuple[float, int]] = {}

    def at_minimum(self, rank: int | None, attempted: str, reduced: str) -> bool:
        """Return whether an overflow at ``attempted``, after which the scale is ``reduced``, is one at the bottom."""
        try:
            before, after = float(attempted or "nan"), float(reduced or "nan")
        except ValueError:
            return False
        if after < _SMALLEST:
            return True
        if before != after:
            self._stuck.pop(rank, None)
            return False
        scale, times = self._stuck.get(rank, (after, 0))
        times = times + 1 if scale == after else 1
        if rank in self._stuck or len(self._stuck) < _MOST_RANKS:
            self._stuck[rank] = (after, times)
        return times >= _STUCK
