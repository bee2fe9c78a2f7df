"""What ``up`` does while everything runs: shows what the training says, which messages arrive, and who died."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from queue import Empty

from trainvitals.bundle import vitals
from trainvitals.bundle.process import Child
from trainvitals.bundle.screen import Screen
from trainvitals.bundle.signals import Signals
from trainvitals.bundle.sinks import Queue

_LOOK_SECONDS = 0.25
_VITALS_SECONDS = 1.0


class Watch:
    """Looks at ``children``, ``messages`` and, by its URL, ``prometheus``; ``training`` is one of the children."""

    def __init__(
        self,
        screen: Screen,
        signals: Signals,
        *,
        children: Sequence[Child],
        training: Child | None,
        messages: Queue,
        prometheus: str | None,
        with_mail: bool,
    ) -> None:
        self._screen = screen
        self._signals = signals
        self._children = children
        self._training = training
        self._messages = messages
        self._prometheus = prometheus
        self._with_mail = with_mail
        #: Bytes of the training's log that were shown.
        self._shown = 0
        self._reported: set[str] = set()

    def run(self, seconds: float | None) -> None:
        """Look until somebody asks us to stop, or for so many seconds."""
        now = next_vitals = time.monotonic()
        end = float("inf") if seconds is None else now + seconds
        while not self._signals.stop and now < end:
            self._signals.wait(min(_LOOK_SECONDS, end - now))
            self._show_training()
            self._show_messages()
            self._report_deaths()
            now = time.monotonic()
            if now >= next_vitals:
                next_vitals = now + _VITALS_SECONDS
                self._show_vitals()

    def _show_training(self) -> None:
        """Show the whole lines that the training has printed since."""
        if self._training is None:
            return
        with open(self._training.log, "rb") as file:
            file.seek(self._shown)
            text, end, _ = file.read().rpartition(b"\n")
        self._shown += len(text) + len(end)
        for line in text.decode("utf-8", "replace").splitlines():
            self._screen.line("training", line)

    def _show_messages(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                message = self._messages.get_nowait()
                # Where there is mail, the same alert comes twice: in full there, and in one line here.
                self._screen.message(message, short=self._with_mail and message.channel == "webhook")

    def _report_deaths(self) -> None:
        for child in self._children:
            code = child.poll()
            if code is None or child.name in self._reported:
                continue
            self._reported.add(child.name)
            if child is not self._training:
                self._screen.line("trainvitals", child.obituary(), style="red")
            elif code == 0:
                self._screen.line("trainvitals", "the demo's training is done; everything else goes on until Ctrl-C")
            else:
                # Its last words stand above.
                self._screen.line("trainvitals", child.ending(), style="red")

    def _show_vitals(self) -> None:
        # A Prometheus that is just dying may say anything.
        if self._prometheus is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                self._screen.gauges(vitals.read(self._prometheus))
