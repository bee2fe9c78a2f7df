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
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from trainvitals.host import mount_worker
from trainvitals.host.mounts import Mount

log = logging.getLogger(__name__)

#: Seconds between restarts of the child: the first pause and the longest.
BACKOFF = (1.0, 60.0)
#: Seconds without a word after which a child is replaced, and how many times that one has that starts.
SILENCE = 10.0
STARTUP_FACTOR = 3
#: Seconds that :meth:`MountProbe.ask` waits for the answers of healthy mounts.
PATIENCE = 0.25
#: Seconds that a child gets to end by itself, and then again after SIGKILL.
_GRACE = 1.0
#: Seconds that stop() waits: more than ending a child can take.
_JOIN = 5.0
#: Children that cannot be killed, beyond which there is no new one.
_MOST_UNKILLED = 3

Child = subprocess.Popen[bytes]


def spawn() -> Child:
    """Start the process that touches the file systems.  Raises OSError."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", os.path.abspath(mount_worker.__file__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # The many short threads share what one has allocated.
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        cwd="/",
        start_new_session=True,
    )


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
        self._silence = silence
        self._most = most
        self._first, self._longest = backoff
        self._start_child = start_child
        self._clock = clock
        #: Guards what follows; told of when a child came, answered or went.
        self._changed = threading.Condition()
        #: Only one that has answered: the time of its start is nobody's latency.
        self._child: Child | None = None
        self._unkilled: list[Child] = []
        self._flights: dict[str, _Flight] = {}
        self._findings: dict[Mount, Finding] = {}
        self._wanted: frozenset[Mount] = frozenset()
        self._stuck: dict[Mount, float] = {}
        self._number = 0
        self._answered = 0.0
        self.restarts = 0
        self._stopping = False
        self._wake = (-1, -1)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that keeps the child."""
        self._wake = os.pipe()
        self._answered = self._clock()
        self._thread = threading.Thread(target=self._keep, name="mount-probe", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the child and the thread; a child that the kernel does not let go of is left to it."""
        if self._thread is None:
            return
        self._stopping = True
        os.write(self._wake[1], b"x")
        self._thread.join(_JOIN)
        if self._thread.is_alive():
            log.error("storage: the thread of the probes does not end")
            return
        self._thread = None
        for descriptor in self._wake:
            os.close(descriptor)

    @property
    def is_answering(self) -> bool:
        """Whether the child answers for itself; when not, nothing is known of any mount."""
        return self._clock() - self._answered <= self._silence

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
            self._changed.wait_for(lambda: self._child is not None, patience)
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
        number = self._next_number()
        path = os.fsencode(mount.mountpoint).hex()
        if self._child is not None and _send(self._child, f"probe {number} {mount.number} {actions} {path}\n"):
            self._flights[mount.device] = _Flight(number, mount, self._clock(), self._child)
        return number

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _state(self, mount: Mount) -> State:
        now = self._clock()
        flight = self._flights.get(mount.device)
        if flight is not None and now - flight.begun >= self._timeout:
            # A child that cannot answer for itself says nothing about its mounts.
            if flight.held or self._answered - flight.begun >= self._timeout:
                return State(stuck=True, since=flight.begun)
            return State()
        finding = self._findings.get(mount)
        if finding is None or not self.is_answering:
            return State()
        return State(finding=finding, stuck=False)

    def _tell(self, states: Mapping[Mount, State]) -> None:
        stuck = {mount: state.since for mount, state in states.items() if state.since is not None}
        for mount in stuck.keys() - self._stuck.keys():
            log.warning("storage: %s does not answer (%s from %s)", mount.mountpoint, mount.fstype, mount.source)
        for mount in self._stuck.keys() - stuck.keys():
            if mount in states and states[mount].stuck is False:
                log.info("storage: %s answers again", mount.mountpoint)
        self._stuck = stuck

    def _keep(self) -> None:
        """Keep one child: start it, take its answers, replace it."""
        pause = self._first
        while not self._stopping:
            began = self._clock()
            if len(self._unkilled) < _MOST_UNKILLED:
                try:
                    self._one_child()
                except Exception as error:  # Without this thread nothing would ever be known again.
                    log.warning("storage: the probing process is replaced: %s", error)
                self.restarts += not self._stopping
            if self._clock() - began > self._longest:
                pause = self._first
            self._sleep(pause)
            self._free_flights()
            pause = min(2 * pause, self._longest)

    def _one_child(self) -> None:
        try:
            child = self._start_child()
        except OSError as error:
            log.warning("storage: the probing process cannot be started: %s", error.strerror)
            return
        assert child.stdin is not None  # noqa: S101  # Popen was told to make pipes.
        os.set_blocking(child.stdin.fileno(), False)
        try:
            trouble = self._follow(child)
        finally:
            with self._changed:
                self._child = None
            self._end(child)
        if trouble:
            log.warning("storage: the probing process %s and is replaced", trouble)

    def _follow(self, child: Child) -> str:
        """Take a child's answers until it ends or does not answer for itself; return the trouble, if any."""
        assert child.stdout is not None  # noqa: S101
        output = child.stdout.fileno()
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        every = min(self._timeout, self._silence) / 2
        pinged, began = float("-inf"), self._clock()
        rest = b""
        while not self._stopping:
            now = self._clock()
            if now - max(self._answered, began + (STARTUP_FACTOR - 1) * self._silence) > self._silence:
                return "does not answer"
            if now - pinged >= every:
                pinged = now
                if self._unkilled:
                    self._free_flights()
                _send(child, f"ping {self._next_number()}\n")
            ready = {descriptor for descriptor, _ in poll.poll(every * 1000)}
            if output not in ready:
                continue
            chunk = os.read(output, 1 << 16)
            if not chunk:
                return "ended" if not self._stopping else ""
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > select.PIPE_BUF or not self._take(child, lines):
                return "wrote nonsense"
        return ""

    def _take(self, child: Child, lines: Collection[bytes]) -> bool:
        """Take answers; False when one is none.  After its first a child is given probes."""
        with self._changed:
            self._child = child
            now = self._answered = self._clock()
            for line in lines:
                words = line.decode("ascii", "replace").split()
                try:
                    number = int(words[0])
                    if len(words) > 1:
                        self._arrive(number, float(words[1]), words[2], [_number(word) for word in words[3:7]], now)
                except (ValueError, IndexError, TypeError):
                    return False
            self._changed.notify_all()
        return True

    def _arrive(self, number: int, seconds: float, trouble: str, space: list[int | None], now: float) -> None:
        flight = next((flight for flight in self._flights.values() if flight.number == number), None)
        if flight is None:
            return
        del self._flights[flight.mount.device]
        if flight.mount in self._wanted:
            self._findings[flight.mount] = Finding(
                flight.begun, now, seconds, "" if trouble == "-" else trouble, *space
            )

    def _end(self, child: Child) -> None:
        """Let go of a child, by the end of its input first."""
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        for _ in range(2):
            try:
                child.wait(_GRACE)
                break
            except subprocess.TimeoutExpired:
                child.kill()
        else:
            log.error("storage: process %d cannot be killed: a file system hangs", child.pid)
            self._unkilled.append(child)
            with self._changed:
                for flight in self._flights.values():
                    # What was sent after its last answer it has never begun.
                    flight.held = flight.held or (flight.child is child and flight.begun <= self._answered)
        self._free_flights()

    def _free_flights(self) -> None:
        """Forget the probes of children that are gone."""
        self._unkilled = [child for child in self._unkilled if child.poll() is None]
        with self._changed:
            self._flights = {
                device: flight
                for device, flight in self._flights.items()
                if flight.child is self._child or (flight.held and flight.child in self._unkilled)
            }
            self._changed.notify_all()

    def _sleep(self, seconds: float) -> None:
        """Wait, but not longer than until stop()."""
        poll = select.poll()
        poll.register(self._wake[0], select.POLLIN)
        poll.poll(seconds * 1000)


def _send(child: Child, line: str) -> bool:
    """Write a line, whole or not at all (pipe(7)); False when the child does not take it."""
    assert child.stdin is not None  # noqa: S101
    try:
        os.write(child.stdin.fileno(), line.encode())
    except (OSError, ValueError):  # Full, broken, or closed meanwhile.
        return False
    return True


def _number(word: str) -> int | None:
    return None if word == "-" else int(word)
