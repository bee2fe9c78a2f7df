"""How an order is given to all ranks of a node, so that each obeys it behind the same step, or none does.

1. The order is put up for a step that the ranks reach in about a second.
2. Each rank that sees it before that step says so, or why it cannot obey.
3. When all have, it is decided: do it.  A rank that gets there before decides against it, for all: then it is given
   again for a later step.
4. Each rank says that it is done.

Where a run has ranks on several nodes, these are three calls to each (look, prepare, settle), and whoever makes them
chooses one step for all: :mod:`trainvitals.ctl.several`.
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


class LateError(NotDoneError):
    """No rank has obeyed, for the step of the order came too soon; a later one may do."""


@dataclass(frozen=True)
class Done:
    """What became of an order: its number, its step, and the answer of each rank."""

    order: Order
    answers: dict[int, Answer] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """Where the ranks of a node are: the newest step, the longest of the last steps in seconds, and who they are."""

    step: int
    pace: float
    is_paused: bool
    ranks: tuple[int, ...]
    world_size: int


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

    def look(self) -> Look:
        """Return where the ranks are.  Raises NotDoneError."""
        try:
            return Look(
                step=max(rank.step for rank in self._ranks),
                pace=max(rank.seconds_per_step() for rank in self._ranks),
                is_paused=all(rank.phase == "paused" for rank in self._ranks),
                ranks=tuple(rank.rank for rank in self._ranks),
                world_size=max(rank.world_size for rank in self._ranks),
            )
        except (OSError, rankfile.RankFileError) as error:
            raise NotDoneError(f"the ranks cannot be read: {error}") from None

    def prepare(self, what: str, values: dict[str, Any], at: int) -> Order:
        """Put up an order for a step and let all ranks see it, without a decision.

        Raises NotDoneError, and LateError where the step came before all had seen it; then it is decided against.
        """
        for one in self._ranks:
            one.skip()
        order, against = self._put_up(what, values, at)
        if not against:
            return order
        with contextlib.suppress(OSError):
            self._mail.decide(order.number, "leave")
        self._complain(against)
        raise LateError(f"step {at} came before all ranks here had seen the order")

    def settle(self, number: int, before: int | None) -> Done:
        """Decide for an order that was prepared, and see it obeyed; against it from the step ``before`` on.

        Raises NotDoneError, and LateError where no rank here has obeyed, for it was too late.
        """
        try:
            order = self._mail.read(number)
            is_early = before is None or max(rank.step for rank in self._ranks) < before
            self.is_under_way = self._mail.decide(number, "do" if is_early else "leave") == "do"
        except (OSError, OrderError, rankfile.RankFileError) as error:
            raise NotDoneError(f"the order cannot be decided: {error}") from None
        if not self.is_under_way:
            raise LateError(f"step {order.at} came before the decision")
        return self._end(order)

    def leave(self, number: int) -> None:
        """Decide against an order that was prepared, unless it is decided."""
        with contextlib.suppress(OSError):
            self._mail.decide(number, "leave")

    def _try(self, what: str, values: dict[str, Any], times: int) -> Done | None:
        for one in self._ranks:
            one.skip()
        try:
            at = self._step(times)
        except (OSError, rankfile.RankFileError) as error:
            raise NotDoneError(f"the order cannot be given: {error}") from None
        order, against = self._put_up(what, values, at)
        try:
            self.is_under_way = self._mail.decide(order.number, "leave" if against else "do") == "do"
        except OSError as error:
            raise NotDoneError(f"the order cannot be decided: {error}") from None
        if self.is_under_way:
            return self._end(order)
        self._complain(against)
        return None

    def _put_up(self, what: str, values: dict[str, Any], at: int) -> tuple[Order, dict[int, Answer | None]]:
        """Put up an order and hear all ranks; return it with those that have not just seen it, and what they say."""
        order = Order(number=0, run=self._run, what=what, at=at, values=values, by=self._by, time=round(time.time(), 3))
        try:
            order = self._mail.give(order)
        except (OSError, OrderError) as error:
            raise NotDoneError(f"the order cannot be given: {error}") from None
        try:
            # One that has left it already has seen it.
            heard = self._hear(order.number, {"seen", "refused", "late", "left"})
        except BaseException:
            with contextlib.suppress(OSError):
                self._mail.decide(order.number, "leave")  # Ranks that are paused would wait for it.
            raise
        return order, {rank: answer for rank, answer in heard.items() if answer is None or answer.state != "seen"}

    def _complain(self, against: dict[int, Answer | None]) -> None:
        """Raise NotDoneError where a rank said no, or nothing; one that was late is no reason."""
        for rank, answer in against.items():
            if answer is None:
                raise NotDoneError(
                    f"rank {rank} has ended, or not answered for {self._patience:.0f} s: no rank has obeyed"
                )
            if answer.state == "refused":
                raise NotDoneError(f"rank {rank}: {answer.text}")

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
