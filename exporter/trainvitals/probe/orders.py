"""Orders that a rank obeys: what ``trainvitals ctl`` asks for, done at the same step by all ranks.

See :mod:`trainvitals.orders` for how ranks agree.  Nothing here raises into a training, with one exception, which was
ordered: "stop" ends a loop that never asks :func:`should_stop` with ``SystemExit(0)``, behind a step.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from trainvitals import orders
from trainvitals.orders import Order, OrderError
from trainvitals.probe.knobs import KNOBS, RefusedError
from trainvitals.probe.recorder import Recorder
from trainvitals.probe.resume_path import RESUME_FROM

#: The run that this one was cloned from, in its environment.
PARENT = "TRAINVITALS_PARENT"
#: How often a rank that is paused looks for orders.
PAUSE_SECONDS = 0.2
#: So long a rank that is paused waits for a decision: whoever gave the order may be gone, and others want to give some.
DECIDED_SECONDS = 10.0


class Obedience:
    """The orders of one rank: those that it has seen, and those that wait for their step."""

    def __init__(self, recorder: Recorder, mail: orders.Mail) -> None:
        self._recorder = recorder
        self.mail = mail
        #: Orders of before this process are nothing to it.
        self._seen = mail.word[0]
        self._waiting: list[Order] = []
        self._is_paused = False

    @property
    def must_end(self) -> bool:
        """Whether the program was told to stop and does not ask for it by itself."""
        return KNOBS.must_end(self._recorder.state.step)

    def look(self) -> int:
        """Obey what is due behind the step that ended; return the number for which the next look is due.

        That is the newest number while nothing waits, and none that ever comes while something does.
        """
        step = self._recorder.state.step
        self._read_new(step)
        # Looked for anew each time: while one holds the training, others are obeyed.
        while (order := next((one for one in self._waiting if one.at <= step), None)) is not None:
            self._waiting.remove(order)
            self._obey(order, step)
        return -1 if self._waiting or KNOBS.stop_ordered else self._seen

    def _read_new(self, step: int) -> None:
        newest = self.mail.word[0]
        # A number that was damaged costs some looks for files that are not there.
        for number in range(self._seen + 1, min(newest, self._seen + 64) + 1):
            try:
                order = self.mail.read(number)
            except OrderError as error:
                self._tell(number, "refused", step, str(error))
                continue
            if order.run != self._recorder.writer.identity.get("run"):
                continue
            if (reason := self._objection(order)) is not None:
                self._tell(number, "refused", step, reason, order)
            elif step >= order.at and not self._is_paused:
                self._tell(number, "late", step, f"step {order.at} is over", order)
            else:
                self._waiting.append(order)
                self._tell(number, "seen", step, "", order)
        # Of two who gave one at once, the first may write the number last.
        self._seen = max(self._seen, newest)

    def _objection(self, order: Order) -> str | None:
        """Return why this rank cannot do what is ordered; None where it can."""
        if order.what == "resume":
            return None if self._is_paused else "the run is not paused"
        if order.what == "pause":
            return "the run is paused already" if self._is_paused else None
        try:
            KNOBS.check(order.what, order.values)
        except RefusedError as error:
            return str(error)
        return None

    def _obey(self, order: Order, step: int) -> None:
        if self._decision(order) != "do":
            self._tell(order.number, "left", step, "not all ranks saw it in time", order)
            return
        if order.what == "pause":
            self._pause(order, step)
            return
        if order.what == "resume":
            self._resume(step)
            self._tell(order.number, "done", step, "", order)
            return
        try:
            said = KNOBS.do(order.what, order.values, step)
        except Exception as error:
            self._tell(order.number, "failed", step, f"{type(error).__name__}: {error}", order)
            return
        if order.what == "stop":
            self._is_paused = False
        self._tell(order.number, "done", step, said, order)

    def _decision(self, order: Order) -> str:
        """Return the decision: its own "leave" where nobody has; a rank that is paused waits a while."""
        deadline = time.monotonic() + DECIDED_SECONDS
        while True:
            try:
                known = self.mail.decision(order.number)
                if known is None and (not self._is_paused or time.monotonic() > deadline):
                    known = self.mail.decide(order.number, "leave")
            except OSError:
                return "leave"
            if known is not None:
                return known
            time.sleep(PAUSE_SECONDS)
            self._beat()

    def _pause(self, order: Order, step: int) -> None:
        """Hold the training here, alive and within reach, until it is told to go on."""
        self._is_paused = True
        self._tell(order.number, "done", step, "", order)
        self._recorder.begin_phase("paused")
        try:
            while self._is_paused:
                time.sleep(PAUSE_SECONDS)
                self._beat()
                if self.mail.word[0] != self._seen or self._waiting:
                    self.look()
        finally:
            self._is_paused = False
            self._recorder.end_phase()

    def _resume(self, step: int) -> None:
        """Go on, and do not stop again for a second pause that was ordered before the first held."""
        self._is_paused = False
        for other in [one for one in self._waiting if one.what == "pause"]:
            self._waiting.remove(other)
            self._tell(other.number, "left", step, "the run was paused, and goes on", other)

    def _beat(self) -> None:
        self._recorder.beat()

    def _tell(self, number: int, state: str, step: int, text: str, order: Order | None = None) -> None:
        fields: dict[str, Any] = {"order": number, "state": state, "step": step}
        if order is not None:
            fields |= {"what": order.what, "values": order.values, "by": order.by}
        if text:
            fields["text"] = text
        self._recorder.event("order", fields)


def begin(recorder: Recorder, folder: str) -> Obedience | None:
    """Return what obeys orders to this run, or None where there can be none: the run goes on without."""
    KNOBS.stop_ordered = False
    parent = os.environ.get(PARENT, "")
    if parent and not recorder.writer.identity.get("rank"):
        came_from = os.path.basename(os.environ.get(RESUME_FROM, ""))
        recorder.event("clone", {"message": f"of {parent}, from {came_from}", "parent": parent})
    if os.environ.get("TRAINVITALS_ORDERS", "") == "0":
        return None
    path = orders.path_of(folder, str(recorder.writer.identity["run"]))
    with contextlib.suppress(OSError):
        return Obedience(recorder, orders.Mail(path, {os.getuid(), 0}, create=True))
    return None


def should_stop() -> bool:
    """Whether the run was told to stop: a loop that asks this ends itself, and saves what it wants before."""
    KNOBS.asks_to_stop = True
    return KNOBS.stop_ordered


def knob(
    name: str,
    set: Callable[[Any], None],  # noqa: A002  What it does.
    *,
    least: float | None = None,
    most: float | None = None,
) -> None:
    """Declare a setting that people may change while the run goes on: ``trainvitals ctl RUN set NAME=VALUE``.

    ``set`` is called with the new value (a number, a bool or a text) behind a step, on each rank behind the same one.
    Numbers outside ``least`` and ``most`` are refused.
    """
    KNOBS.declare(name, set, least=least, most=most)


def on_checkpoint(save: Callable[[int], object]) -> None:
    """Say how the run saves itself when it is told to: ``save`` is called with the step, and returns the path."""
    KNOBS.declare_save(save)
