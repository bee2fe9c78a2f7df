"""Signals that a supervisor is sent: those that tell it to end, and those that are the training's own business."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType

_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Slurm and users ask trainings for a checkpoint with these.
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
_PAUSE = 0.05


class Signals:
    """What has come so far.  ``told`` is the first signal that asked for the end, 0 before; ``times`` how many did."""

    def __init__(self) -> None:
        self.told = 0
        self.times = 0
        self._to_forward: list[int] = []

    def catch(self) -> None:
        """Catch them from now on, to the end of this process: one that comes late must not change its status."""
        for number in (*_ENDS, *_FORWARDED):
            signal.signal(number, self._take)

    def _take(self, number: int, _: FrameType | None) -> None:
        if number in _FORWARDED:
            self._to_forward.append(number)
        else:
            self.told = self.told or number
            self.times += 1

    def to_forward(self) -> list[int]:
        """Return those that the training shall have, once."""
        numbers, self._to_forward = self._to_forward, []
        return numbers

    def sleep(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Wait, unless told to end, or until something is so; return whether it was."""
        deadline = time.monotonic() + seconds
        while not self.told:
            if until():
                return True
            left = deadline - time.monotonic()
            if left <= 0.0:
                break
            time.sleep(min(_PAUSE, left))
        return False
