"""Asks file systems how they are, and is never held up by one that does not answer.

A call into the file system of a dead server blocks in the kernel, and often not even SIGKILL ends it.  A process with
such a thread cannot end: after SIGKILL it is a zombie whose sockets are open still, so that the next exporter finds its
port taken.  So the calls are made in a child process (:mod:`~trainvitals.host.mount_worker`), which holds nothing but
two pipes, in one thread per mount:

- at most one call is under way per file system; the next begins when it has come back, however long that takes;
- the exporter itself can always end and give its port back, whatever state the child is in;
- a child that does not answer for itself (killed, stopped) is told from a mount that does not, and replaced.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.host import mount_worker
from trainvitals.host.mount_child import BACKOFF, SILENCE, Child, Keeper, spawn
from trainvitals.host.mounts import Mount

log = logging.getLogger(__name__)

#: Seconds that :meth:`MountProbe.ask` waits for the answers of healthy mounts.
PATIENCE = 0.25


@dataclass(frozen=True)
class Finding:
    """What a finished probe found; ``begun`` and ``finished`` are on the clock of the probe, sizes in bytes.

    ``trouble`` is the name of an errno (ESTALE), or empty.
    """

    begun: float
    finished: float
    seconds: float
    trouble: str = ""
    size: int | None = None
    available: int | None = None
    files: int | None = None
    files_free: int | None = None

    @property
    def is_reached(self) -> bool:
        """Whether the path leads to this mount and is a folder."""
        return self.trouble not in {mount_worker.FILE, mount_worker.HIDDEN}


@dataclass(frozen=True)
class State:
    """What is known of a mount now.

    ``stuck`` is None when it is not known; ``since`` is when the probe began that has not come back, on the clock of
    the probe.  A stuck mount has no finding: what it was before is not what it is.
    """

    finding: Finding | None = None
    stuck: bool | None = None
    since: float | None = None


@dataclass
class _Flight:
    """A probe that has not come back."""

    number: int
    mount: Mount
    begun: float
    child: Child
    #: The child was killed and is still there, so this may be what holds it.
    held: bool = False


class MountProbe:
    """Probes mounts every ``interval`` seconds; one that has not answered for ``timeout`` is stuck.

    A child that does not answer for itself for ``silence`` seconds is replaced.  At most ``most`` probes are under way
    together: those of mounts that are stuck and unmounted still count.
    """

    def __init__(
        self,
        *,
        interval: float = 15.0,
        timeout: float = 10.0,
        silence: float = SILENCE,
        most: int = 100,
        backoff: tuple[float, float] = BACKOFF,
        start_child: Callable[[], Child] = spawn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = interval
        self._timeout = timeout
        self._most = most
        self._clock = clock
        self._keeper = Keeper(
            take=self._take,
            gone=self._free,
            every=min(timeout, silence) / 2,
            silence=silence,
            backoff=backoff,
            start_child=start_child,
            clock=clock,
        )
        #: Guards what follows; told of answers and of children that are gone.
        self._changed = threading.Condition()
        #: By file system, whatever mount of it was probed.
        self._flights: dict[str, _Flight] = {}
        self._findings: dict[Mount, Finding] = {}
        self._wanted: frozenset[Mount] = frozenset()
        self._stuck: dict[Mount, float] = {}
        self._number = 0

    def start(self) -> None:
        """Start the child and the thread that keeps it."""
        self._keeper.start()

    def stop(self) -> None:
        """End both; a child that the kernel does not let go of is left to it."""
        self._keeper.stop()

    @property
    def is_answering(self) -> bool:
        """Whether the child answers for itself; when not, nothing is known of any mount."""
        return self._keeper.is_answering

    @property
    def restarts(self) -> int:
        """How often the child was replaced."""
        return self._keeper.restarts

    def ask(self, wanted: Mapping[Mount, str], patience: float = PATIENCE) -> dict[Mount, State]:
        """Begin the probes that are due, wait ``patience`` seconds at most for them, and return what is known.

        ``wanted`` maps a mount to its actions: "s", with "r" (read) and "w" (write) where they are wished.  What is
        not wanted any more is forgotten.
        """
        deadline = time.monotonic() + patience
        with self._changed:
            self._wanted = frozenset(wanted)
            for mount in self._findings.keys() - self._wanted:
                del self._findings[mount]
            self._changed.wait_for(lambda: self._keeper.child is not None, patience)
            begun = {self._begin(mount, actions) for mount, actions in wanted.items() if self._is_due(mount)}
            self._changed.wait_for(
                lambda: not any(flight.number in begun for flight in self._flights.values()),
                max(0.0, deadline - time.monotonic()),
            )
            states = {mount: self._state(mount) for mount in wanted}
        self._tell(states)
        return states

    def _is_due(self, mount: Mount) -> bool:
        if mount.device in self._flights or len(self._flights) >= self._most:
            return False
        finding = self._findings.get(mount)
        return finding is None or self._clock() - finding.begun >= self._interval

    def _begin(self, mount: Mount, actions: str) -> int:
        self._number += 1
        begun, path = self._clock(), os.fsencode(mount.mountpoint).hex()
        child = self._keeper.send(f"probe {self._number} {mount.number} {actions} {path}\n")
        if child is not None:
            self._flights[mount.device] = _Flight(self._number, mount, begun, child)
        return self._number

    def _state(self, mount: Mount) -> State:
        now = self._clock()
        flight = self._flights.get(mount.device)
        if flight is not None and now - flight.begun >= self._timeout:
            # A child that cannot answer for itself says nothing about its mounts.
            if flight.held or self._keeper.answered - flight.begun >= self._timeout:
                return State(stuck=True, since=flight.begun)
            return State()
        finding = self._findings.get(mount)
        if finding is None or not self.is_answering:
            return State()
        return State(finding=finding, stuck=False)

    def _tell(self, states: Mapping[Mount, State]) -> None:
        stuck = {mount: state.since for mount, state in states.items() if state.since is not None}
        for mount in stuck.keys() - self._stuck.keys():
            log.warning("storage: %s does not answer (%s)", mount.mountpoint, mount.fstype)
        for mount in self._stuck.keys() - stuck.keys():
            if mount in states and states[mount].stuck is False:
                log.info("storage: %s answers again", mount.mountpoint)
        self._stuck = stuck

    def _take(self, answers: Sequence[list[str]]) -> None:
        """Take the words of answers; those to pings are a number alone."""
        with self._changed:
            for words in answers:
                number = int(words[0])
                if len(words) > 1:
                    self._arrive(number, float(words[1]), words[2], [_number(words[index]) for index in range(3, 7)])
            self._changed.notify_all()

    def _arrive(self, number: int, seconds: float, trouble: str, space: list[int | None]) -> None:
        flight = next((flight for flight in self._flights.values() if flight.number == number), None)
        if flight is None:
            return
        del self._flights[flight.mount.device]
        if flight.mount in self._wanted:
            trouble = "" if trouble == "-" else trouble
            self._findings[flight.mount] = Finding(flight.begun, self._clock(), seconds, trouble, *space)

    def _free(self, child: Child) -> None:
        """Forget the probes of a child that is gone; one that is held may be held by any that it had begun."""
        with self._changed:
            held = child in self._keeper.unkilled
            for flight in [*self._flights.values()]:
                if flight.child is child:
                    # What was sent after its last answer it has never begun.
                    flight.held = held and flight.begun <= self._keeper.answered
                    if not flight.held:
                        del self._flights[flight.mount.device]
            self._changed.notify_all()


def _number(word: str) -> int | None:
    return None if word == "-" else int(word)
