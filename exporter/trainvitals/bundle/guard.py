"""Nothing of ours survives ``trainvitals up``, even when it is killed with SIGKILL and can clean up nothing itself.

A program by itself, on the standard library alone, in two forms:

``guard.py launch PARENT COMMAND...``
    Asks the kernel for SIGTERM at the death of the parent, then becomes the command.
    The kernel tells only the child itself, not what that child started; hence the second form.

``guard.py watch``
    Reads lines from ``up`` and, when the pipe ends because ``up`` is gone, ends what is still registered:
    ``group ID`` and ``forget ID`` for a process group, ``folder PATH`` and ``leave PATH`` for a temporary folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable

_PR_SET_PDEATHSIG = 1
#: Between SIGTERM and SIGKILL; Prometheus and Alertmanager need some milliseconds.
GRACE_SECONDS = 3.0


def launch(parent: int, command: list[str]) -> None:
    """Replace this process by ``command``, which ends with its parent; does not return."""
    # ``up`` waits for signals with these blocked, and a blocked signal stays blocked across an exec.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(OSError, AttributeError):  # no such call here: the watcher alone must do
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent is gone already")
    try:
        os.execvp(command[0], command)  # noqa: S606  to become it is the point
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def watch(lines: Iterable[str]) -> None:
    """Follow the register until it ends, then end and remove what is still in it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    groups: set[int] = set()
    folders: set[str] = set()
    for line in lines:
        word, _, value = line.rstrip("\n").partition(" ")
        if word == "group":
            groups.add(int(value))
        elif word == "forget":
            groups.discard(int(value))
        elif word == "folder":
            folders.add(value)
        elif word == "leave":
            folders.discard(value)
    end(groups)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def end(groups: set[int]) -> None:
    """Ask process groups to end, and after a while make them."""
    begun = time.monotonic()
    left = {group for group in groups if send(group, signal.SIGTERM)}
    # Twice the grace at most: a zombie that its new parent never reaps answers forever.
    while left and time.monotonic() < begun + 2 * GRACE_SECONDS:
        time.sleep(0.05)
        number = signal.SIGKILL if time.monotonic() > begun + GRACE_SECONDS else 0  # 0 only asks who is left
        left = {group for group in left if send(group, number)}


def send(group: int, number: int) -> bool:
    """Send a signal to a process group; return whether anybody of ours was there."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    if sys.argv[1] == "launch":
        launch(int(sys.argv[2]), sys.argv[3:])
    else:
        watch(sys.stdin)
