"""Orders to a run whose ranks are on several nodes: all of them obey behind one step, or none does.

The exporters of the nodes do not know of each other; who gives the order asks each of them:

1. look: where are your ranks, and how long is a step?  One step is chosen that all reach in some seconds.
2. prepare: put the order up for that step.  Each rank says that it has seen it, and nothing is decided.
3. do: decide for it, if your ranks are far enough from the step still.  Where one node could not prepare, all leave it.

What is left: a node that hears of the decision too late, by a lost or slow answer.  Its ranks come to the step without
a decision and do not obey; the others do.  That is told, with the nodes, unless the command itself is killed meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from trainvitals.ctl.remote import Node
from trainvitals.steer.giving import ATTEMPTS, Done, LateError, Look, NotDoneError

T = TypeVar("T")

#: Until the step of an order, so much time is left; twice as much each time that it was not enough.
LEAD_SECONDS = 3.0
LEAST_STEPS = 6


class Several:
    """Gives orders through the exporters of several nodes.  Raises NotDoneError."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        urls = [node.url for node in nodes]
        if (twice := next((url for url in urls if urls.count(url) > 1), None)) is not None:
            raise NotDoneError(f"--node: {twice} is given twice")
        self._nodes = nodes

    def give(self, run: str, what: str, values: dict[str, Any], *, part: bool = False) -> Done:
        """Give an order and return what all ranks said; ``part``: also where some ranks are on other nodes."""
        with ThreadPoolExecutor(len(self._nodes)) as threads:
            for attempt in range(ATTEMPTS):
                done = _Attempt(self._nodes, threads, run, what, values).make(2**attempt, part=part)
                if done is not None:
                    return done
        raise NotDoneError(f"{run} was too quick {ATTEMPTS} times: no rank has obeyed")


class _Attempt:
    """One order, for one step."""

    def __init__(
        self, nodes: Sequence[Node], threads: ThreadPoolExecutor, run: str, what: str, values: dict[str, Any]
    ) -> None:
        self._nodes, self._threads = nodes, threads
        self._run, self._what, self._values = run, what, values

    def make(self, times: int, *, part: bool) -> Done | None:
        """Return what the ranks said; None where the step came too soon, and none has obeyed."""
        looks = self._good(self._each(lambda node, _: node.look(self._run)))
        self._check(looks, part=part)
        at, before = _steps(looks, times)
        prepared = self._each(lambda node, _: node.prepare(self._run, self._what, self._values, at))
        if any(isinstance(answer, Exception) for answer in prepared):
            self._leave(prepared)
            hard = [
                answer for answer in prepared if isinstance(answer, Exception) and not isinstance(answer, LateError)
            ]
            if hard:
                raise hard[0]
            return None
        numbers = [answer for answer in prepared if isinstance(answer, int)]
        settled = self._each(
            lambda node, place: node.settle(self._run, self._what, self._values, numbers[place], before)
        )
        return self._together(settled, at)

    def _each(self, ask: Callable[[Node, int], T]) -> list[T | NotDoneError]:
        """Ask all nodes at once; return their answers, in order."""

        def asked(place: int) -> T | NotDoneError:
            try:
                return ask(self._nodes[place], place)
            except NotDoneError as error:
                return error

        return list(self._threads.map(asked, range(len(self._nodes))))

    @staticmethod
    def _good(answers: Sequence[T | NotDoneError]) -> list[T]:
        for answer in answers:
            if isinstance(answer, NotDoneError):
                raise answer
        return [answer for answer in answers if not isinstance(answer, NotDoneError)]

    def _check(self, looks: Sequence[Look], *, part: bool) -> None:
        ranks = [rank for look in looks for rank in look.ranks]
        if (twice := next((rank for rank in ranks if ranks.count(rank) > 1), None)) is not None:
            raise NotDoneError(f"rank {twice} of {self._run} is on two of these nodes: give each run a name of its own")
        whole = max(look.world_size for look in looks)
        if len(ranks) < whole and not part:
            raise NotDoneError(f"{len(ranks)} of {whole} ranks of {self._run} are on these nodes: name all, or --part")
        if len({look.is_paused for look in looks}) > 1:
            raise NotDoneError(f"{self._run} is paused on some of these nodes and not on others: no rank has obeyed")

    def _leave(self, prepared: Sequence[int | NotDoneError]) -> None:
        def left(node: Node, place: int) -> None:
            number = prepared[place]
            if isinstance(number, int):
                node.leave(self._run, self._what, self._values, number)

        self._each(left)

    def _together(self, settled: Sequence[Done | NotDoneError], at: int) -> Done | None:
        done = [answer for answer in settled if isinstance(answer, Done)]
        failed = [answer for answer in settled if isinstance(answer, NotDoneError)]
        if not failed:
            answers = {rank: said for one in done for rank, said in one.answers.items()}
            return Done(done[0].order, dict(sorted(answers.items())))
        if not done and all(isinstance(answer, LateError) for answer in failed):
            return None
        obeyed = [node.url for node, answer in zip(self._nodes, settled, strict=True) if isinstance(answer, Done)]
        told = [f"obeyed behind step {at} on {', '.join(obeyed)}" if obeyed else "nobody is known to have obeyed"]
        told += [f"not obeyed: {error}" for error in failed if isinstance(error, LateError)]
        told += [f"not known: {error}" for error in failed if not isinstance(error, LateError)]
        raise NotDoneError("; ".join(told))


def _steps(looks: Sequence[Look], times: int) -> tuple[int, int | None]:
    """Return the step of the order, and the one from which on nobody decides for it; None where all are paused."""
    newest = max(look.step for look in looks)
    if all(look.is_paused for look in looks):
        return newest, None
    pace = max(look.pace for look in looks)
    lead = max(LEAST_STEPS * times, math.ceil(LEAD_SECONDS * times / pace) if pace > 0.0 else 0)
    return newest + lead, newest + lead - lead // 3
