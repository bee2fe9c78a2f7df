"""Keeps a process that reads one vendor's devices, and decides what to do when it hangs.

A call into a wedged driver may never return and may not even be killed.  So nobody waits for it: one thread takes the
lines of the child, which say what it is about to ask, and gives up on it after a silence.  A device that hangs is left
alone from then on: the next child avoids it, and a second one, the scout, tries it from time to time.
:meth:`Supervisor.latest` only looks at what that thread left on the :mod:`~trainvitals.devices.board`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from trainvitals.devices.backoff import Backoff
from trainvitals.devices.base import Reading
from trainvitals.devices.board import Board
from trainvitals.devices.child import Child, Patience, Process, spawn
from trainvitals.devices.crew import Crew
from trainvitals.devices.pci import Bus
from trainvitals.devices.quarantine import Quarantine
from trainvitals.devices.vendors import VENDORS
from trainvitals.devices.wire import ABSENT, DRIVER, STALE, Message
from trainvitals.telemetry import Fault

log = logging.getLogger(__name__)

#: Seconds between restarts: the first pause and the longest.
BACKOFF = (1.0, 60.0)
#: Seconds until a device that hangs is tried again: the first pause and the longest.
RETRY = (30.0, 600.0)
#: Seconds until a machine without the vendor's library is asked again.
RETRY_ABSENT = 300.0
#: Seconds between two looks at the bus, and at the file that pauses.
_LOOK_BUS = 30.0
_LOOK_PAUSE = 1.0
#: Beyond a silence, values are shown for as long as a new process needs to read them again.
_RESTART = 5.0
#: Seconds that stop() waits: more than ending the children can take.
_JOIN = 8.0

#: Starts a process that avoids some devices, or reads only one.  Raises OSError.
StartChild = Callable[[frozenset[int], "int | None"], Process]


class Supervisor:
    """The source of one vendor's devices.

    A child that was about to ask a device and is silent for ``hung_after`` seconds is killed and replaced at once by
    one that avoids the device; the others keep their values meanwhile.  The scout tries the device after the first of
    the pauses ``retry``, doubled up to the longest; when it answers, a new child reads it with the others.

    When the driver as a whole hangs, or the next child hangs before it has read anything, or more than half of the
    devices hang, all devices are down.  Then restarts are ``backoff`` seconds apart, doubled from the first to the
    longest; after a child that worked for ``hung_after`` seconds they begin anew.

    There are never more than two children, those included that cannot be killed; and no scout beside one of these.
    While ``pause_file`` exists there is none, so that the driver can be unloaded and a device be reset.

    ``expected`` is the number of devices that should be here, if not as many as on the ``bus``.  ``clock`` is
    monotonic, ``wall`` is the time of day.
    """

    def __init__(
        self,
        vendor: str,
        *,
        interval: float = 2.0,
        hung_after: float = 20.0,
        backoff: tuple[float, float] = BACKOFF,
        retry: tuple[float, float] = RETRY,
        retry_absent: float = RETRY_ABSENT,
        expected: int | None = None,
        pause_file: str | None = None,
        bus: Bus | None = None,
        start_child: StartChild | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.vendor = vendor
        self._patience = Patience(interval, hung_after)
        self._pauses = Backoff(*backoff)
        self._retry_absent = retry_absent
        self._pause_file = pause_file
        self._bus = bus or Bus(VENDORS[vendor].pci)
        self._start_child = start_child or (lambda avoid, only: spawn(vendor, interval, avoid=avoid, only=only))
        self._clock = clock
        fresh = self._patience.silence + _RESTART
        self._board = Board(vendor, fresh=fresh, expected=expected, clock=clock, wall=wall)
        self._crew = Crew(vendor)
        self._quarantine = Quarantine(*retry)
        self._next_start = float("-inf")
        self._next_look = {_LOOK_BUS: float("-inf"), _LOOK_PAUSE: float("-inf")}
        #: Whether the next child is a replacement, which is counted.
        self._replacing = False
        self._paused = False
        #: Children in a row that hung before their first reading, and the device that began it.
        self._in_a_row = 0
        self._blamed: int | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._wake = (-1, -1)

    def start(self) -> None:
        """Start the thread, which starts the child."""
        self._stopping = False
        self._wake = os.pipe()
        # The kernel ends a child when the thread that forked it ends, so it is always this one.
        self._thread = threading.Thread(target=self._supervise, name=f"devices-{self.vendor}", daemon=True)
        self._thread.start()

    def latest(self) -> Reading | None:
        """Return what is known, at once.  None until the child's first word, and where there is no such vendor."""
        return self._board.latest()

    def faults(self) -> list[Fault]:
        """Return the faults that came since the last call."""
        return self._board.faults()

    def stop(self) -> None:
        """Kill the children and end the thread.  A child that the kernel does not let go of is left to it."""
        if self._thread is None:
            return
        self._stopping = True
        os.write(self._wake[1], b"x")
        self._thread.join(_JOIN)
        if self._thread.is_alive():
            log.error("devices of %s: the thread does not end", self.vendor)
            return
        self._thread = None
        for descriptor in self._wake:
            os.close(descriptor)
        self._board.ended()

    def _supervise(self) -> None:
        try:
            while not self._stopping:
                self._crew.reap()
                self._look()
                if not self._paused:
                    self._start_what_is_due()
                for child in self._crew.wait(self._wake[0], self._next(), self._clock):
                    if child in {self._crew.main, self._crew.scout}:
                        self._hear(child)
                self._judge()
        finally:
            self._crew.end()

    def _next(self) -> float:
        """When something is to be done.  What is overdue waits for something else."""
        now = self._clock()
        moments = (self._next_start, self._quarantine.next_due())
        return min([now + _LOOK_PAUSE, *(moment for moment in moments if moment > now)])

    def _look(self) -> None:
        now = self._clock()
        if now >= self._next_look[_LOOK_BUS]:
            self._next_look[_LOOK_BUS] = now + _LOOK_BUS
            self._board.found(self._bus.look())
        if now >= self._next_look[_LOOK_PAUSE]:
            self._next_look[_LOOK_PAUSE] = now + _LOOK_PAUSE
            paused = self._pause_file is not None and os.path.exists(self._pause_file)
            if paused and not self._paused:
                self._pause()
            elif self._paused and not paused:
                log.info("devices of %s: read again, %s is gone", self.vendor, self._pause_file)
            self._paused = paused

    def _pause(self) -> None:
        log.warning("devices of %s: paused while %s exists", self.vendor, self._pause_file)
        for child in (self._crew.main, self._crew.scout):
            if child is not None:
                self._crew.let_go(child)
        self._forget_hangs()
        self._board.paused()
        self._pauses.reset()
        self._next_start = self._clock()
        self._replacing = False

    def _start_what_is_due(self) -> None:
        now = self._clock()
        main, held = self._crew.main, self._quarantine.indices
        if main is None:
            if now >= self._next_start and self._crew.room():
                self._start_main(held)
        elif self._crew.scout is None:
            due = self._quarantine.due(now)
            if main.avoid != held:
                self._crew.let_go(main)
                self._next_start = now
            elif due is not None and not self._crew.busy and main.rounds:
                self._start_scout(due)

    def _start_main(self, held: frozenset[int]) -> None:
        if self._replacing:
            self._board.restarted()
        self._replacing = True
        self._crew.main = self._start(held, None)
        if self._crew.main is None:
            self._postpone()

    def _start_scout(self, index: int) -> None:
        self._crew.scout = self._start(frozenset(), index)
        if self._crew.scout is None:
            self._quarantine.failed(index, self._clock())

    def _start(self, avoid: frozenset[int], only: int | None) -> Child | None:
        try:
            process = self._start_child(avoid, only)
        except OSError as error:
            self._board.down("not_started", f"cannot be started: {error.strerror}")
            return None
        return Child(process, self.vendor, self._patience, self._clock, avoid=avoid, only=only)

    def _hear(self, child: Child) -> None:
        try:
            messages = child.take()
        except ValueError as error:
            log.warning("devices of %s: the reading process wrote an invalid line: %s", self.vendor, error)
            self._fail(child, "invalid_line")
            return
        if messages is None:
            self._ended(child)
            return
        for message in messages:
            # Whoever was given up on has no say any more.
            if child is self._crew.main:
                self._take(child, message)
            elif child is self._crew.scout:
                self._take_scout(child, message)

    def _judge(self) -> None:
        """Give up on who was silent for too long."""
        now = self._clock()
        scout, main = self._crew.scout, self._crew.main
        if scout is not None and now >= scout.deadline:
            self._board.count_failed("hung")
            self._give_up(scout)
        if main is not None and now >= main.deadline:
            self._hang(main)
        self._board.check(self._quarantine.indices)

    def _take(self, child: Child, message: Message) -> None:
        if message.absent:
            self._board.complain(f"nothing to read: {message.absent}", logging.INFO)
        elif message.down:
            self._board.down(message.down, f"the driver does not answer: {message.down}")
            # What comes after it is another driver.
            self._forget_hangs()
        elif message.at is None:
            self._read(child, message)

    def _read(self, child: Child, message: Message) -> None:
        self._board.keep(message.faults)
        count = len(message.devices) + len(child.avoid) if message.count is None else message.count
        if child.avoid and 2 * len(child.avoid) > count:
            # Hardly anything is left: begin anew with all.
            self._quarantine.clear()
            self._fail(child, "hung", hung=self._blame())
            return
        if self._board.moved(message.devices, count):
            self._quarantine.clear()
            self._board.found(self._bus.look())
        if self._in_a_row > 1:
            # The driver was down as a whole and answers again; whoever was left alone may do so too.
            self._quarantine.try_all(self._clock())
        self._in_a_row = 0
        self._blamed = None
        self._board.read(message.devices, count, child.avoid)

    def _hang(self, child: Child) -> None:
        whole = child.at == DRIVER or (self._in_a_row > 0 and not child.rounds)
        if child.at != DRIVER:
            self._quarantine.put(child.at, self._clock())
            self._board.hangs(child.at, child.heard)
        self._in_a_row += 1
        most = 0 < self._board.count < 2 * len(self._quarantine.indices)
        if whole or most:
            if self._blamed is None:
                self._blamed = self._quarantine.oldest()
            if most:
                self._quarantine.clear()
            self._fail(child, "hung", since=child.heard, hung=self._blame())
            return
        self._board.count_failed("hung")
        log.warning("devices of %s: device %d hangs; the others are read without it", self.vendor, child.at)
        self._crew.kill(child)
        self._next_start = self._clock()

    def _blame(self) -> tuple[int, ...]:
        return () if self._blamed is None else (self._blamed,)

    def _ended(self, child: Child) -> None:
        status = child.status()
        if status == ABSENT and child is self._crew.main and not self._board.devices:
            self._crew.kill(child)
            self._board.absent()
            self._replacing = False
            pause = min(self._retry_absent, self._pauses.longest) if self._board.on_bus else self._retry_absent
            self._next_start = self._clock() + pause
            return
        if status == STALE:
            self._forget_hangs()
        shown = child.down or ("no_library" if child.absent else "")
        self._fail(child, "ended", f"the reading process ended with status {status}", shown=shown)

    def _fail(
        self,
        child: Child,
        reason: str,
        text: str = "",
        *,
        shown: str = "",
        since: float | None = None,
        hung: tuple[int, ...] = (),
    ) -> None:
        """Show what a child that is of no use means for its devices, and replace it."""
        if child is self._crew.scout:
            self._give_up(child)
            return
        self._board.down(reason, text, shown=shown, since=since, hung=hung)
        self._crew.kill(child)
        if self._board.read_at - child.began >= self._patience.hung_after:
            self._pauses.reset()
        self._postpone()

    def _postpone(self) -> None:
        self._next_start = self._clock() + self._pauses.next()

    def _forget_hangs(self) -> None:
        self._quarantine.clear()
        self._blamed = None
        self._in_a_row = 0

    def _take_scout(self, child: Child, message: Message) -> None:
        if message.down:
            self._give_up(child)
        elif not message.absent and message.at is None:
            self._board.keep(message.faults)
            # Whether it is well or lost: the call returned.  If it is not among them, the numbers have moved.
            self._quarantine.release(child.only or 0, self._clock())
            log.info("devices of %s: device %s answers again", self.vendor, child.only)
            self._crew.let_go(child)

    def _give_up(self, scout: Child) -> None:
        """End a scout that learned nothing."""
        self._quarantine.failed(scout.only or 0, self._clock())
        self._crew.kill(scout)
