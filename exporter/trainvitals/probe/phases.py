"""Where the time of one rank goes: every second counts for the innermost phase, so that all add up to wall time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from trainvitals import rankfile
from trainvitals.probe import split

INDEX = {name: index for index, name in enumerate(rankfile.PHASES)}
_DATA, _INIT, _TRAIN = INDEX["data"], INDEX["init"], INDEX["train"]
_WAIT = rankfile.WAIT_OFFSET // 8
#: The state is published at least so often, in seconds, while steps end: what a process that is killed may lose of
#: its phases and sums.
FRESH = 0.1


class Phases:
    """The books of a recorder.  ``publish`` writes its state, given the time."""

    __slots__ = ("_floats", "_is_waiting", "_monotonic", "_outer", "_publish", "_shares", "_since", "_state")

    def __init__(self, writer: rankfile.Writer, publish: Callable[[float], None]) -> None:
        self._state, self._floats, self._publish = writer.state, writer.floats, publish
        self._shares: split.Split | None = None
        #: The phases around the current one.
        self._outer: list[int] = []
        #: When the wait began that is known to the file by its word alone, and whether there is one.
        self._since = 0.0
        self._is_waiting = False
        self._monotonic = time.monotonic

    @property
    def is_split(self) -> bool:
        """Whether seconds move between phases at the end of each step."""
        return self._shares is not None

    @property
    def current(self) -> int:
        """The phase that the process is in."""
        return _DATA if self._is_waiting else self._state.phase

    def begin(self, name: object) -> None:
        """Begin a phase inside the current one."""
        now = self._monotonic()
        self._write_out_wait()
        self._outer.append(self._state.phase)
        self._enter(INDEX.get(name, 0) if isinstance(name, str) else 0, now)
        self._publish(now)

    def end(self) -> None:
        """Go back to the phase around the current one."""
        now = self._monotonic()
        self._write_out_wait()
        self._enter(self._outer.pop() if self._outer else _TRAIN, now)
        self._publish(now)

    def finish(self, now: float) -> None:
        """Begin what is left of the process."""
        self._write_out_wait()
        self._enter(INDEX["other"], now)

    def _enter(self, phase: int, now: float) -> None:
        state = self._state
        state.phase_seconds[state.phase] += max(0.0, now - state.phase_since)
        state.phase, state.phase_since = phase, now
        if self._shares is not None:
            self._shares.enter(phase)

    # Waiting for data -----------------------------------------------------------------------------------------------

    def begin_wait(self) -> bool:
        """Begin to wait for data: the same as ``begin("data")``, for what comes in every step.

        The file learns of it by one word.  The state is not written, which would cost five times as much.
        Returns whether :meth:`end_wait` is to follow: within another wait, which counts already, it is not.
        """
        if self._is_waiting:
            return False
        self._since = self._floats[_WAIT] = self._monotonic()
        self._is_waiting = True
        if self._shares is not None:
            self._shares.enter(_DATA)
        return True

    def end_wait(self) -> None:
        """End it, and go on in the phase before."""
        since, now, state = self._since, self._monotonic(), self._state
        if not self._is_waiting:  # Somebody has begun and ended a phase within.
            self.end()
            return
        self._is_waiting = False
        self._floats[_WAIT] = 0.0
        waited = now - since
        state.phase_seconds[_DATA] += waited
        # The phase around it has not had this time.
        state.phase_since += waited
        if self._shares is not None:
            self._shares.enter(state.phase)
        if now - state.heartbeat > FRESH:
            self._enter(state.phase, now)
            self._publish(now)

    def _write_out_wait(self) -> None:
        """Make a phase of a wait: something goes on within."""
        if self._is_waiting:
            self._is_waiting = False
            state = self._state
            self._outer.append(state.phase)
            state.phase_seconds[state.phase] += max(0.0, self._since - state.phase_since)
            state.phase, state.phase_since = _DATA, self._since
            self._floats[_WAIT] = 0.0

    # Steps ----------------------------------------------------------------------------------------------------------

    def end_init(self, now: float) -> None:
        """The first step ends the start, also where it is reported from within a phase.

        By now the program has found its device: see :mod:`trainvitals.probe.split`.
        """
        self._outer = [_TRAIN if phase == _INIT else phase for phase in self._outer]
        if self._state.phase == _INIT:
            self._enter(_TRAIN, now)
        module = split.device_module(sys.modules.get("torch"))
        if self._shares is None and (module is not None or split.exposed_communication is not None):
            spans = None if module is None else split.Spans(module)
            self._shares = split.Split(self._state, spans)

    def end_step(self, now: float) -> None:
        """Close the books of a step."""
        if self._shares is not None:
            state = self._state
            state.phase_seconds[state.phase] += max(0.0, now - state.phase_since)
            state.phase_since = now
            self._shares.end_step(state.phase)
