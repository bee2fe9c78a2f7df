"""Runs that are known from logs: each is a source of its rank, as a rank file is.

A log does not tell whether its process lives.  While it grows the run counts as running; what its last words mean is
decided here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import islice

from trainvitals.collect.log_errors import COUNT, KIND, SURVIVED, TROUBLE
from trainvitals.collect.source import Mark
from trainvitals.follow.run import FollowedRun
from trainvitals.metrics import LOGGED_STATES
from trainvitals.telemetry import Event, Step, StepList, parts_of

#: A log is silent when it has said nothing for so many times its longest pause of late, and for so long at least, as
#: evaluations, checkpoints and buffers take their time; a pause of a night must not make it wait for a week.
TIMES, LEAST, MOST = 5.0, 600.0, 6 * 3600.0
_PAUSES = 32
#: So many names of values are shown of a log, those that it says first; frameworks log some 200.
MAX_NAMES = 256
#: A log whose last word was an error, and that says nothing more for so long, tells of a training that failed.
FAILED_AFTER = 60.0
#: Seconds by which a clock of the log may be ahead of that of its file.
_AHEAD = 60.0


class Rhythm:
    """The pauses of a log, and how long a silence must be to mean something."""

    def __init__(self) -> None:
        self._pauses: deque[float] = deque(maxlen=_PAUSES)

    def pause(self, seconds: float) -> None:
        """Take the time between two words of the log."""
        if seconds > 0.0:
            self._pauses.append(seconds)

    @property
    def silence(self) -> float:
        """Seconds."""
        return min(MOST, max(LEAST, TIMES * max(self._pauses, default=0.0)))


class FollowedLog:
    """A run that is followed, as a :class:`trainvitals.collect.source.Source`.

    Read in one thread and shown in another: :meth:`push` takes over what a poll of the logs found, :meth:`take` hands
    on a part of it and says what is true then.  Who calls them sees to it that they do not meet.
    """

    states = LOGGED_STATES
    alive = False
    pid = 0
    started_monotonic = 0.0
    correction = 0.0
    phase = ""
    disabled = None
    data_path = ""

    def __init__(self, run: FollowedRun, owner: int) -> None:
        self.job = 1
        self.owner = owner
        self.incarnation: Hashable = ("log", run.name, owner)
        self.path = run.paths[0] if run.paths else run.name
        self.format = ""
        self.identity = run.identity
        self.status = "running"
        self.is_new = True
        self.history: Sequence[Step] = ()
        self.steps: Sequence[Step] = ()
        self.events: Sequence[Event] = ()
        self.places: Sequence[int] = ()
        self.counters: dict[str, float] = {"steps": 0.0, "skipped": 0.0, "nonfinite": 0.0}
        self.names: set[str] = set()
        self.started = run.changed
        self.count = 0
        #: How many events were handed on, over restarts of the exporter; see ``resumed``.
        self.told = 0
        self.resumed = run.resumed
        self.last_record = 0.0
        #: When the log last grew, by the clock of its files.
        self.grown = run.changed
        self.silence = LEAST
        #: Bytes that were not read yet, and things that made no sense.
        self.behind = 0
        self.bad = 0
        #: Bytes that were read.
        self.read = 0
        self._rhythm = Rhythm()
        self._history: list[Step] = []
        self._steps: list[Step] = []
        #: Each with its place among the steps that wait.
        self._events: list[tuple[int, Event]] = []
        self._told = 0
        self._finished = False
        self._timed = False
        #: When the newest step came into the log, by the clock of its files.
        self._stepped = run.changed
        self._last: Step | None = None
        #: Whether an error was the last that the log told of.
        self._in_trouble = False
        self._trouble_count = 0
        #: The last step that was counted.
        self._counted: Step | None = None

    @property
    def run(self) -> str:
        """The name under which the run is shown."""
        return self.identity.run if self.job == 1 else f"{self.identity.run}~{self.job}"

    @property
    def pending(self) -> int:
        """Steps that were not handed on yet."""
        return len(self._steps)

    @property
    def waits(self) -> bool:
        """Whether there is anything that was not handed on yet."""
        return bool(self._steps or self._events)

    @property
    def newest(self) -> float:
        """Time of the newest datum by the clock of the steps, which need not be that of this machine."""
        return (self._last.time if self._last is not None else self.started) + max(0.0, self.grown - self._stepped)

    @property
    def last_activity(self) -> float:
        """When the log last grew, or its newest step, if that is a little later by its own clock.

        One that is hours ahead (another time zone) must not keep the run young for hours.
        """
        return max(self.grown, min(self.last_record, self.grown + _AHEAD))

    @property
    def mark(self) -> Mark:
        """The count of the last step, and the number of the last event."""
        return Mark(self.count, self.told)

    def judged(self, mark: Mark) -> tuple[int, int, int]:
        """Return how many of ``history``, ``steps`` and ``events`` are not behind a mark."""
        history, steps = (bisect_right(found, mark.step, key=_count) for found in (self.history, self.steps))
        return history, steps, max(0, min(len(self.events), mark.event - (self.told - len(self.events))))

    def phase_seconds(self, now: float) -> dict[str, float]:  # noqa: ARG002  a log tells of no phase
        """Return nothing: a log does not tell in which phase a training is."""
        return {}

    def seconds(self, before: Step, step: Step) -> float | None:
        """Return how long a step took: as the log says, else by its times; one value for each line with a step."""
        said = step.values.get("step_seconds")
        if said is not None:
            return said if 0.0 <= said < 1e9 else None
        steps = step.step - before.step
        is_known = self._timed or "elapsed_seconds" in step.values
        return max(0.0, step.time - before.time) / steps if is_known and steps > 0 else None

    # In ---------------------------------------------------------------------------------------------------------------

    def push(self, run: FollowedRun) -> None:
        """Take over what the last poll of the logs found."""
        self.identity, self.read, self.behind, self.bad = run.identity, run.read, run.behind, run.bad
        self.format = ", ".join(dict.fromkeys(run.formats))
        self._finished, self._timed = run.finished is not None, run.timed
        self.started = run.attempt_started or run.started or self.started
        if run.changed > self.grown:
            self._rhythm.pause(run.changed - self.grown)
            self.grown = run.changed
        steps = list(spread_evenly(run.steps, self._last))
        history = list(run.history)
        if steps:
            self._stepped = run.changed
        self._history += history
        self._push_events(run.events, run.places, steps)
        self._told = run.told
        self._steps += steps
        new = history + steps
        for step in new if run.timed else ():
            if self._last is not None and step.count > self._last.count:
                self._rhythm.pause(step.time - self._last.time)
            self._last = step
        self._last = new[-1] if new else self._last

    def _push_events(self, events: Sequence[Event], places: Sequence[int], steps: Sequence[Step]) -> None:
        """Take events; an error learns how many steps were before it, for errors and steps are handed on apart."""
        waiting = len(self._steps)
        for event, place in zip(events, places, strict=True):
            if event.kind != KIND:
                self._events.append((waiting + place, event))
                continue
            before = steps[place - 1] if place else self._last
            count = before.count if before is not None else 0
            self._events.append((waiting + place, replace(event, fields={**event.fields, COUNT: count})))
            if event.fields.get("level") in TROUBLE:
                self._in_trouble, self._trouble_count = True, count

    # Out --------------------------------------------------------------------------------------------------------------

    def take(self, limit: int, now: float) -> None:
        """Make what is new since the last time ready, at most ``limit`` steps; ``now`` is the time of day."""
        self.is_new = self.count == 0
        self.history, self._history = tuple(self._history), []
        self.steps, self._steps = self._steps[:limit], self._steps[limit:]
        # What came between steps that wait must wait as well.
        handed = len(self.steps)
        ready = sum(place <= handed for place, _ in self._events)
        self.events = tuple(event for _, event in self._events[:ready])
        self.places = tuple(place for place, _ in self._events[:ready])
        self._events = [(place - handed, event) for place, event in self._events[ready:]]
        self.told = self._told - len(self._events)
        for step in self.history:
            self._name(step.values)
            self._counted = step
        for step in self.steps:
            self._add(step)
        if self.history or self.steps:
            newest = (self.steps or self.history)[-1]
            self.count, self.last_record = max(self.count, newest.count), newest.time
        self.silence = self._rhythm.silence
        self.status = self._status(now)
        self.alive = self.status == "running"

    def _add(self, step: Step) -> None:
        counters, before = self.counters, self._counted
        if before is None or step.count > before.count:
            # A log that tells one step in ten tells of ten.
            counters["steps"] += max(1, step.step - before.step) if before is not None else 1
            self._counted = step
        values = step.values
        self._name(values)
        loss = values.get("loss")
        if loss is not None and not math.isfinite(loss):
            counters["nonfinite"] += 1
        if values.get("skipped"):
            counters["skipped"] += 1
        for name in ("tokens", "samples"):
            amount = values.get(name, 0.0)
            if 0.0 < amount < 1e15:
                counters[name] = counters.get(name, 0.0) + amount

    def _name(self, names: Iterable[str]) -> None:
        """Take names of values, as long as there is room: what a log says is not for us to choose."""
        if not self.names.issuperset(names):
            self.names.update(islice((name for name in names if name not in self.names), MAX_NAMES - len(self.names)))

    def _status(self, now: float) -> str:
        """Return what the last words of the log mean; one that is merely quiet is never dead."""
        quiet = now - self.grown
        if self._finished:
            return "finished"
        since = 0 if self._last is None else self._last.count - self._trouble_count
        self._in_trouble = self._in_trouble and since <= SURVIVED
        # Where steps came after the error, it may be that the training only takes its time for the next one.
        if self._in_trouble and quiet > (self.silence if since else FAILED_AFTER):
            return "failed"
        if quiet <= self.silence:
            return "running"
        target = self.identity.target_steps
        is_through = target is not None and self._last is not None and self._last.step >= target - 1
        return "finished" if is_through else "silent"


def _count(step: Step) -> int:
    return step.count


def spread_evenly(steps: Sequence[Step], before: Step | None) -> Sequence[Step]:
    """Return steps that were read at one go, and of which nobody knows the times, with times of their own.

    Detectors hold a signal by the time of the steps: with one time for all, one that was over would never end.
    """
    first, last = (steps[0], steps[-1]) if steps else (None, None)
    if first is None or last is None or first.time != last.time or first.count == last.count:
        return steps
    number = last.count - first.count + 1
    begun = before.time if before is not None and before.time < last.time else last.time - number
    pause = (last.time - begun) / number
    return StepList(parts_of(steps)).evenly(last.count, last.time, pause)
