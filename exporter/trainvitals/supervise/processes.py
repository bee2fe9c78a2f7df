"""Processes as the kernel tells of them: which belong to an attempt, when they began, and what they do.

A launcher puts its ranks into sessions of their own (torchrun does), and a rank outlives a launcher that is killed.
So an attempt is known by a mark in its environment, which every process of it inherits.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

#: The variable that holds the mark.
MARK = "TRAINVITALS_SUPERVISED"
#: prctl(2).
_SET_CHILD_SUBREAPER = 36
#: Fields of /proc/PID/stat (proc(5)) behind the name of the program: state and start time.
_STATE, _START = 0, 19
_PAUSE = 0.02


def become_subreaper() -> None:
    """Let orphans below this process become its children, so that it can wait for them; without it they are init's."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap() -> dict[int, int]:
    """Return the exit codes of children that have ended, by process: 128 and the signal, as a shell tells them."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            ended[pid] = code if code >= 0 else 128 - code
    return ended


def started(pid: int, proc: str = "/proc") -> int | None:
    """Return when a process began, in ticks since the boot; None for one that is gone or waits to be reaped."""
    fields = _fields(pid, proc)
    return None if not fields or fields[_STATE] in {"Z", "X"} else int(fields[_START])


def state(pid: int, proc: str = "/proc") -> str:
    """Return the state of a process by its letter ("T": stopped, "D": waits in the kernel), "" for one that is gone."""
    fields = _fields(pid, proc)
    return fields[_STATE] if fields else ""


def _fields(pid: int, proc: str) -> list[str]:
    try:
        with open(f"{proc}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name stands in brackets and may hold anything.
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def marked(mark: str, proc: str = "/proc") -> list[int]:
    """Return the live processes of this user with a mark in their environment, except this one."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir(proc):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"{proc}/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(name))
    return [pid for pid in found if started(pid, proc) is not None]


def send(pid: int, number: int) -> None:
    """Send a signal to a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_marked(mark: str, patience: float = 10.0) -> int:
    """Kill all processes with a mark and wait until they are gone; return how many there were.

    One that waits in the kernel for a device or a file server stays until that answers: so ``patience`` in seconds.
    """
    seen: set[int] = set()
    deadline = time.monotonic() + patience
    while (alive := marked(mark)) and time.monotonic() < deadline:
        seen.update(alive)
        for pid in alive:
            send(pid, signal.SIGKILL)
        reap()
        time.sleep(_PAUSE)
    reap()
    return len(seen)
