"""What a process holds: descriptors, threads, children; and what of it is new.

Counts would be equal only by luck: a thread or a socket that another test left may end at any time in between.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Held:
    """Descriptors as (number, what it is open on), threads, and process ids of children."""

    descriptors: frozenset[tuple[str, str]]
    threads: frozenset[threading.Thread]
    children: frozenset[int]


def held() -> Held:
    """Return what this process holds now."""
    return Held(
        frozenset(_descriptors()),
        frozenset(threading.enumerate()),
        frozenset(children()),
    )


def new_since(before: Held) -> list[str]:
    """Return what this process holds now and did not hold before, a line each; empty when nothing was left behind."""
    now = held()
    return [
        *(f"descriptor {number} on {target}" for number, target in sorted(now.descriptors - before.descriptors)),
        *(f"thread {thread.name}" for thread in now.threads - before.threads),
        *(f"child {pid}" for pid in sorted(now.children - before.children)),
    ]


def children() -> set[int]:
    """Return the processes that this one started and has not reaped."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children") as file:
            found |= {int(pid) for pid in file.read().split()}
    return found


def _descriptors() -> list[tuple[str, str]]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append((number, os.readlink(f"/proc/self/fd/{number}")))
        except FileNotFoundError:  # the one that listed the folder
            continue
    return found
