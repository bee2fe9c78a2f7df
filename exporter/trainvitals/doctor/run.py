"""Makes all checks at once, each in a process of its own, and waits for none longer than the deadline.

A call into a wedged driver or a dead file server blocks in the kernel, and then not even SIGKILL ends the process.
So no check is made here: a process that does not answer in time is killed and left to the kernel, and that is what is
reported of it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from trainvitals.doctor.base import Check, Group, Here, Outcome, Result, problem

#: Seconds for all checks together.
DEADLINE = 13.0
#: Bytes of one check's results at most.
_LONGEST = 1 << 20


@dataclass(frozen=True)
class Row:
    """A result and where it belongs."""

    group: str
    check: str
    result: Result

    @property
    def name(self) -> str:
        """What it is about, in a few words."""
        return f"{self.check}: {self.result.subject}" if self.result.subject else self.check


@dataclass
class _Child:
    """A check under way, and the bytes that it has written."""

    group: str
    check: Check
    pid: int
    pipe: int
    written: bytes = b""
    is_done: bool = False


def examine(groups: Sequence[Group], here: Here, deadline: float = DEADLINE) -> list[Row]:
    """Make all checks and return what they found, in the order of the table.

    Must be called by a process with a single thread; returns ``deadline`` seconds after the call at the latest.
    """
    until = time.monotonic() + deadline
    children = [_start(group.title, check, here) for group in groups for check in group.checks]
    try:
        _gather(children, until)
    finally:
        for child in children:
            _end(child)
    return [
        Row(child.group, child.check.name, result) for child in children for result in _results(child, round(deadline))
    ]


def make(check: Check, here: Here) -> list[Result]:
    """Make one check in this process; whatever it raises is a result as well."""
    try:
        return list(check.make(here))
    except Exception as error:  # A machine of a kind that nobody thought of must not end the examination.
        return [_broken(f"the check failed: {type(error).__name__}: {error}")]


def _start(group: str, check: Check, here: Here) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return _Child(group, check, pid, reading)
    status = 1
    try:
        os.close(reading)
        # What a library prints is not for the reader of the report.
        silent = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(silent, descriptor)
        # A group of its own: what a check starts ends with it.
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _write(writing, json.dumps([asdict(result) for result in make(check, here)]).encode())
        status = 0
    finally:
        # Nothing of the parent's may run a second time.
        os._exit(status)
    raise AssertionError("not reached")


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _gather(children: Iterable[_Child], until: float) -> None:
    poll = select.poll()
    open_pipes = {child.pipe: child for child in children}
    for pipe in open_pipes:
        poll.register(pipe, select.POLLIN)
    while open_pipes and (remaining := until - time.monotonic()) > 0:
        for pipe, _ in poll.poll(remaining * 1000):
            child = open_pipes[pipe]
            chunk = os.read(pipe, 1 << 16)
            child.written += chunk
            if not chunk or len(child.written) > _LONGEST:
                child.is_done = True
                poll.unregister(pipe)
                del open_pipes[pipe]


def _end(child: _Child) -> None:
    """End a check's process and all that it started; one that the kernel holds is left to it."""
    os.close(child.pipe)
    for kill in (os.killpg, os.kill):
        try:
            kill(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    until = time.monotonic() + 0.2
    while os.waitpid(child.pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
        time.sleep(0.005)


def _results(child: _Child, seconds: int) -> list[Result]:
    if not child.is_done:
        return [problem(f"no answer within {seconds} s: what it reads hangs", "dmesg | tail -n 50")]
    try:
        return [Result(**{**item, "outcome": Outcome(item["outcome"])}) for item in json.loads(child.written)]
    except (ValueError, TypeError, KeyError):
        return [_broken("the check ended without a result: a library may have crashed")]


def _broken(why: str) -> Result:
    return problem(why, "dmesg | tail -n 50")
