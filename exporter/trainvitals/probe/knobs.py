"""What a training lets people do while it runs: settings that may change, how it saves itself, how it stops."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals import probe

_MOST_KNOBS = 64
#: Values that a clone begins with, in its environment: JSON.
GIVEN = "TRAINVITALS_KNOBS"


class RefusedError(Exception):
    """An order that this training cannot obey; the text says why."""


@dataclass(frozen=True)
class _Knob:
    set: Callable[[Any], None]
    least: float | None = None
    most: float | None = None
    #: By a framework, and not by the program.
    is_offered: bool = False


class Knobs:
    """The knobs of this process; ``check`` says before, and ``do`` does."""

    def __init__(self) -> None:
        self._knobs: dict[str, _Knob] = {}
        self.save: Callable[[int], object] | None = None
        self._is_save_offered = False
        self.stop_ordered = False
        #: A program that asks when to save saves behind the step of the order: it must not be ended before.
        self.saves_when_asked = False
        self.stop_step = 0
        #: The program asks whether to stop, and need not be ended.
        self.asks_to_stop = False

    def declare(self, name: str, set: Callable[[Any], None], *, least: float | None, most: float | None) -> None:  # noqa: A002
        """Add a knob; a later one of the name takes its place."""
        if len(self._knobs) < _MOST_KNOBS or name in self._knobs:
            self._knobs[name] = _Knob(set, least, most)
            self._begin_with(name)

    def offer(self, name: str, set: Callable[[Any], None], *, least: float | None = None) -> None:  # noqa: A002
        """Add a knob of a framework, unless the program has one of that name."""
        known = self._knobs.get(name)
        if known is None or known.is_offered:
            self._knobs[name] = _Knob(set, least, is_offered=True)
            self._begin_with(name)

    def _begin_with(self, name: str) -> None:
        """Set what a clone was given for a knob; one that is refused is told, and the training goes on without."""
        given = _given()
        if name in given:
            try:
                self._check_value(name, given[name])
                self._knobs[name].set(given[name])
                probe.event("change", None, None, name=name, new=given[name], source="clone")
            except Exception as error:
                probe.tell_once(f"knob {name}", f"{name} could not be set to {given[name]!r}", error)

    def declare_save(self, save: Callable[[int], object]) -> None:
        """Say how the program saves itself, at once."""
        self.save, self._is_save_offered, self.saves_when_asked = save, False, False

    def offer_save(self, save: Callable[[int], object], *, when_asked: bool = False) -> None:
        """Say how a run is saved, unless the program has said it.

        ``when_asked``: not at once, but when the program asks whether to save, before it ends its next step.
        """
        if self.save is None or self._is_save_offered:
            self.save, self._is_save_offered, self.saves_when_asked = save, True, when_asked

    def must_end(self, step: int) -> bool:
        """Whether the program was told to stop, does not ask for it by itself, and has had the time to save."""
        return self.stop_ordered and not self.asks_to_stop and not (self.saves_when_asked and step == self.stop_step)

    def check(self, what: str, values: Mapping[str, Any]) -> None:
        """Raise :class:`RefusedError` for what cannot be done."""
        if what == "set":
            for name, value in values.items():
                self._check_value(name, value)
        elif what in {"checkpoint", "stop"}:
            if self.save is None and (what == "checkpoint" or values.get("checkpoint")):
                raise RefusedError("the training has not said how it saves itself (trainvitals.on_checkpoint)")
        else:
            raise RefusedError(f"{what} is no order that a training knows")

    def _check_value(self, name: str, value: object) -> None:
        knob = self._knobs.get(name)
        if knob is None:
            known = ", ".join(sorted(self._knobs)) or "none"
            raise RefusedError(f"{name} is no knob of this training; it has declared: {known}")
        if knob.least is None and knob.most is None:
            return
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise RefusedError(f"{name} wants a number")
        if (knob.least is not None and value < knob.least) or (knob.most is not None and value > knob.most):
            raise RefusedError(f"{name} wants a number from {knob.least} to {knob.most}")

    def do(self, what: str, values: Mapping[str, Any], step: int) -> str:
        """Do it, behind this step; return what there is to say.  Raises what the training's own functions raise."""
        if what == "set":
            for name, value in values.items():
                self._knobs[name].set(value)
                probe.event("change", None, step, name=name, new=value, source="order")
            return ""
        said = ""
        if self.save is not None and (what == "checkpoint" or values.get("checkpoint")):
            path = self.save(step)
            said = "" if path is None else str(path)
        if what == "stop":
            self.stop_ordered, self.stop_step = True, step
        return said


def _given() -> dict[str, Any]:
    try:
        found = json.loads(os.environ.get(GIVEN) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


KNOBS = Knobs()
