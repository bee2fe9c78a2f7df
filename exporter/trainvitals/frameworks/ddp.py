"""What DistributedDataParallel measures itself: the wait for the gradients of others."""

from __future__ import annotations

import statistics
import weakref
from collections import deque
from typing import Any

from trainvitals.probe import split

#: So many measurements of DDP speak together: it takes one step in a hundred, and one alone may be an odd one.
_MEASUREMENTS = 5
#: A model that has measured nothing new for so many questions is not trained any more (or once in a thousand steps).
_IDLE = 10


class _Model:
    """A model that was wrapped, and when it measured what."""

    def __init__(self, model: Any) -> None:
        self.reference = weakref.ref(model)
        self._iteration: int | None = None
        self.seconds = 0.0
        self.idle = _IDLE

    def look(self, model: Any) -> bool:
        """Look at what DDP has measured; return whether it is new."""
        # Private, but what DDP shows its users is the same text in a log.
        data = model._get_ddp_logging_data()  # noqa: SLF001
        iteration = data.get("iteration", 0)
        together, overlap = data.get("backward_comm_time"), data.get("backward_compute_comm_overlap_time")
        if together is None or overlap is None or iteration == self._iteration:
            self.idle += 1
            return False
        self._iteration, self.idle = iteration, 0
        self.seconds = max(0, together - overlap) / 1e9  # nanoseconds
        return True


class Communication:
    """What DDP measures on some of its steps: how long gradients were on their way while nothing was computed."""

    def __init__(self) -> None:
        self._models: list[_Model] = []
        self._seconds: deque[float] = deque(maxlen=_MEASUREMENTS)

    def watch(self, _: Any, model: Any, *__: Any, **___: Any) -> None:
        """Take a model that was just wrapped."""
        self._models.append(_Model(model))
        split.exposed_communication = self.exposed

    def exposed(self) -> float | None:
        """Return seconds of a step: the median of the last measurements of DDP, None before the first.

        Also None once none of the models is trained any more: what comes then communicates otherwise, or not at all.
        """
        there = [(known, model) for known in self._models if (model := known.reference()) is not None]
        self._models = [known for known, _ in there]
        fresh = [known.look(model) for known, model in there]
        trained = [known for known in self._models if known.idle < _IDLE]
        if not trained:
            self._seconds.clear()
            return None
        if any(fresh):
            self._seconds.append(sum(known.seconds for known in trained))
        return statistics.median(self._seconds) if self._seconds else None
