"""The reading processes of one vendor: who reads, who tries what hangs, and who has not gone yet."""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable

from trainvitals.devices.child import GRACE, Child

log = logging.getLogger(__name__)

#: Processes of ours in the driver, at most, those included that it does not let go of.
_MOST = 2
#: Seconds until one that was told to go is looked for again.
_SOON = 0.05


class Crew:
    """Never more than two processes, whatever the driver does with them.

    ``main`` reads, ``scout`` tries a device that hangs.  The ones that were told to go are kept until they have gone.
    """

    def __init__(self, vendor: str) -> None:
        self._vendor = vendor
        self.main: Child | None = None
        self.scout: Child | None = None
        self._leaving: list[Child] = []

    @property
    def busy(self) -> bool:
        """Whether one that was told to go is still here."""
        return bool(self._leaving)

    @property
    def stuck(self) -> int:
        """How many cannot be killed."""
        return sum(child.stuck for child in self._leaving)

    def count(self) -> int:
        """How many there are."""
        return (self.main is not None) + (self.scout is not None) + len(self._leaving)

    def room(self) -> bool:
        """Whether a main child may be started; makes room for it.

        One that will soon have gone is waited for: it has the driver open.
        """
        if self.stuck < len(self._leaving):
            return False
        if self.count() < _MOST:
            return True
        if self.scout is not None:
            self.kill(self.scout)
        return False

    def let_go(self, child: Child) -> None:
        """Ask a child to end."""
        child.let_go()
        self._part(child)

    def kill(self, child: Child) -> None:
        """End a child."""
        child.kill()
        self._part(child)

    def _part(self, child: Child) -> None:
        if child is self.main:
            self.main = None
        if child is self.scout:
            self.scout = None
        self._leaving.append(child)

    def reap(self) -> None:
        """Forget those that have gone."""
        self._leaving = [child for child in self._leaving if not self._has_gone(child)]

    def _has_gone(self, child: Child) -> bool:
        was_stuck = child.stuck
        gone = child.gone()
        if child.stuck and not was_stuck:
            log.error("devices of %s: process %d cannot be killed: its driver hangs", self._vendor, child.pid)
        return gone

    def wait(self, wake: int, until: float, clock: Callable[[], float]) -> list[Child]:
        """Wait until ``until``, a child's deadline, or something on the descriptor ``wake``; return who spoke."""
        children = [child for child in (self.main, self.scout) if child is not None]
        pause = min([until, *(child.deadline for child in children)]) - clock()
        if self.stuck < len(self._leaving):
            pause = min(pause, _SOON)
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        for child in children:
            poll.register(child.output, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, pause) * 1000)}
        return [child for child in children if child.output in ready]

    def end(self) -> None:
        """Kill all, and wait a little; what the kernel does not let go of is left to it."""
        for child in (self.main, self.scout):
            if child is not None:
                self.kill(child)
        for child in self._leaving:
            child.kill()
        deadline = time.monotonic() + 2 * GRACE
        self.reap()
        while self._leaving and time.monotonic() < deadline:
            time.sleep(0.01)
            self.reap()
