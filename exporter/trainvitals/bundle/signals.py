"""Signals as something to wait for, not as something that interrupts.

SIGINT, SIGTERM and SIGHUP are blocked while ``up`` runs and taken one by one where it waits.
So no Ctrl-C, first or fifth, can fall between starting a child and remembering it.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

#: What asks us to stop.
STOP = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


@contextlib.contextmanager
def collected() -> Iterator[Signals]:
    """Keep the signals to stop until somebody waits for them; for the main thread, before it starts any other."""
    # Under nohup the end of the terminal is to be ignored, and a blocked signal would wait for us all the same.
    stop = STOP - {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else STOP
    # SIGCHLD only to be woken early when a child dies; who died is found out by asking each child.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stop | {signal.SIGCHLD})
    try:
        yield Signals(stop)
    finally:
        while signal.sigtimedwait(stop, 0) is not None:
            pass  # One that came while we were stopping has what it asked for.
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Signals:
    """The signals that were taken so far; ``numbers`` are those that ask us to stop."""

    def __init__(self, numbers: frozenset[signal.Signals]) -> None:
        self.received: list[int] = []
        self._numbers = numbers

    @property
    def stop(self) -> bool:
        """Whether somebody asked us to stop."""
        return bool(self.received)

    def wait(self, seconds: float) -> None:
        """Wait for a signal to stop, for the death of a child, or for so long."""
        taken = signal.sigtimedwait(self._numbers | {signal.SIGCHLD}, max(0.0, seconds))
        if taken is not None and taken.si_signo in self._numbers:
            self.received.append(taken.si_signo)

    def wait_until(self, condition: Callable[[], bool], seconds: float, *, patience: int | None = 0) -> bool:
        """Wait until a condition holds, for so long at most; return whether it does.

        Gives up once more than ``patience`` signals to stop have been received (None: never).
        """
        deadline = time.monotonic() + seconds
        while not condition():
            impatient = patience is not None and len(self.received) > patience
            if impatient or time.monotonic() >= deadline:
                return False
            self.wait(0.05)
        return True
