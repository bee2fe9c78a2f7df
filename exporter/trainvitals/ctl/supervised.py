"""Orders that need the supervisor of a run: it ends, and goes on in another way.

The wish is left for the supervisor first, then the ranks are told to stop behind the same step; when they do not, the
wish is withdrawn.
"""

from __future__ import annotations

import time

from trainvitals.steer.giving import Done, Giver, NotDoneError, whoever
from trainvitals.supervise import state, wishes
from trainvitals.supervise.wishes import Wish


class Supervised:
    """The supervisor of a run on this node, by the folder of its state."""

    def __init__(self, run: str, folder: str) -> None:
        self._run, self._folder = run, folder

    @property
    def is_released(self) -> bool:
        """Whether it waits, without a training, for somebody to let it go on."""
        return state.holder(self._folder) is not None and state.read(self._folder).phase == "released"

    def end(self, giver: Giver, wish: Wish) -> Done:
        """Let the run end behind a step, and its supervisor do what is wanted then.  Raises NotDoneError."""
        if state.holder(self._folder) is None:
            raise NotDoneError(
                f"nobody supervises {self._run} here: {wish.what} needs "
                "`trainvitals run --max-restarts N --checkpoint-dir FOLDER -- COMMAND`, and --state-dir if it had one"
            )
        self._leave(wish)
        try:
            # What goes back needs no checkpoint of now.
            return giver.give("stop", {} if wish.what == "rollback" else {"checkpoint": True})
        except BaseException:
            if not giver.is_under_way:  # Else the run ends, though it may take its time to save.
                wishes.withdraw(self._folder)
            raise

    def resume(self) -> None:
        """Let a run that was released go on.  Raises NotDoneError."""
        self._leave(Wish(what="resume", by=whoever(), time=time.time()))

    def _leave(self, wish: Wish) -> None:
        try:
            wishes.leave(self._folder, wish)
        except OSError as error:
            raise NotDoneError(f"its supervisor cannot be told: {error}") from None
