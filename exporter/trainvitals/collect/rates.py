"""What grew within the last minutes, of counters that are read at each poll."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

#: Readings are kept so many seconds apart.
_APART = 10.0


class Window:
    """Takes readings of some counters; a counter that falls begins anew, and what was before it is forgotten."""

    def __init__(self, seconds: float, first: tuple[float, ...] | None = None) -> None:
        """``first`` are the counters before the first reading; without it that reading is where they begin."""
        self._seconds = seconds
        self._readings: deque[tuple[float, tuple[float, ...]]] = deque()
        self._first = first
        self._last: tuple[float, tuple[float, ...]] | None = None

    def add(self, now: float, values: tuple[float, ...]) -> None:
        """Take the next reading."""
        last = self._last
        if last is not None and (now < last[0] or any(map(float.__lt__, map(float, values), map(float, last[1])))):
            self._readings.clear()
            last = None
        if last is None:
            self._readings.append((now, values if self._first is None else self._first))
        elif now - self._readings[-1][0] >= _APART:
            self._readings.append(last)
        self._last = (now, values)
        while len(self._readings) > 1 and now - self._readings[0][0] > self._seconds:
            self._readings.popleft()

    def grown(self) -> tuple[float, tuple[float, ...]]:
        """Return over how many seconds the counters grew, and by how much."""
        if self._last is None:
            return 0.0, ()
        begun, before = self._readings[0]
        now, values = self._last
        return now - begun, tuple(value - old for value, old in zip(values, before, strict=True))


class Windows:
    """A window for each key that is still read."""

    def __init__(self, seconds: float, first: tuple[float, ...] | None = None) -> None:
        self._seconds = seconds
        self._first = first
        self._known: dict[Hashable, Window] = {}
        self._used: dict[Hashable, Window] = {}

    def add(self, key: Hashable, now: float, values: tuple[float, ...]) -> Window:
        """Take a reading; return the window."""
        window = self._known.get(key) or Window(self._seconds, self._first)
        self._used[key] = window
        window.add(now, values)
        return window

    def forget(self) -> None:
        """Forget those that were not read since the last call."""
        self._known, self._used = self._used, {}
