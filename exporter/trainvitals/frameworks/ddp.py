"""What DistributedDataParallel measures itself: the wait for the gradients of others."""

from __future__ import annotations

import statistics
import weakref
from collections import deque
from typing import Any

from trainvitals.probe import split

#: So many measurements of DDP speak together: it takes one step in a hundred, and one alone may be an odd one.
_MEASUREMENTS = 5


class Communication:
    """What DDP measures on some of its steps: how long gradients were on their way while nothing was computed."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []
        self._seen: dict[int, int] = {}
        self._seconds: deque[float] = deque(maxlen=_MEASUREMENTS)

    def watch(self, _: Any, model: Any, *__: Any, **___: Any) -> None:
        """Take a model that was just wrapped."""
        self._models.append(weakref.ref(model))
        split.exposed_communication = self.exposed

    def exposed(self) -> float | None:
        """Return seconds of a step: the median of the last measurements of DDP, None before the first."""
        models = [model for reference in self._models if (model := reference()) is not None]
        if not models:
            return None
        total, fresh = 0.0, False
        for model in models:
            # Private, but what DDP shows its users is the same text in a log.
            data = model._get_ddp_logging_data()  # noqa: SLF001
            iteration = data.get("iteration", 0)
            together, overlap = data.get("backward_comm_time"), data.get("backward_compute_comm_overlap_time")
            if together is None or overlap is None:
                continue
            fresh |= self._seen.get(id(model)) != iteration
            self._seen[id(model)] = iteration
            total += max(0, together - overlap) / 1e9  # nanoseconds
        if fresh:
            self._seconds.append(total)
        return statistics.median(self._seconds) if self._seconds else None
