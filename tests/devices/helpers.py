"""What several tests of devices need."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Poll until ``condition`` holds; fail after a time that only a broken program needs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def children() -> set[int]:
    """Return the processes that this one started and has not reaped."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children") as file:
            found |= {int(pid) for pid in file.read().split()}
    return found
