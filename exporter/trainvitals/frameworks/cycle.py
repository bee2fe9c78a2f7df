"""Which optimizer steps make one step of a training."""

from __future__ import annotations


class Cycle:
    """Folds the optimizer steps of one training step into one.

    Several optimizers (GANs), and one that is stepped group by group (ZeRO), come round in a cycle; it is counted where
    its first part comes again after others.  Which part is the first is learnt from the order, so the first cycle of a
    pattern may count more than once.
    """

    def __init__(self) -> None:
        self._first: object = None
        #: Parts that were seen since the first one.
        self._others: set[object] = set()
        #: How often the first came in a row, now and at most before another came.
        self.row = self._longest_row = 0
        #: The part that makes a cycle of its own whenever it comes; whoever knows only adds to ``row``.
        self.alone: object = None

    def begins(self, part: object) -> bool:
        """Take the step of a part; return whether a new cycle begins with it."""
        if part == self._first:
            self.row = 1 if self._others else self.row + 1
            self._others.clear()
            # One that comes again and again is alone, unless others used to come between.
            is_alone = self.row > 4 * self._longest_row
            self.alone = part if is_alone else None
            return self.row == 1 or is_alone
        self.alone = None
        if self._first is None or part in self._others:
            # The first of all, or the first one is not used any more.
            self._first, self._others, self.row, self._longest_row = part, set(), 1, 0
            return True
        if not self._others:
            self._longest_row = max(self._longest_row, self.row)
        self._others.add(part)
        return False
