"""What changed in a run, as families: by its steps and events, and by what its sources say of themselves."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from trainvitals.collect.base import Sink
from trainvitals.collect.source import Source
from trainvitals.detect.changes import LEVELS, ChangeWatch
from trainvitals.telemetry import Identity


@dataclass
class Changes:
    """The changes of one rank."""

    watch: ChangeWatch = field(default_factory=ChangeWatch)
    _identity: Identity | None = None
    _source: Hashable = None
    _started: float = -math.inf
    #: Of each level, the steps and the amount at the last poll.
    _counted: dict[str, tuple[int, float]] = field(default_factory=dict)

    def follow(self, source: Source, steps: int = 0, events: int = 0) -> None:
        """Take what a poll found in a source of the rank; an older attempt that still ends is left out.

        So many of its steps and events are known already.
        """
        if source.incarnation != self._source:
            if source.started < self._started:
                return
            self._begin(source)
        elif self._identity is not None and self._identity.attempt != source.identity.attempt:
            # A log goes on where another attempt writes into it.
            self.watch.begin_attempt()
            self.watch.compare(self._identity, source.identity, source.started)
        for event in source.events[events:]:
            self.watch.observe_event(event)
        for step in source.steps[steps:]:
            self.watch.observe(step)
        for name in LEVELS:
            self._measure(name, source)
        self._identity = source.identity

    def _begin(self, source: Source) -> None:
        before, self._source, self._started = self._identity, source.incarnation, source.started
        self._counted.clear()
        self.watch.begin_levels()
        if before is not None:
            self.watch.begin_attempt()
            self.watch.compare(before, source.identity, source.started)

    def _measure(self, name: str, source: Source) -> None:
        amount, count = source.counters.get(name, 0.0), int(source.counters.get("steps", 0.0))
        if not math.isfinite(amount):
            return
        steps, known = self._counted.get(name, (0, 0.0))
        if amount > known and count > steps:
            self._counted[name] = (count, amount)
            self.watch.measure(name, count - steps, amount - known, source.last_activity)

    def add(self, sink: Sink, run: str) -> None:
        """Add the families of the run; without a change and a lineage there are none."""
        watch = self.watch
        for subject, hashed in watch.hashes.items():
            sink.add("trainvitals_lineage_info", 1.0, run, subject, hashed)
        for kind, count in watch.counts.items():
            sink.add("trainvitals_changes_total", count, run, kind)
        for kind, change in watch.last.items():
            sink.add("trainvitals_last_change_step", change.step if change.step >= 0 else None, run, kind)
            sink.add("trainvitals_last_change_timestamp_seconds", change.time, run, kind)
            for name, old, new in dict.fromkeys(change.differences):
                sink.add("trainvitals_last_change_info", 1.0, run, kind, name, old, new)
