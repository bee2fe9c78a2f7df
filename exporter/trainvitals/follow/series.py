"""Numbers that are logged one by one, each name with steps of its own, made into steps of one run."""

from __future__ import annotations

_MAX_NAMES = 4096


class Series:
    """Knows up to where each name of a run came."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._newest = -1

    def place(self, name: str, step: int) -> int | None:
        """Return the step of the run that a number belongs to; None for the newest one.

        A name that goes back itself belongs to a run that was resumed.  One that is merely behind the others, or that
        is logged without a step (0, as a rule) at the end, does not: its run goes on.

        >>> series = Series()
        >>> [series.place(*point) for point in (("loss", 10), ("loss", 20), ("lr", 19), ("best", 0), ("loss", 15))]
        [10, 20, None, None, 15]
        """
        if step < 0:
            return None
        last = self._last.get(name)
        if last is not None or len(self._last) < _MAX_NAMES:
            self._last[name] = step
        if step >= self._newest:
            self._newest = step
            return step
        if last is None or step >= last:
            return None
        self._newest = step
        self._last = {name: step}
        return step
