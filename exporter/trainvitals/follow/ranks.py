"""Which rank speaks for a run, where several write its logs."""

from __future__ import annotations

#: Another rank speaks for the run when the one that did is silent for so many polls while others go on.
SILENT_POLLS = 30
#: The rank of lines that do not say whose they are.
NOBODY = -1
_MOST = 1 << 16


class Ranks:
    """Hears one rank: the first that tells anything, or the first with a loss."""

    def __init__(self) -> None:
        #: The rank that is heard, whether it told a loss ever, and whether it told a step at this poll.
        self.leader: int | None = None
        self.has_loss = False
        self.heard = False
        self._silent = 0
        self._steps: dict[int, int] = {}

    @property
    def count(self) -> int:
        """How many ranks there are, by the highest number."""
        return max(self._steps, default=-1) + 1

    def takes_over(self, rank: int, step: int | None, *, has_loss: bool) -> bool:
        """Return whether a rank that was not heard is from now on, by a row of it."""
        if rank >= 0 and step is not None and (rank in self._steps or len(self._steps) < _MOST):
            self._steps[rank] = step
        if self.leader is None or (has_loss and not self.has_loss):
            self.leader, self._silent = rank, 0
            return True
        return False

    def settle(self, newest: int | None, unread: int) -> None:
        """End a poll: hear another rank, when the one that was heard is silent while others go on.

        Its node is gone, say.  ``newest`` is the step that it told last; ``unread`` bytes may hold more of it.
        """
        ahead = [(step, -rank) for rank, step in self._steps.items() if rank != self.leader]
        if self.heard or unread or not ahead or newest is None or max(ahead)[0] <= newest:
            self._silent = 0
            return
        self._silent += 1
        if self._silent >= SILENT_POLLS:
            self.leader, self._silent = -max(ahead)[1], 0
