"""Keeps the process that touches file systems: starts it, hears whether it lives, replaces it, ends it.

It may become impossible to kill, when a file system holds one of its threads in the kernel; then it is left alone, and
another takes its place.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from trainvitals.host import mount_worker

log = logging.getLogger(__name__)

#: Seconds between restarts: the first pause and the longest.
BACKOFF = (1.0, 60.0)
#: Seconds without a word after which a child is replaced, and how many times that one has that starts.
SILENCE = 10.0
STARTUP_FACTOR = 3
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


class Keeper:
    """Keeps one child in a thread of its own.

    It is pinged every ``every`` seconds and replaced after ``silence`` seconds without an answer.  ``take`` gets the
    words of its answers, as they come, and raises ValueError or IndexError for nonsense; ``gone`` is told of a child
    that has gone or was given up.  Both are called in that thread.
    """

    def __init__(
        self,
        *,
        take: Callable[[Sequence[list[str]]], None],
        gone: Callable[[Child], None],
        every: float,
        silence: float,
        backoff: tuple[float, float],
        start_child: Callable[[], Child],
        clock: Callable[[], float],
    ) -> None:
        self._take = take
        self._gone = gone
        self._every = every
        self._silence = silence
        self._first, self._longest = backoff
        self._start_child = start_child
        self._clock = clock
        #: Guards the input of the child against being closed while somebody writes.
        self._lock = threading.Lock()
        #: Only one that has answered: the time of its start is nobody's latency.
        self.child: Child | None = None
        #: Those that were killed and are still there.
        self.unkilled: tuple[Child, ...] = ()
        #: When a child last answered.
        self.answered = 0.0
        self.restarts = 0
        #: Why no child could be started, as it was told last.
        self._told = ""
        self._stopping = False
        self._wake = (-1, -1)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, which starts the child."""
        self._wake = os.pipe()
        self.answered = self._clock()
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
        """Whether a child answers for itself."""
        return self._clock() - self.answered <= self._silence

    def send(self, line: str) -> Child | None:
        """Write a line to the child, and return who has it: None when there is no child or it takes no more."""
        with self._lock:
            return self.child if self.child is not None and _write(self.child, line) else None

    def _keep(self) -> None:
        pause = self._first
        while not self._stopping:
            began = self._clock()
            if len(self.unkilled) < _MOST_UNKILLED:
                try:
                    self._one_child()
                except Exception as error:  # Without this thread nothing would ever be known again.
                    log.warning("storage: the probing process is replaced: %s", error)
                self.restarts += not self._stopping
            if self._clock() - began > self._longest:
                pause = self._first
            self._sleep(pause)
            self._look_after_unkilled()
            pause = min(2 * pause, self._longest)

    def _one_child(self) -> None:
        try:
            child = self._start_child()
        except OSError as error:
            if str(error) != self._told:
                # Once, and not every minute.
                self._told = str(error)
                log.warning("storage: the probing process cannot be started: %s", error.strerror)
            return
        self._told = ""
        assert child.stdin is not None  # noqa: S101  # Popen was told to make pipes.
        os.set_blocking(child.stdin.fileno(), False)
        try:
            trouble = self._follow(child)
            if trouble and not self._stopping:
                log.warning("storage: the probing process %s and is replaced", trouble)
        finally:
            self._end(child)

    def _follow(self, child: Child) -> str:
        """Take a child's answers until it ends or does not answer for itself; return the trouble, if any."""
        assert child.stdout is not None  # noqa: S101
        output = child.stdout.fileno()
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        pinged, began = float("-inf"), self._clock()
        pings = 0
        rest = b""
        while not self._stopping:
            now = self._clock()
            if now - max(self.answered, began + (STARTUP_FACTOR - 1) * self._silence) > self._silence:
                return "does not answer"
            if now - pinged >= self._every:
                pinged, pings = now, pings + 1
                self._look_after_unkilled()
                _write(child, f"ping {pings}\n")
            ready = {descriptor for descriptor, _ in poll.poll(self._every * 1000)}
            if output not in ready:
                continue
            chunk = os.read(output, 1 << 16)
            if not chunk:
                return "ended"
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > select.PIPE_BUF:
                return "wrote nonsense"
            if lines:
                self.child, self.answered = child, self._clock()
            try:
                self._take([line.decode("ascii", "replace").split() for line in lines])
            except (ValueError, IndexError):
                return "wrote nonsense"
        return ""

    def _end(self, child: Child) -> None:
        """Let go of a child, by the end of its input first."""
        with self._lock:
            self.child = None
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
            self.unkilled = (*self.unkilled, child)
        self._gone(child)

    def _look_after_unkilled(self) -> None:
        for child in self.unkilled:
            if child.poll() is not None:
                self.unkilled = tuple(other for other in self.unkilled if other is not child)
                self._gone(child)

    def _sleep(self, seconds: float) -> None:
        """Wait, but not longer than until stop()."""
        poll = select.poll()
        poll.register(self._wake[0], select.POLLIN)
        poll.poll(seconds * 1000)


def _write(child: Child, line: str) -> bool:
    """Write a line, whole or not at all (pipe(7)); False when the child does not take it."""
    assert child.stdin is not None  # noqa: S101
    try:
        os.write(child.stdin.fileno(), line.encode())
    except OSError:  # Full or broken.
        return False
    return True
