"""One question to a tool that answers for all devices of a node at once.

Many small questions, one for each device, are :mod:`trainvitals.devices.errands`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")

#: A question takes at most one part in so many of one processor.
REST = 30.0
#: Seconds until one that failed is asked again: the first pause and the longest.
RETRY = (30.0, 600.0)


class Question(Generic[Result]):
    """Keeps the last answer, and knows when to ask again: after ``every`` seconds, later when it is costly.

    ``retry`` are the first and the longest pause after a failure; ``clock`` gives seconds.
    """

    def __init__(
        self, every: float, clock: Callable[[], float], *, rest: float = REST, retry: tuple[float, float] = RETRY
    ) -> None:
        self._every = every
        self._clock = clock
        self._rest = rest
        self._retry = retry
        self._pause = retry[0]
        self._due = float("-inf")
        #: The last answer; None when there is none, or the last question failed.
        self.result: Result | None = None
        #: Failures in a row.
        self.failures = 0

    def is_due(self) -> bool:
        """Whether it is time to ask."""
        return self._clock() >= self._due

    def ask(self, question: Callable[[], Result | None]) -> Result | None:
        """Ask, and return the answer; None is a failure."""
        begun = self._clock()
        self.result = question()
        now = self._clock()
        if self.result is None:
            self.failures += 1
            self._due, self._pause = now + self._pause, min(2 * self._pause, self._retry[1])
        else:
            self.failures = 0
            self._due, self._pause = now + max(self._every, self._rest * (now - begun)), self._retry[0]
        return self.result
