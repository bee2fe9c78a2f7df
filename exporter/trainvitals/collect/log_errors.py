"""What the errors in the log of a rank amount to: how many of each cause, and a finding about the one that began it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from trainvitals.detect import Category, Verdict
from trainvitals.follow.errors import root_cause
from trainvitals.follow.errors.base import Level
from trainvitals.telemetry import Event, Step

KIND = SIGNAL = "log_error"
#: The field of an event that tells how many steps came before it.
COUNT = "count"
#: A training that went on for more than so many steps has survived its error; until its ranks notice, it makes some.
SURVIVED = 10
#: So many errors of one trouble are compared, and so many causes counted.
_REMEMBERED, _CAUSES = 64, 128
_LONGEST = 160
#: Levels of errors that a training may end by; anybody can write an event, so they are looked up and not compared.
TROUBLE = tuple(level for level in Level if level < Level.NOTICE)
_CATEGORIES: dict[str, Category] = {"resource": "resource", "data": "data", "parameter": "parameter"}


@dataclass
class LogErrors:
    """The errors of one rank."""

    #: By category and cause.
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: The errors of the trouble that is not over.
    _events: list[Event] = field(default_factory=list)
    _newest: Step | None = None
    _heard: bool = False

    def take(self, event: Event) -> None:
        """Take the next error of the log."""
        self._heard = True
        key = (str(event.fields.get("category", "")), str(event.fields.get("cause", "")))
        if key in self.counts or len(self.counts) < _CAUSES:
            self.counts[key] += 1
        if event.fields.get("level") in TROUBLE and "cause" in event.fields:
            # The steps of a poll come before its errors, also those that were done after them.
            if self._is_over():
                self._events.clear()
            if len(self._events) < _REMEMBERED:
                self._events.append(event)
            if self._is_over():
                self._events.clear()

    def observe(self, step: Step) -> None:
        """Take the next step: the training goes on."""
        self._newest = step
        if self._events and self._is_over():
            self._events.clear()

    def _is_over(self) -> bool:
        if self._newest is None or not self._events:
            return False
        count = self._events[-1].fields.get(COUNT)
        return isinstance(count, int) and self._newest.count - count > SURVIVED

    @property
    def root(self) -> Event | None:
        """The error that began the trouble; None when all is well."""
        return root_cause(self._events) if self._events else None

    @property
    def category(self) -> Category:
        """The category of that error."""
        root = self.root
        return "resource" if root is None else _CATEGORIES.get(str(root.fields.get("category")), "resource")

    @property
    def place(self) -> str:
        """Where it was, in words; empty when the log does not say."""
        return "" if self.root is None else str(self.root.fields.get("place", ""))[:_LONGEST]

    def verdict(self) -> Verdict | None:
        """Return the verdict; None where no log was followed, or it never told of an error."""
        if not self._heard:
            return None
        root = self.root
        if root is None:
            return Verdict(ratio=0.0, statistics={"errors": 0.0})
        cause, text = (" ".join(str(root.fields.get(name, "")).split()) for name in ("cause", "text"))
        return Verdict(
            ratio=float(len(self._events)),
            since_step=root.step if root.step >= 0 else None,
            evidence=f"{cause.replace('_', ' ')}: {text[:_LONGEST]}" if text else cause,
            statistics={"errors": float(len(self._events))},
        )
