"""Orders that the exporter gives: to the ranks of a run in any of its spools, in threads that end when it ends."""

from __future__ import annotations

import contextlib
import glob
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from trainvitals.steer.giving import Done, Giver, NoRunError, NotDoneError
from trainvitals.steer.ranks import Rank, live

#: Where an exporter takes orders.
PATH = "/api/v1/orders"
#: What can be ordered from elsewhere: all that the ranks do by themselves, without a supervisor.
WHAT = ("set", "pause", "resume", "checkpoint", "stop")


def own(ranks: list[Rank]) -> list[Rank]:
    """Return the ranks of this user, if there are such: in a shared spool, others may use the name of the run."""
    return [rank for rank in ranks if rank.owner == os.getuid()] or ranks


def check_whole(ranks: Sequence[Rank], *, part: bool) -> None:
    """Raise NotDoneError where only a part of a run's ranks lives here, unless ``part`` allows that."""
    whole = max(rank.world_size for rank in ranks)
    if len(ranks) < whole and not part:
        raise NotDoneError(
            f"{len(ranks)} of {whole} ranks of {ranks[0].run} live here: give the order on all nodes, or --part"
        )


class Steering:
    """Gives orders to runs below some folders or globs of folders.  For any thread."""

    def __init__(self, folders: Sequence[str], *, patience: float = 60.0) -> None:
        self._folders, self._patience = folders, patience
        self._ending = threading.Event()

    def give(self, run: str, what: str, values: dict[str, Any], *, by: str, part: bool = False) -> Done:
        """Give an order and see it obeyed.

        ``part``: also where only a part of the ranks lives here.  Raises NoRunError and NotDoneError.
        """
        with self.giver(run, by=by, part=part) as giver:
            return giver.give(what, values)

    @contextlib.contextmanager
    def giver(self, run: str, *, by: str, part: bool) -> Iterator[Giver]:
        """Give who gives orders to the ranks of a run here.  Raises as :meth:`give` does."""
        folders = sorted({folder for pattern in self._folders for folder in glob.glob(pattern)})
        found = {folder: ranks for folder in folders if (ranks := live(folder, run))}
        if not found:
            raise NoRunError(f"no rank of {run} lives here")
        if len(found) > 1:
            raise NotDoneError(f"{run} lives in several spools: {', '.join(found)}: give each run a name of its own")
        ((folder, ranks),) = found.items()
        told = own(ranks)
        check_whole(told, part=part)
        with contextlib.closing(Giver(folder, run, told, patience=self._patience, wait=self._wait, by=by)) as giver:
            yield giver

    def close(self) -> None:
        """Wait for no rank any more."""
        self._ending.set()

    def _wait(self, seconds: float) -> None:
        if self._ending.wait(seconds):
            raise NotDoneError("the exporter ends, and does not wait for the ranks any more")
