"""Vendors' command line tools: one is started, waited for, and never believed just because it ended with 0.

A tool hangs when its driver does.  So each gets a time, a process group of its own that is killed when the time is up,
and an end of its output; one that cannot even be killed is not started a second time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

#: Seconds that one start of a tool gets: less than a device may be silent (devices.hung_after) and than the doctor
#: waits for a word.
TIMEOUT = 5.0
#: Bytes of output that are kept; the largest table that is known, of 16 chips, has 8 KiB.
MOST = 1 << 20
#: Seconds until a tool that was killed must have gone, else the kernel holds it.
_GRACE = 0.5
_CHUNK = 1 << 16
#: Seconds between two looks whether a tool that has closed its output has ended.
_LOOK = 0.005
#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

MISSING, FAILED, TIMED_OUT = "missing", "failed", "timeout"


@dataclass(frozen=True)
class Answer:
    """What came of a tool: ``reason`` is empty when it ended with 0, else MISSING, FAILED or TIMED_OUT.

    ``text`` is its standard output also then: tools print their errors there, and some print them and end with 0.
    ``seconds`` is how long it took.
    """

    text: str = ""
    reason: str = ""
    seconds: float = 0.0


class Run(Protocol):
    """Runs a tool: a :class:`Runner`, or a function in a test."""

    def __call__(self, command: Sequence[str], /) -> Answer:
        """Return what the tool said; the first word of ``command`` is its name.  Never raises."""


#: Makes what runs the tools of a vendor, which may lie in these folders: :class:`Runner`, or one that takes notes.
MakeRun = Callable[[Sequence[str]], Run]


class Runner:
    """Runs tools, one at a time, in a process that has no threads.

    A tool is looked for in the ``PATH`` of ``environ``, then in ``folders``.  It reads nothing, speaks English
    (``LC_ALL=C``), gets ``timeout`` seconds and ``most`` bytes of output; what is beyond is read and forgotten.
    """

    def __init__(
        self,
        folders: Sequence[str] = (),
        *,
        timeout: float = TIMEOUT,
        most: int = MOST,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = os.pathsep.join([environ.get("PATH", os.defpath), *folders])
        self._timeout = timeout
        self._most = most
        self._environ = {**environ, "LC_ALL": "C", "LANG": "C"}
        self._clock = clock
        self._stuck: dict[str, subprocess.Popen[bytes]] = {}

    def __call__(self, command: Sequence[str], /) -> Answer:
        """Run a tool; see the class.  Never raises."""
        begun = self._clock()
        program = shutil.which(command[0], path=self._path)
        if program is None:
            return Answer(reason=MISSING)
        held = self._stuck.get(program)
        if held is not None and held.poll() is None:
            return Answer(reason=TIMED_OUT)
        self._stuck.pop(program, None)
        try:
            process = subprocess.Popen(
                [program, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environ,
                cwd="/",
                start_new_session=True,
                # Whoever reads devices is killed when it hangs, and must not leave its tool behind.
                preexec_fn=_end_with_parent,  # noqa: PLW1509  # The process that runs tools has no threads.
            )
        except OSError:
            # A broken script, another architecture, no more processes.
            return Answer(reason=FAILED)
        text, in_time = self._take(process, begun + self._timeout)
        status = self._end(process, program, begun + self._timeout if in_time else begun)
        seconds = self._clock() - begun
        if status is None:
            return Answer(text, TIMED_OUT, seconds)
        return Answer(text, FAILED if status else "", seconds)

    def _take(self, process: subprocess.Popen[bytes], until: float) -> tuple[str, bool]:
        """Return the output, and whether it ended in time."""
        assert process.stdout is not None  # noqa: S101  # It was started with a pipe.
        output, kept = process.stdout.fileno(), bytearray()
        in_time = True
        while True:
            remaining = until - self._clock()
            if remaining <= 0 or not select.select([output], [], [], remaining)[0]:
                in_time = False
                break
            chunk = os.read(output, _CHUNK)
            if not chunk:
                break
            kept += chunk[: self._most - len(kept)]
        process.stdout.close()
        return kept.decode(errors="replace"), in_time

    def _end(self, process: subprocess.Popen[bytes], program: str, until: float) -> int | None:
        """Return the exit status; None when the time was up.  Nothing of the tool is left but what cannot be killed."""
        in_time = False
        while not in_time and self._clock() < until:
            # Not reaped yet: so the number of its group cannot belong to somebody else.
            in_time = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            if not in_time:
                time.sleep(_LOOK)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # Also what the tool has started and left behind.
            os.killpg(process.pid, signal.SIGKILL)
        try:
            status = process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._stuck[program] = process
            return None
        return status if in_time else None


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
