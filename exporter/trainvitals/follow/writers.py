"""Files of one run that lie in one folder: written one behind the other, or by several processes beside each other.

A run that is resumed writes another event file, which begins after the one before it has ended.  Ranks, or a program
that logs in two ways, write at the same time: of them one is heard, as of ranks in a text (see
:mod:`trainvitals.follow.ranks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainvitals.follow.base import Facts, Piece, Row, Rows
from trainvitals.follow.ranks import NOBODY


@dataclass
class _File:
    begun: float
    ended: float
    rank: int


class Writers:
    """Says of the items of such files whose they are; by the times that they tell."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, _File]] = {}

    def forget(self, key: str) -> None:
        """Forget a file that is gone."""
        for files in self._files.values():
            files.pop(key, None)

    def sort(self, run: str, key: str, step: int | None, items: Sequence[Piece]) -> tuple[int, list[Piece]]:
        """Return a rank for the next items of a file, and the items.

        It is NOBODY for all files that go on one where the other ended, and less for those beside them.  That a
        training began is left out of them where its steps go on behind ``step``, the last one of the run.
        """
        times = [moment for item in items for moment in _times(item)]
        files = self._files.setdefault(run, {})
        file = files.get(key)
        if times:
            if file is None:
                file = files[key] = _File(min(times), max(times), NOBODY)
                # Before another one that is heard has ended, this one began.
                if any(file.begun < other.ended for other in files.values() if other is not file):
                    file.rank = self._next(files)
            else:
                file.ended = max(file.ended, *times)
                for other in files.values():
                    if other is not file and other.rank == file.rank and file.begun < other.begun < file.ended:
                        other.rank = self._next(files)
        rank = NOBODY if file is None else file.rank
        return rank, [item for place, item in enumerate(items) if not _goes_on(items, place, step)]

    def _next(self, files: dict[str, _File]) -> int:
        return min(file.rank for file in files.values()) - 1


def _times(item: Piece) -> Sequence[float]:
    """Return wall times of training; results of an evaluation may be written beside it."""
    if isinstance(item, Row):
        return () if item.time is None or item.split else (item.time,)
    if isinstance(item, Rows) and item.times is not None:
        return [moment for moment in (item.times[0], item.times[-1]) if moment is not None] if len(item) else ()
    return ()


def _goes_on(items: Sequence[Piece], place: int, step: int | None) -> bool:
    """Whether an item says that a training began whose first step is behind the last one."""
    item = items[place]
    if not isinstance(item, Facts) or item.started is None or step is None:
        return False
    for later in items[place + 1 :]:
        if isinstance(later, Row) and not later.split and later.step is not None:
            return later.step > step
        if isinstance(later, Rows) and len(later):
            return later.steps[0] > step
    return False
