"""How many messages a robot takes: a token bucket, and a pause that the robot asked for."""

from __future__ import annotations

from collections.abc import Callable

#: So many messages may go at once after a rest: a robot counts in minutes.
BURST = 5.0


class Bucket:
    """Gives ``per_minute`` tokens a minute.  ``clock`` is monotonic, in seconds."""

    def __init__(self, per_minute: float, clock: Callable[[], float], burst: float = BURST) -> None:
        # What is given at once is missing from the minute: rate * 60 + burst must not exceed what the robot takes.
        self._most = min(burst, per_minute)
        self._rate = (per_minute - self._most) / 60.0 or per_minute / 60.0
        self._clock = clock
        self._tokens = self._most
        self._filled = clock()
        self._paused = 0.0

    def take(self) -> float:
        """Take a token and return 0.0; or return the seconds until there is one, and take none."""
        now = self._clock()
        if now < self._paused:
            return self._paused - now
        self._tokens = min(self._most, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate

    def pause(self, seconds: float) -> None:
        """Give none for so long."""
        self._paused = max(self._paused, self._clock() + seconds)
