"""The contract of a detector: steps in, verdict out.  No clock, no file, no log, no network of its own.

A detector turns its statistic into a ratio to its threshold; 1 or more is active.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from trainvitals.telemetry import Event, Step, Steps

Category = Literal["resource", "data", "parameter"]
Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a detector says now.

    ``ratio`` is finite and not negative.  ``statistics`` are the numbers behind it.
    ``evidence`` is a sentence, given when the signal is active.
    It is a label of a series, so its text must not change with every step: new text is a new series.
    ``counts`` are the counts of the steps that the finding began with: what was in their batches is asked for.
    ``action`` is the next thing to do: data before parameters before model, with the direction for a parameter.
    ``confidence`` is from 0 to 1, where the detector knows it; ``gated`` says in words what was left out, and why.
    """

    ratio: float
    since_step: int | None = None
    evidence: str = ""
    statistics: dict[str, float] = field(default_factory=dict)
    counts: tuple[int, ...] = ()
    severity: Severity = "warning"
    action: str = ""
    confidence: float | None = None
    gated: str = ""

    @property
    def active(self) -> bool:
        """Whether the signal is on."""
        return self.ratio >= 1.0


class Detector(Protocol):
    """Judges one rank of one run, across its attempts.  ``signal`` and ``category`` name what it looks for.

    ``needs`` says in words what it must see before it can say anything: "192 steps with a loss".
    """

    signal: str
    category: Category
    needs: str

    def observe(self, step: Step) -> None:
        """Take the next step.

        Steps come in order; :class:`Timeline` tells values that became known late from a run that went back.
        """

    def verdict(self) -> Verdict | None:
        """Return the verdict on what was seen so far, or None as long as nothing can be said."""


class BlockDetector(Detector, Protocol):
    """A detector that takes many steps at once: millions of them are read from logs."""

    def observe_all(self, steps: Steps) -> int | None:
        """Take the next steps and be what :meth:`observe` would have made of it, one by one: to the last digit.

        There are one at least.  Their numbers rise, and they are no late values of steps that were seen before.
        A detector with the property ``held`` stops behind a step that turns it on, and returns how many it took: it is
        asked for its verdict then, and the others come again.  None: it took all.
        """


class HeldDetector(Detector, Protocol):
    """A detector that says when its signal is on, also when its cause is over."""

    @property
    def held(self) -> bool:
        """Whether the signal is on."""


class HeldBlockDetector(HeldDetector, Protocol):
    """Both.

    One with a true ``stops`` stops as well behind each step that may change its verdict while its signal is on, and
    behind the one that turns it off; it needs not be asked between.
    """

    def observe_all(self, steps: Steps) -> int:
        """See :class:`BlockDetector`."""


def one_by_one(detector: HeldDetector, steps: Steps) -> int:
    """Hand on steps alone, up to one that turns the signal on; return how many: see :class:`BlockDetector`."""
    before = detector.held
    for taken, step in enumerate(steps, 1):
        detector.observe(step)
        now = detector.held
        if now and not before:
            return taken
        before = now
    return len(steps)


def by_pieces(detector: HeldBlockDetector, steps: Steps, size: int = 64) -> int:
    """Hand on steps of which some are odd in pieces of this size, and those of a piece alone; as ``one_by_one``."""
    if len(steps) <= size:
        return one_by_one(detector, steps)
    taken = 0
    while taken < len(steps):
        before = detector.held
        piece = steps.part(taken, taken + size)
        count = detector.observe_all(piece)
        taken += count
        if count < len(piece) or (detector.held and not before):
            break
    return taken


class EventDetector(Detector, Protocol):
    """A detector that wants events too: evaluations, checkpoints, restarts, changes."""

    def observe_event(self, event: Event) -> None:
        """Take the next event, in order with the steps."""


class Latch:
    """Keeps a signal active for a while, so that a scrape sees what lasted for one step.

    Time and count are those of the steps.  The signal is released by a quiet step at least ``hold_seconds`` and
    ``hold_steps`` after the last excess: the seconds are for fast steps, of which a scrape sees one in many, the
    steps for signals that come and go.  With slow steps (a minute and more) the steps would take hours; after
    ``longest_seconds`` they no longer count.
    """

    def __init__(self, *, hold_seconds: float, hold_steps: int, longest_seconds: float = 3600.0) -> None:
        self._hold_seconds = hold_seconds
        self._hold_steps = hold_steps
        self._longest_seconds = longest_seconds
        self._last: Step | None = None
        self._settled = False
        self.peak = 0.0

    @property
    def held(self) -> bool:
        """Whether the signal is active or held."""
        return self._last is not None

    @property
    def open(self) -> bool:
        """Whether the next excess belongs to the episode that is shown, and does not begin another."""
        return self._last is not None and not self._settled

    def update(self, ratio: float, step: Step) -> float:
        """Return the ratio to show: the present one, or the peak while the signal is held."""
        if ratio >= 1.0:
            self.peak = max(self.peak, ratio) if self.open else ratio
            self._last, self._settled = step, False
        elif self._last is not None and self._is_over(self._last, step):
            self._last, self.peak = None, 0.0
        return self.peak if self._last is not None else ratio

    def _is_over(self, last: Step, step: Step) -> bool:
        seconds = step.time - last.time
        if seconds < 0.0:
            # Another clock, after a restart: count from here.
            self._last = step
            return False
        enough = self._settled or step.count - last.count >= self._hold_steps or seconds >= self._longest_seconds
        return enough and seconds >= self._hold_seconds

    def settle(self) -> None:
        """Close the episode, because the run went back: it stays visible for ``hold_seconds`` and no longer."""
        self._settled = True


class Timeline:
    """Tells values that became known late from a run that went back or was started anew.

    All three look alike: a smaller number than before.

    - A rollback inside a process: the count goes on, the step falls.
    - A new process: the count begins again, and so may the step.
    - Late values: the probe reads a tensor a step or two later and then repeats count and step of its step.
    """

    #: The probe has at most 8 steps on their way from a device (probe.tensors.ROWS).
    LATE = 16

    def __init__(self) -> None:
        self._newest: Step | None = None
        #: Step and whether the loss is known, by count.
        self._recent: dict[int, tuple[int, bool]] = {}

    def begins_anew(self, step: Step) -> bool:
        """Take the next step; return whether the run went back or its process is another one."""
        newest = self._newest
        count, number, has_loss = step.count, step.step, "loss" in step.values
        if newest is None or count > newest.count:
            anew = newest is not None and number < newest.step
            self._newest = step
        else:
            anew = not self._is_late(step, newest)
            if anew:
                self._recent.clear()
                self._newest = step
        known = self._recent.get(count)
        self._recent[count] = (number, has_loss or (known is not None and known[1]))
        if len(self._recent) > self.LATE:
            del self._recent[next(iter(self._recent))]
        return anew

    def leads_to(self, steps: Steps) -> bool:
        """Whether the first of these steps is the newest one, and no late value: then each next one is, too."""
        newest = self._newest
        return newest is None or steps.first > newest.count or not self._is_late(steps[0], newest)

    def go_on(self, steps: Steps, end: int) -> None:
        """Take the steps of a block up to, and without, this place, behind its first, which ``begins_anew`` took."""
        if end <= 1:
            return
        has_loss = "loss" in steps.columns
        begin = max(1, end - self.LATE)
        recent = self._recent
        for count, number in enumerate(steps.numbers[begin:end], steps.first + begin):
            recent[count] = (number, has_loss)
        for count in list(recent)[: -self.LATE]:
            del recent[count]
        self._newest = Step(steps.numbers[end - 1], steps.first + end - 1, steps.times[end - 1], {})

    def _is_late(self, step: Step, newest: Step) -> bool:
        known = self._recent.get(step.count)
        if known is None:
            # Its record was lost.
            return newest.count - step.count < self.LATE and step.step <= newest.step
        number, had_loss = known
        return step.step == number and not (had_loss and "loss" in step.values)
