"""What several ranks say of the same run, one behind the other: told once."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import repeat

from trainvitals.follow.base import Row
from trainvitals.telemetry import Event

#: Ranks that write into one file are at most so many lines of one rank apart.
OVERLAP = 64
_MAX_SPLITS = 64


class Losses:
    """The losses of the last steps of an attempt."""

    def __init__(self) -> None:
        self._losses: dict[int, float | None] = {}
        #: Repetitions of a step with another loss: lines of ranks that do not say so.
        self.repeated = 0

    def add(self, step: int, loss: float | None) -> None:
        """Add the newest step, or the loss of it."""
        losses = self._losses
        losses[step] = loss
        if len(losses) > 2 * OVERLAP:
            for old in list(losses)[:-OVERLAP]:
                del losses[old]

    def add_all(self, steps: Sequence[int], column: Sequence[float] | None) -> None:
        """Add several new steps, and the losses of them; as many are kept as if they were added one by one."""
        losses = self._losses
        number = len(losses) + len(steps)
        if number > 2 * OVERLAP:
            number = OVERLAP + (number - 2 * OVERLAP - 1) % (OVERLAP + 1)
        new = steps[-number:]
        for old in list(losses)[: len(losses) + len(new) - number]:
            del losses[old]
        losses.update(zip(new, repeat(None) if column is None else column[-number:], strict=False))

    def clear(self) -> None:
        """Forget them."""
        self._losses.clear()

    def is_another_ranks(self, step: int, loss: float | None) -> bool:
        """Whether a step that comes again is that of another rank, which does not say so."""
        return step in self._losses and (self.repeated > 2 or same(self._losses[step], loss))

    def is_behind(self, step: int) -> bool:
        """Whether a step is farther back than ranks are apart."""
        return bool(self._losses) and step < next(iter(self._losses))


class Announced:
    """Results and checkpoints of an attempt that were told."""

    def __init__(self) -> None:
        self._evaluations: dict[str, tuple[int, int]] = {}
        self._checkpoints: OrderedDict[tuple[object, ...], None] = OrderedDict()

    def clear(self) -> None:
        """Forget them."""
        self._evaluations.clear()
        self._checkpoints.clear()

    def has_results(self, row: Row, step: int, rank: int) -> bool:
        """Whether another rank told the results of this step (or there are too many splits); else remember them."""
        before = self._evaluations.get(row.split)
        if before is not None and before[1] != rank and before[0] >= step:
            return True
        if before is None and len(self._evaluations) >= _MAX_SPLITS:
            return True
        self._evaluations[row.split] = (step, rank)
        return False

    def has_checkpoint(self, event: Event) -> bool:
        """Whether a checkpoint was told by another rank; else remember it."""
        fields = event.fields
        key = (event.step, fields.get("action"), fields.get("ok"), str(fields.get("path")))
        if key in self._checkpoints:
            return True
        self._checkpoints[key] = None
        if len(self._checkpoints) > OVERLAP:
            self._checkpoints.popitem(last=False)
        return False


def same(first: float | None, second: float | None) -> bool:
    """Whether two losses are one, NaN or missing as they may be."""
    if first is None or second is None:
        return first is second
    return first == second or (math.isnan(first) and math.isnan(second))
