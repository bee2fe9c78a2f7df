"""One engine, two doors: the exporter and the offline report feed steps and events to the same detectors, here.

The order is that of the training: an event (an evaluation, a checkpoint, a restart, a change) comes between the steps
between which it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from trainvitals.detect.base import Category, Detector, Severity, Verdict
from trainvitals.detect.segments import Cut, Segment, Segments
from trainvitals.telemetry import Event, Step, Steps, parts_of

#: What to do with a message about a detector that failed; called while the exception is handled.
Complain: TypeAlias = Callable[[str], None]


def in_order(
    steps: Sequence[Step], events: Sequence[Event], places: Sequence[int] | None = None
) -> Iterator[Step | Steps | Event]:
    """Yield steps and events as they happened; the order among steps, and among events, stays.

    Steps that are held in columns come together as far as no event lies between them.

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
        yield from _pieces(steps[place:end])
        yield event
        place = end
    yield from _pieces(steps[place:] if place else steps)


def one_by_one(items: Iterable[Step | Steps | Event]) -> Iterator[Step | Event]:
    """Yield the same with each step alone."""
    for item in items:
        if isinstance(item, Steps):
            yield from item
        else:
            yield item


def _pieces(steps: Sequence[Step]) -> Iterator[Step | Steps]:
    for part in parts_of(steps):
        if isinstance(part, Steps):
            yield part
        else:
            yield from part


class Panel:
    """The detectors of one rank.  An exception of one costs that one alone what it was given.

    ``complain`` is told of each, in words.  ``segments`` watches for changes after which baselines begin anew.
    """

    def __init__(self, detectors: Sequence[Detector], complain: Complain, segments: Segments | None = None) -> None:
        self.detectors = detectors
        self.segments = segments or Segments()
        self._cuts: list[Cut] = []
        self._complain = complain
        self._events = [
            (detector, detector.observe_event) for detector in detectors if hasattr(detector, "observe_event")
        ]

    def observe(self, step: Step) -> None:
        """Hand on the next step to all."""
        for segment in self.segments.observe(step):
            for detector in self.detectors:
                self._begin(detector, segment)
        for detector in self.detectors:
            try:
                detector.observe(step)
            except Exception:
                self._complain(f"detector {detector.signal} cannot take {step!r}")

    def _begin(self, detector: Detector, segment: Segment) -> None:
        """Let a detector begin a new baseline, if it has one that does not outlive this."""
        if segment.kind not in getattr(detector, "segments", ()):
            return
        try:
            detector.begin_segment(segment)  # type: ignore[attr-defined]
        except Exception:
            self._complain(f"detector {detector.signal} cannot begin anew: {segment.why}")

    def look_at(self, steps: Sequence[Step]) -> None:
        """Look for segments in a block, before it is handed to each detector in turn, whole or in parts."""
        self._cuts = self.segments.look_at(steps)

    def observe_all(self, detector: Detector, steps: Sequence[Step]) -> int:
        """Hand on the next steps to one: a block for each in turn is faster than all for each step in turn.

        Return how many it took: fewer than all where its signal went on within columns (see
        :class:`trainvitals.detect.base.BlockDetector`).  Where a segment begins in a block that was looked at, the
        block is cut.
        """
        if not self._cuts:
            return self._hand_on(detector, steps)
        begin = 0
        for cut in self._cuts:
            place = _place(steps, cut.at)
            if place is None:
                continue
            if place > begin:
                begin += self._hand_on(detector, steps[begin:place])
                if begin < place:
                    return begin
            self._begin(detector, cut.segment)
        return begin + self._hand_on(detector, steps[begin:] if begin else steps)

    def _hand_on(self, detector: Detector, steps: Sequence[Step]) -> int:
        if isinstance(steps, Steps) and (take := getattr(detector, "observe_all", None)) is not None:
            try:
                taken: int | None = take(steps)
            except Exception:
                self._complain(f"detector {detector.signal} cannot take the {len(steps)} steps from {steps[0]!r}")
                taken = None
            return len(steps) if taken is None else taken
        observe = detector.observe
        for step in steps:
            try:
                observe(step)
            except Exception:
                self._complain(f"detector {detector.signal} cannot take {step!r}")
        return len(steps)

    def observe_event(self, event: Event) -> None:
        """Hand on the next event, to those that take events."""
        for segment in self.segments.observe_event(event):
            for detector in self.detectors:
                self._begin(detector, segment)
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


def _place(steps: Sequence[Step], count: int) -> int | None:
    """Return the place of the first step with a count; None where there is none."""
    if isinstance(steps, Steps):
        place = count - steps.first
        return place if 0 <= place < len(steps) else None
    return next((place for place, step in enumerate(steps) if step.count == count), None)


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

    All are asked every eight points, in a long run at every 64th part of what it had so far, and after results of an
    evaluation.  One that has the property ``held`` (whether its signal is on, also when its cause is over) is asked
    every eight points as long as that is true, and when it begins: nothing that it holds is missed.
    """

    _EVERY, _PARTS = 8, 64

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._points = 0
        #: Points until all are asked.
        self._left = self._EVERY
        self._worst: dict[str, Verdict] = {}
        self._judged: set[str] = set()
        self._last: dict[str, Verdict | None] = {}
        #: The step after which detectors are asked.
        self._step = 0
        #: The episode that goes on, by signal; those that are remembered; how many are not.
        self._open: dict[str, Episode] = {}
        self._episodes: dict[str, list[Episode]] = {}
        self._more: dict[str, int] = {}

    def feed(self, items: Iterable[Step | Steps | Event]) -> None:
        """Take what comes next of the run."""
        block: list[Step] = []
        for item in items:
            if isinstance(item, Step):
                block.append(item)
                if len(block) == self._left:
                    self._take(block)
                    block = []
                continue
            self._take(block)
            block = []
            if isinstance(item, Steps):
                self._take_columns(item)
                continue
            self._panel.observe_event(item)
            if item.kind == "evaluation":
                self.look()
        self._take(block)

    def _take_columns(self, steps: Steps) -> None:
        begin = 0
        while begin < len(steps):
            end = begin + self._left
            self._take(steps if not begin and end >= len(steps) else steps.part(begin, end))
            begin = end

    def _take(self, block: Sequence[Step]) -> None:
        """Take steps, no more than there may be until all are asked; ask them if there are as many."""
        if not block:
            return
        self._hand_on(block)
        self._points += len(block)
        self._left -= len(block)
        if self._left <= 0:
            self.look()

    def _hand_on(self, block: Sequence[Step]) -> None:
        self._panel.look_at(block)
        for detector in self._panel.detectors:
            if hasattr(detector, "held"):
                self._take_held(detector, block)
            else:
                self._panel.observe_all(detector, block)
        self._step = block.numbers[-1] if isinstance(block, Steps) else block[-1].step

    def _take_held(self, detector: Any, block: Sequence[Step]) -> None:
        """Hand on a block to a detector that says when its signal is on, and ask it as often as it has to be then."""
        in_columns = isinstance(block, Steps) and hasattr(detector, "observe_all")
        stops = getattr(detector, "stops", False)
        begin = 0
        while begin < len(block):
            if in_columns and (stops or (not detector.held and detector.signal not in self._open)):
                part = block[begin:] if begin else block
            else:
                part = block[begin : begin + self._EVERY]
            taken = self._panel.observe_all(detector, part)
            begin += taken
            if detector.held or detector.signal in self._open:
                self._step = part[taken - 1].step
                self._note(detector, self._panel.verdict(detector))

    @property
    def detectors(self) -> Sequence[Detector]:
        """Those of the panel."""
        return self._panel.detectors

    def look(self) -> None:
        """Ask all detectors."""
        self._left = self._EVERY * max(1, self._points // (self._PARTS * self._EVERY))
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
