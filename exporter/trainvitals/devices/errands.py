"""Costly questions about many devices, spread over the rounds so that none of these takes long.

A tool is a process of its own for each question, and drivers answer one after the other.  So a round asks what is due
until its time is used up, and goes on with the rest in the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")

#: Seconds of questions in one round.
BUDGET = 2.0
#: A question is asked again after so many times the time that it took, at least: fifty of them take a tenth of one
#: processor at most.
_REST = 500.0
#: Seconds until one that failed is asked again: the first pause and the longest.
_RETRY = (30.0, 600.0)


@dataclass
class _Errand(Generic[Result]):
    result: Result | None = None
    due: float = float("-inf")
    pause: float = _RETRY[0]


class Errands(Generic[Result]):
    """Keeps the last answer to each question, and asks again when it is due and the round has time left.

    ``clock`` gives seconds.  :meth:`begin` starts a round.
    """

    def __init__(self, budget: float = BUDGET, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._until = float("inf")
        self._is_failing = False
        self._errands: dict[Hashable, _Errand[Result]] = {}

    def begin(self, keep: Callable[[Hashable], bool] = lambda _: True) -> None:
        """Start a round, and forget the questions that ``keep`` does not know any more."""
        self._until = self._clock() + self._budget
        self._is_failing = False
        self._errands = {key: errand for key, errand in self._errands.items() if keep(key)}

    def ask(
        self, key: Hashable, every: float, question: Callable[[], Result | None], *, urgent: bool = False
    ) -> Result | None:
        """Return the last answer, a new one after ``every`` seconds.

        None until there is one, and after a question that was answered with None: it failed, and is asked again after a
        pause that doubles.  An urgent one is asked also when the time is used up, unless one failed in this round.
        """
        errand = self._errands.setdefault(key, _Errand())
        begun = self._clock()
        has_time = begun < self._until or (urgent and not self._is_failing)
        if begun >= errand.due and has_time:
            errand.result = question()
            now = self._clock()
            if errand.result is None:
                self._is_failing = True
                errand.due, errand.pause = now + errand.pause, min(2 * errand.pause, _RETRY[1])
            else:
                errand.due, errand.pause = now + max(every, _REST * (now - begun)), _RETRY[0]
        return errand.result
