"""One engine, two doors: the exporter and the offline report feed steps and events to the same detectors, here.

The order is that of the training: an event (an evaluation, a checkpoint, a restart, a change) comes between the steps
between which it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from trainvitals.detect.base import Category, Detector, Verdict
from trainvitals.telemetry import Event, Step

#: What to do with a message about a detector that failed; called while the exception is handled.
Complain: TypeAlias = Callable[[str], None]


def in_order(
    steps: Sequence[Step], events: Sequence[Event], places: Sequence[int] | None = None
) -> Iterator[Step | Event]:
    """Yield steps and events as they happened; the order among steps, and among events, stays.

    ``places`` says of each event how many of these steps came before it, in rising order.  Without it the times
    decide, and a step comes before an event of the same time.
    """
    place = 0
    for number, event in enumerate(events):
        if places is not None and number < len(places):
            end = max(place, min(places[number], len(steps)))
        else:
            end = place
            while end < len(steps) and steps[end].time <= event.time:
                end += 1
        yield from steps[place:end]
        yield event
        place = end
    yield from steps[place:]


class Panel:
    """The detectors of one rank.  An exception of one costs that one alone what it was given.

    ``complain`` is told of each, in words.
    """

    def __init__(self, detectors: Sequence[Detector], complain: Complain) -> None:
        self.detectors = detectors
        self._complain = complain
        self._events = [
            (detector, detector.observe_event) for detector in detectors if hasattr(detector, "observe_event")
        ]

    def observe(self, step: Step) -> None:
        """Hand on the next step."""
        for detector in self.detectors:
            try:
                detector.observe(step)
            except Exception:
                self._complain(f"detector {detector.signal} cannot take {step!r}")

    def observe_event(self, event: Event) -> None:
        """Hand on the next event, to those that take events."""
        for detector, take in self._events:
            try:
                take(event)
            except Exception:
                self._complain(f"detector {detector.signal} cannot take {event!r}")

    def verdicts(self) -> Iterator[tuple[Detector, Verdict | None]]:
        """Yield what each detector says now; None also for one that cannot answer."""
        for detector in self.detectors:
            try:
                verdict = detector.verdict()
            except Exception:
                self._complain(f"detector {detector.signal} gives no verdict")
                verdict = None
            yield detector, verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a detector said over the whole of a run.

    ``last`` is its verdict at the end, None where it cannot say.  ``worst`` is the gravest active one of all, None
    where the signal was never on.  ``judged``: it could say something at some time.
    """

    signal: str
    category: Category
    needs: str
    last: Verdict | None
    worst: Verdict | None
    judged: bool


_GRAVITY = {"info": 0, "warning": 1, "critical": 2}


class Record:
    """Keeps what the detectors of a panel say while a run is read, so that what is over at its end is not lost.

    Signals are held for some steps and minutes after an excess (:class:`trainvitals.detect.base.Latch`), so they are
    looked at every ``every`` points, and after every event.
    """

    def __init__(self, panel: Panel, *, every: int = 8) -> None:
        self._panel = panel
        self._every = every
        self._left = every
        self._worst: dict[str, Verdict] = {}
        self._judged: set[str] = set()
        self._last: dict[str, Verdict | None] = {}

    def feed(self, items: Iterator[Step | Event]) -> None:
        """Take what comes next of the run."""
        observe, left = self._panel.observe, self._left
        for item in items:
            if isinstance(item, Step):
                observe(item)
                left -= 1
                if left > 0:
                    continue
            else:
                self._panel.observe_event(item)
            self.look()
            left = self._every
        self._left = left

    def look(self) -> None:
        """Ask all detectors."""
        for detector, verdict in self._panel.verdicts():
            signal = detector.signal
            self._last[signal] = verdict
            if verdict is None:
                continue
            self._judged.add(signal)
            if verdict.active:
                self._worst[signal] = graver(self._worst.get(signal), verdict)

    def outcomes(self) -> list[Outcome]:
        """Ask once more, and return what there is to say, in the order of the detectors."""
        self.look()
        return [
            Outcome(
                signal=detector.signal,
                category=detector.category,
                needs=detector.needs,
                last=self._last.get(detector.signal),
                worst=self._worst.get(detector.signal),
                judged=detector.signal in self._judged,
            )
            for detector in self._panel.detectors
        ]


def graver(one: Verdict | None, other: Verdict) -> Verdict:
    """Return the graver of two active verdicts; of two that are equally grave the earlier, in its latest words."""
    if one is None:
        return other
    if _GRAVITY[other.severity] != _GRAVITY[one.severity]:
        return max(one, other, key=lambda verdict: _GRAVITY[verdict.severity])
    if one.since_step == other.since_step:
        return other
    return one if one.ratio >= other.ratio else replace(other)
