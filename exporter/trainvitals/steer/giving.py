"""How an order is given to all ranks of a node, so that each obeys it behind the same step, or none does.

1. The order is put up for a step that the ranks reach in about a second.
2. Each rank that sees it before that step says so, or why it cannot obey.
3. When all have, it is decided: do it.  A rank that gets there before decides against it, for all: then it is given
   again for a later step.
4. Each rank says that it is done.
"""

from __future__ import annotations

import contextlib
import getpass
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainvitals import rankfile
from trainvitals.orders import Mail, Order, OrderError, path_of
from trainvitals.steer.ranks import Answer, Rank

#: Until its step, so much time is left to an order; twice as much each time that it was not enough.
LEAD_SECONDS = 1.0
LEAST_STEPS = 2
ATTEMPTS = 6
_LOOK_SECONDS = 0.05


class NotDoneError(Exception):
    """An order was not obeyed; the text says why, in one line."""


class NoRunError(NotDoneError):
    """Nobody is there who could obey."""


@dataclass(frozen=True)
class Done:
    """What became of an order: its number, its step, and the answer of each rank."""

    order: Order
    answers: dict[int, Answer] = field(default_factory=dict)


class Giver:
    """Gives orders to the ranks of one run on this node.  ``wait`` is called between looks, to let time pass.

    ``by`` says who gives them; by default the user of this process.  Raises NotDoneError.
    """

    def __init__(
        self,
        folder: str,
        run: str,
        ranks: Sequence[Rank],
        *,
        patience: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
        by: str | None = None,
    ) -> None:
        if not ranks:
            raise NoRunError(f"no rank of {run} lives here")
        self._ranks, self._run, self._patience = ranks, run, patience
        self._by = whoever() if by is None else by
        self._clock, self._wait = clock, wait
        #: Whether ranks obey what was ordered, or still may: also when nobody waits for it any more.
        self.is_under_way = False
        owners = {rank.owner for rank in ranks}
        numbers = [rank.rank for rank in ranks]
        if (twice := next((number for number in numbers if numbers.count(number) > 1), None)) is not None:
            raise NotDoneError(f"several processes are rank {twice} of {run}: give each run a name of its own")
        if len(owners) > 1:
            raise NotDoneError(f"ranks of {run} belong to several users: {', '.join(map(str, sorted(owners)))}")
        (owner,) = owners
        path = path_of(folder, run)
        try:
            self._mail = Mail(path, {owner, 0}, write=True)
        except FileNotFoundError:
            raise NotDoneError(f"{run} takes no orders: its probe is older, or TRAINVITALS_ORDERS is 0") from None
        except PermissionError:
            raise NotDoneError(f"{run} belongs to uid {owner}: only that user and root may give it orders") from None
        except OSError as error:
            raise NotDoneError(f"no order can be given to {run}: {error}") from None

    def close(self) -> None:
        """Let go of the files."""
        self._mail.close()

    def give(self, what: str, values: dict[str, Any]) -> Done:
        """Give an order and see it obeyed.  Raises NotDoneError: no rank has obeyed, or the text says which."""
        for attempt in range(ATTEMPTS):
            done = self._try(what, values, 2**attempt)
            if done is not None:
                return done
        raise NotDoneError(f"{self._run} was too quick {ATTEMPTS} times: no rank has obeyed")

    def _try(self, what: str, values: dict[str, Any], times: int) -> Done | None:
        for one in self._ranks:
            one.skip()
        try:
            at = self._step(times)
            order = Order(
                number=0, run=self._run, what=what, at=at, values=values, by=self._by, time=round(time.time(), 3)
            )
            order = self._mail.give(order)
        except (OSError, OrderError, rankfile.RankFileError) as error:
            raise NotDoneError(f"the order cannot be given: {error}") from None
        try:
            # One that has left it already has seen it.
            heard = self._hear(order.number, {"seen", "refused", "late", "left"})
        except BaseException:
            with contextlib.suppress(OSError):
                self._mail.decide(order.number, "leave")  # Ranks that are paused would wait for it.
            raise
        against = {rank: answer for rank, answer in heard.items() if answer is None or answer.state != "seen"}
        try:
            self.is_under_way = self._mail.decide(order.number, "leave" if against else "do") == "do"
        except OSError as error:
            raise NotDoneError(f"the order cannot be decided: {error}") from None
        if self.is_under_way:
            return self._end(order)
        for rank, answer in against.items():
            if answer is None:
                raise NotDoneError(
                    f"rank {rank} has ended, or not answered for {self._patience:.0f} s: no rank has obeyed"
                )
            if answer.state == "refused":
                raise NotDoneError(f"rank {rank}: {answer.text}")
        return None

    def _step(self, times: int) -> int:
        """Return the step that the order is for; ``times`` as much time is left as at first.

        One long step (an evaluation) among quick ones says nothing of the next: the steps double as well.
        """
        newest = max(rank.step for rank in self._ranks)
        if all(rank.phase == "paused" for rank in self._ranks):
            return newest
        pace = max(rank.seconds_per_step() for rank in self._ranks)
        steps = math.ceil(LEAD_SECONDS * times / pace) if pace > 0.0 else 0
        return newest + max(LEAST_STEPS * times, steps)

    def _hear(self, number: int, words: set[str]) -> dict[int, Answer | None]:
        """Return what each rank that lives says of an order, None for one that says nothing in time."""
        deadline = self._clock() + self._patience
        while True:
            for rank in self._ranks:
                rank.listen()
            known = {rank.rank: self._word(rank, number, words) for rank in self._ranks}
            silent = [rank for rank in self._ranks if known[rank.rank] is None]
            if not silent or self._clock() > deadline:
                return known
            if not all(rank.is_alive for rank in silent):
                for rank in silent:
                    rank.listen()  # Its last word was the end of it.
                return {rank.rank: self._word(rank, number, words) for rank in self._ranks}
            self._wait(_LOOK_SECONDS)

    @staticmethod
    def _word(rank: Rank, number: int, words: set[str]) -> Answer | None:
        answer = rank.answers.get(number)
        return answer if answer is not None and answer.state in words else None

    def _end(self, order: Order) -> Done:
        heard = self._hear(order.number, {"done", "failed", "left"})
        bad = [
            f"rank {rank} failed: {answer.text}" for rank, answer in heard.items() if answer and answer.state != "done"
        ]
        self.is_under_way = not bad
        silent = f"has ended, or has not said in {self._patience:.0f} s that it is done"
        bad += [f"rank {rank} {silent}" for rank, answer in heard.items() if answer is None]
        if bad:
            raise NotDoneError("; ".join(bad))
        return Done(order, {rank: answer for rank, answer in heard.items() if answer is not None})


def whoever() -> str:
    """Return who gives orders: the name of the user, and of the one behind ``sudo``."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        name = ""
    behind = os.environ.get("SUDO_USER", "")
    name = f"{name} (uid {os.getuid()})" if name else f"uid {os.getuid()}"
    return f"{name}, sudo by {behind[:32]}" if behind else name
