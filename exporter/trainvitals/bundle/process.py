"""One child process of ``up``: started in a group of its own, watched until it is ready, stopped for certain."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainvitals.bundle import guard
from trainvitals.bundle.signals import Signals

_GUARD = [sys.executable, "-I", "-S", guard.__file__]
_TAIL_BYTES = 8192
#: No proxy from the environment may come between us and loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class BundleError(Exception):
    """The bundle cannot start or go on; the message is for a person, without a traceback."""


def get(url: str) -> bytes:
    """Return what a server on loopback answers; raises OSError when it does not, or not with 200."""
    try:
        with _OPENER.open(url, timeout=1.0) as answer:
            return bytes(answer.read())
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"{url}: {error!r}") from None


class Guard:
    """The process that cleans up when we are killed; see :mod:`trainvitals.bundle.guard`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*_GUARD, "watch"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
        )

    def tell(self, word: str, value: object) -> None:
        """Register or forget something; a guard that somebody killed is no reason to fail."""
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None  # noqa: S101  for mypy
            self._process.stdin.write(f"{word} {value}\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End the register: the guard removes what is still in it and leaves."""
        with contextlib.suppress(OSError):
            self._process.communicate()


class Child:
    """A program that runs until we stop it.

    ``name`` is what a person calls it, ``url`` answers 200 once it is ready (None: ready at once).
    What it prints goes to ``log``.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        guard: Guard,
        url: str | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.url = url
        self._guard = guard
        self._code: int | None = None
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [*_GUARD, "launch", str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environ is None else {**os.environ, **environ},
                # Python puts the current folder first on its path, and there a user may have a random.py.
                cwd=cwd,
                start_new_session=True,
            )
        self.pid = self._process.pid
        guard.tell("group", self.pid)

    def poll(self) -> int | None:
        """Return the exit code once the child has ended (negative: the signal that ended it), else None."""
        if self._code is None and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            # Not reaped yet, so its id is still its own, and with it that of the group: nobody else is hit.
            guard.send(self.pid, signal.SIGKILL)
            self._code = self._process.wait()
            self._guard.tell("forget", self.pid)
        return self._code

    def wait_ready(self, signals: Signals, seconds: float) -> None:
        """Wait until the child answers; raises BundleError when it ends before, or takes longer.

        Returns early when somebody asked us to stop.
        """
        if signals.wait_until(lambda: self.poll() is not None or self._answers(), seconds) and self.poll() is None:
            return
        if not signals.stop:
            raise BundleError(self.obituary() if self.poll() is not None else self._late(seconds))

    def _answers(self) -> bool:
        if self.url is None:
            return True
        try:
            get(self.url)
        except OSError:
            return False
        return True

    def _late(self, seconds: float) -> str:
        return f"{self.name} is not ready after {seconds:.0f} s.{self._last_words()}"

    def obituary(self) -> str:
        """Say how the child ended, with the last lines of its log."""
        return self.ending() + self._last_words()

    def ending(self) -> str:
        """Say how the child ended."""
        code = self.poll() or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended by itself with exit code {code}"
        return f"{self.name} {how}."

    def _last_words(self) -> str:
        lines = self.last_lines()
        return " It said last:\n" + "\n".join(f"    {line}" for line in lines) if lines else " It said nothing."

    def last_lines(self, count: int = 8) -> list[str]:
        """Return the last lines of the log."""
        with open(self.log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return [line for line in lines if line.strip()][-count:]

    def terminate(self) -> None:
        """Ask the child and its group to end; returns at once."""
        if self.poll() is None:
            guard.send(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End the child and its group now."""
        if self.poll() is None:
            guard.send(self.pid, signal.SIGKILL)


def stop_all(children: Sequence[Child], signals: Signals, seconds: float = 5.0) -> None:
    """Stop children: SIGTERM, and SIGKILL after ``seconds`` or as soon as one more signal to stop arrives."""
    for child in children:
        child.terminate()
    patience = len(signals.received)

    def ended() -> bool:
        codes = [child.poll() for child in children]  # every one is asked, for asking also sweeps up its group
        return None not in codes

    if not signals.wait_until(ended, seconds, patience=patience):
        for child in children:
            child.kill()
        # Nothing can refuse SIGKILL; only a process inside a broken driver takes its time.
        signals.wait_until(ended, seconds, patience=None)
