"""Starts the command of an attempt, finds one again that goes on without its supervisor, and ends it.

The command runs below a small shell in a session of its own.  The shell does nothing but write down how the command
ended: so a supervisor that was killed and started again learns it too, though it is no longer the parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainvitals.supervise import processes

#: A signal that the shell is sent too must not end it before the command; ``:`` is no ignoring, which children inherit.
_SHELL = """
trap : HUP INT QUIT TERM USR1 USR2
status=$1
shift
"$@"
code=$?
printf '%s\\n' "$code" >"$status.new" && mv -f "$status.new" "$status"
exit "$code"
"""
#: Python ignores these, and what a process ignores its children ignore too.
_TO_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ)
#: What a shell says of a command that SIGKILL ended.
KILLED = 128 + signal.SIGKILL
_PAUSE = 0.02


@dataclass(frozen=True)
class Outputs:
    """Where a command writes: paths of files that grow.  Both may be one."""

    out: str
    err: str


class Child:
    """The processes of one attempt: the shell with ``pid`` that began at ``started``, and all that have ``mark``.

    ``status_file`` is where the shell says how the command ended.
    """

    def __init__(self, pid: int, started: int, mark: str, status_file: str) -> None:
        self.pid, self.started, self.mark = pid, started, mark
        self._status_file = status_file
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code of the command, 128 and the number for a signal, or None while it runs."""
        ended = processes.reap()
        if self._code is None:
            self._code = ended.get(self.pid)
        if self._code is None and processes.started(self.pid) != self.started:
            # Gone, and no child of ours: what the shell wrote is all there is.
            self._code = _read_status(self._status_file)
            if self._code is None:
                self._code = KILLED
        return self._code

    def send(self, number: int) -> None:
        """Send a signal to the command, as a terminal would: to its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def end(self, grace: float, number: int = signal.SIGTERM) -> None:
        """Ask the command to end, wait up to ``grace`` seconds, and leave nothing of it behind."""
        if grace > 0.0 and self.poll() is None:
            self.send(number)
            deadline = time.monotonic() + grace
            while self.poll() is None and time.monotonic() < deadline:
                time.sleep(_PAUSE)
        processes.kill_marked(self.mark)
        self.poll()


def start(
    command: Sequence[str], environ: Mapping[str, str], *, outputs: Outputs, status_file: str, mark: str
) -> Child:
    """Start a command whose first word is a path.  Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(status_file)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, outputs.out, flags & ~os.O_CLOEXEC, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, outputs.err, flags & ~os.O_CLOEXEC, 0o600),
    ]
    pid = os.posix_spawn(
        "/bin/sh",
        ["/bin/sh", "-c", _SHELL, "trainvitals-run", status_file, *command],
        {**environ, processes.MARK: mark},
        file_actions=actions,
        setsid=True,
        setsigdef=_TO_DEFAULT,
        setsigmask=(),
    )
    return Child(pid, processes.started(pid) or 0, mark, status_file)


def _read_status(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read(16))
    except (OSError, ValueError):
        return None
