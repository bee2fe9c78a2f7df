"""Times of events, kept so that they stay right when the time of day is set.

A node may start with a clock that is hours off, until a time service corrects it.  An event that was dated before
would then seem to be new for hours, or hide those that come.  So its time is kept by a clock that nobody sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds by which the time of day may drift before the times that are shown follow: else they would never stay.
_DRIFT = 1.0


def _since_boot() -> float:
    # Unlike the monotonic clock it goes on while the machine sleeps, as the time of day does.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Moments:
    """Turns times of day into kept times and back.  ``clock`` is the time of day, ``steady`` is never set."""

    def __init__(self, clock: Callable[[], float] = time.time, steady: Callable[[], float] = _since_boot) -> None:
        self._clock = clock
        self._steady = steady
        self._epoch = clock() - steady()

    def keep(self, moment: float) -> float:
        """Return what is kept of a time that was told just now."""
        self._follow()
        return moment - self._epoch

    def show(self, kept: float) -> float:
        """Return the time of day of what was kept, to a microsecond."""
        self._follow()
        return round(kept + self._epoch, 6)

    def _follow(self) -> None:
        epoch = self._clock() - self._steady()
        if abs(epoch - self._epoch) > _DRIFT:
            self._epoch = epoch
