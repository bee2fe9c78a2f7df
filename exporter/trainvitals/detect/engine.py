"""One engine, two doors: the exporter and the offline report feed steps and events to the same detectors, here.

The order is that of the training: an event (an evaluation, a checkpoint, a restart, a change) comes between the steps
between which it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from trainvitals.detect.base import Category, Detector, Severity, Verdict
from trainvitals.telemetry import Event, Step, Steps

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
        """Hand on the next step to all."""
        for detector in self.detectors:
            try:
                detector.observe(step)
            except Exception:
                self._complain(f"detector {detector.signal} cannot take {step!r}")

    def observe_all(self, detector: Detector, steps: Sequence[Step]) -> None:
        """Hand on the next steps to one: a block for each in turn is faster than all for each step in turn."""
        if isinstance(steps, Steps) and (take := getattr(detector, "observe_all", None)) is not None:
            try:
                take(steps)
            except Exception:
                self._complain(f"detector {detector.signal} cannot take the {len(steps)} steps from {steps[0]!r}")
            return
        observe = detector.observe
        for step in steps:
            try:
                observe(step)
            except Exception:
                self._complain(f"detector {detector.signal} cannot take {step!r}")

    def observe_event(self, event: Event) -> None:
        """Hand on the next event, to those that take events."""
        for detector, take in self._events:
            try:
                take(event)
            except Exception:
                self._complain(f"detector {detector.signal} cannot take {event!r}")

    def verdict(self, detector: Detector) -> Verdict | None:
        """Return what a detector says now; None also for one that cannot answer."""
        try:
            return detector.verdict()
        except Exception:
            self._complain(f"detector {detector.signal} gives no verdict")
            return None


@dataclass(slots=True)
class Episode:
    """Once that a signal was on: ``worst`` is what it said at its gravest.

    ``reached`` says of each severity that it had after which step of the run it was first said; the least of them is
    when the finding was known.  ``until`` is the step after which it was off again, None while it is on.
    """

    signal: str
    worst: Verdict
    reached: dict[Severity, int] = field(default_factory=dict)
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a detector said over the whole of a run.

    ``last`` is its verdict at the end, None where it cannot say.  ``worst`` is the gravest active one of all, None
    where the signal was never on.  ``judged``: it could say something at some time.  ``episodes`` are the first
    :data:`EPISODES` times that it was on, and ``more`` is how many there were besides.
    """

    signal: str
    category: Category
    needs: str
    last: Verdict | None
    worst: Verdict | None
    judged: bool
    episodes: tuple[Episode, ...] = ()
    more: int = 0


_GRAVITY = {"info": 0, "warning": 1, "critical": 2}
#: So many episodes of a signal are remembered.
EPISODES = 256


class Record:
    """Keeps what the detectors of a panel say while a run is read, so that what is over at its end is not lost.

    All are asked every eight points, in a long run at every 256th part of what it had so far, and after results of an
    evaluation.  One that has the property ``held`` (whether its signal is on, also when its cause is over) is asked
    every eight points as long as that is true: nothing that it holds is missed.
    """

    _EVERY, _PARTS = 8, 256

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._points = 0
        self._worst: dict[str, Verdict] = {}
        self._judged: set[str] = set()
        self._last: dict[str, Verdict | None] = {}
        #: The step after which detectors are asked.
        self._step = 0
        #: The episode that goes on, by signal; those that are remembered; how many are not.
        self._open: dict[str, Episode] = {}
        self._episodes: dict[str, list[Episode]] = {}
        self._more: dict[str, int] = {}

    def feed(self, items: Iterable[Step | Event]) -> None:
        """Take what comes next of the run."""
        block: list[Step] = []
        size = max(self._EVERY, self._points // self._PARTS)
        for item in items:
            if isinstance(item, Step):
                block.append(item)
                if len(block) == size:
                    self._take(block)
                    self.look()
                    block = []
                    size = max(self._EVERY, self._points // self._PARTS)
                continue
            self._take(block)
            block = []
            self._panel.observe_event(item)
            if item.kind == "evaluation":
                self.look()
        self._take(block)

    def _take(self, block: Sequence[Step]) -> None:
        self._points += len(block)
        every = self._EVERY
        for detector in self._panel.detectors:
            if not hasattr(detector, "held"):
                self._panel.observe_all(detector, block)
                continue
            for begin in range(0, len(block), every):
                part = block[begin : begin + every]
                self._panel.observe_all(detector, part)
                if detector.held or detector.signal in self._open:
                    self._step = part[-1].step
                    self._note(detector, self._panel.verdict(detector))
        if block:
            self._step = block[-1].step

    def look(self) -> None:
        """Ask all detectors."""
        for detector in self._panel.detectors:
            self._note(detector, self._panel.verdict(detector))

    def _note(self, detector: Detector, verdict: Verdict | None) -> None:
        signal = detector.signal
        self._last[signal] = verdict
        if verdict is not None:
            self._judged.add(signal)
            if verdict.active:
                self._worst[signal] = graver(self._worst.get(signal), verdict)
                self._go_on(signal, verdict)
                return
        if (episode := self._open.pop(signal, None)) is not None:
            episode.until = self._step

    def _go_on(self, signal: str, verdict: Verdict) -> None:
        episode = self._open.get(signal)
        if episode is None:
            episode = self._open[signal] = Episode(signal, verdict)
            known = self._episodes.setdefault(signal, [])
            if len(known) < EPISODES:
                known.append(episode)
            else:
                self._more[signal] = self._more.get(signal, 0) + 1
        episode.worst = graver(episode.worst, verdict)
        episode.reached.setdefault(verdict.severity, self._step)

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
                episodes=tuple(self._episodes.get(detector.signal, ())),
                more=self._more.get(detector.signal, 0),
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
    return one if one.ratio >= other.ratio else other
