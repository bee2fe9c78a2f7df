"""Who counts the steps: one source at a time, the one that knows best.

A program may tell of the same step in several ways: its own calls of :func:`trainvitals.step`, the framework's hooks,
what it logs to W&B or TensorBoard, the optimizer.  The best source that has spoken owns the steps; what the others
know beside (a loss that is logged) is added to the step of the owner.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import Any

from trainvitals import probe
from trainvitals.frameworks import guard
from trainvitals.probe.recorder import Recorder


class Source(IntEnum):
    """Sources of steps, the better the higher."""

    OPTIMIZER = 1
    LOGGER = 2
    #: What runs below all others: DeepSpeed, with or without a library over it.
    ENGINE = 3
    #: What a framework may be built upon: Accelerate under the Hugging Face Trainer.
    LIBRARY = 4
    FRAMEWORK = 5
    USER = 6


class Capture:
    """Passes on to the probe what the sources tell.  Methods may raise: callers are made safe by ``guard``."""

    def __init__(self) -> None:
        self._owner: Source | None = None
        self._own_steps = 0
        #: The recording whose steps are owned; None where they were claimed before it began.
        self._recorder: Recorder | None = None
        self._is_refused = False
        #: The process that was recorded first.
        self._process = 0
        #: The recording that we began, and not the program.
        self._begun: Recorder | None = None
        #: The first step of the optimizer in a recording of the program's own: most likely it counts its steps itself,
        #: a moment later, and then this was the same one.
        self._early: tuple[int | None, Mapping[str, Any]] | None = None
        #: Values for the next step.
        self.held: dict[str, Any] = {}
        #: What recorded the last step, if that was the optimizer's.
        self._repeating: Recorder | None = None
        #: How many frameworks are telling loggers what is known already.
        self.quotes = 0

    def begin(self, **identity: Any) -> bool:
        """Start to record, if the program has not; return whether this process is recorded.

        ``identity`` (``target_steps``, ``framework``) is added where the program itself has not told it.
        """
        if not probe.is_recording():
            # Asked once: what a folder cannot take, it could not take in the next step either.
            # A forked child of a training that is recorded, a worker of its loader, is no training of its own.
            if self._is_refused or self._process not in {0, os.getpid()}:
                return False
            begun = probe.init(**identity)
            self._is_refused, self._process = not begun, os.getpid()
            if begun:
                self._begun = probe.recorder()
                guard.count_early()
            return begun
        if identity:
            probe.add_identity(**identity)
        self._process = self._process or os.getpid()
        return True

    def step(self, source: Source, number: int | None = None, values: Mapping[str, Any] | None = None) -> bool:
        """Take the end of an optimizer step; False when a better source counts the steps."""
        if self.is_muted(source) or not self.begin():
            return False
        if self.held:
            values, self.held = {**self.held, **(values or {})}, {}
        if source is Source.OPTIMIZER and not self._own_steps and probe.recorder() is not self._begun:
            early, self._early = self._early, (number, values or {})
            if early is None:
                probe.end_init()
                return True
            probe.step(*early)
            self._own_steps += 1
        self._owner = source
        probe.step(number, values or {})
        self._own_steps += 1
        self._repeating = probe.recorder() if source is Source.OPTIMIZER else None
        return True

    def repeat(self, rate: float) -> bool:
        """Take a step like the one before, which was the optimizer's; False where this one needs a closer look."""
        recorder = probe._recorder  # noqa: SLF001  A call would cost a microsecond in each step.
        if recorder is None or recorder is not self._repeating or recorder.state.count != self._own_steps:
            return False
        values, self.held = self.held, {}
        values["learning_rate"] = rate
        self._own_steps += 1
        recorder.step(None, values)
        if probe.has_orders():
            probe.obey()
        return True

    def claim(self, source: Source) -> None:
        """Let a source own the steps already before its first one, so that what lies below it is not counted."""
        if not self.is_muted(source):
            self._owner = source
            self._repeating = None
            self._recorder = probe.recorder()

    def hold(self, values: Mapping[str, Any]) -> None:
        """Keep values for the next step, whoever counts it; what that one knows itself is preferred."""
        self.held.update(values)

    def quoting(self) -> AbstractContextManager[None]:
        """Return a context in which a framework tells loggers what is known already."""
        return _Quoting(self)

    @property
    def is_quoted(self) -> bool:
        """Whether what loggers are told now is known already."""
        return self.quotes > 0

    def log(self, values: Mapping[str, Any]) -> None:
        """Add values to the step that was counted last, whoever counted it."""
        if self.begin():
            probe.log(values)

    def is_muted(self, source: Source) -> bool:
        """Whether a better source owns the steps of this recording."""
        recorder = probe.recorder()
        if recorder is not None and recorder is not self._recorder:
            if self._recorder is not None:
                # Who counted in a training before may have no part in this one.
                self._owner, self._own_steps, self._early = None, 0, None
            self._recorder = recorder
        if self._owner is not None and source < self._owner:
            return True
        if probe.steps_recorded() > self._own_steps:
            # The program calls trainvitals.step() itself.
            self._owner = Source.USER
        return self._owner is Source.USER


class _Quoting(AbstractContextManager[None]):
    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def __enter__(self) -> None:
        self._capture.quotes += 1

    def __exit__(self, *_: object) -> None:
        self._capture.quotes -= 1


#: That of this process.
capture = Capture()
