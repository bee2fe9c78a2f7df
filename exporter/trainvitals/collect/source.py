"""What a rank is told by: one process of a training, seen through its rank file or through a log that is followed.

Behind this contract there is one pipeline, whatever the source is.  Times are wall-clock seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

from trainvitals.telemetry import Event, Identity, Step


class Mark(NamedTuple):
    """How far a source was judged: numbers of its last step and of its last event, which no restart changes."""

    step: int
    event: int


class Source(Protocol):
    """One process (an incarnation) of a rank, and what is new of it since the last poll.

    ``identity`` and everything below it may change from poll to poll, what stands above it never does.
    """

    #: Which of the jobs that train under one name at one time; the first is 1.
    job: int

    @property
    def path(self) -> str:
        """Where it is read, for messages."""

    @property
    def owner(self) -> int:
        """The user who wrote it."""

    @property
    def incarnation(self) -> Hashable:
        """What no other source has, ever."""

    @property
    def identity(self) -> Identity:
        """Who it is, as it says itself."""

    @property
    def run(self) -> str:
        """The name under which the run is shown."""

    @property
    def is_new(self) -> bool:
        """Whether this poll is its first."""

    @property
    def history(self) -> Sequence[Step]:
        """Steps before these that were counted before the exporter was restarted: they are judged once more."""

    @property
    def resumed(self) -> bool:
        """Whether its marks mean the same as before a restart of the exporter."""

    @property
    def mark(self) -> Mark:
        """The mark behind all that it handed on."""

    def judged(self, mark: Mark) -> tuple[int, int, int]:
        """Return how many of ``history``, ``steps`` and ``events``, at their beginning, are not behind a mark."""

    @property
    def steps(self) -> Sequence[Step]:
        """The new steps, in order."""

    @property
    def events(self) -> Sequence[Event]:
        """The new events, in order."""

    @property
    def places(self) -> Sequence[int] | None:
        """Of each event, how many of ``steps`` came before it; None where their times tell."""

    @property
    def names(self) -> Collection[str]:
        """The values that it can have; of others the last one is forgotten."""

    @property
    def status(self) -> str:
        """One of ``states``."""

    @property
    def states(self) -> Sequence[str]:
        """The states that it can be in: PROBED_STATES or LOGGED_STATES of :mod:`trainvitals.metrics`."""

    @property
    def alive(self) -> bool:
        """Whether the process lives, as far as can be told."""

    @property
    def pid(self) -> int:
        """The process as the exporter sees it; 0 when it cannot be told."""

    @property
    def started(self) -> float:
        """When the process started."""

    @property
    def started_monotonic(self) -> float:
        """The same by CLOCK_MONOTONIC; 0 when it cannot be told."""

    @property
    def correction(self) -> float:
        """Seconds by which all its times were moved since its start, because the time of day was set."""

    @property
    def last_activity(self) -> float:
        """When it last left a trace."""

    @property
    def last_record(self) -> float:
        """When the last step ended; 0 before the first."""

    @property
    def count(self) -> int:
        """The highest count of a step; 0 before the first."""

    @property
    def phase(self) -> str:
        """The phase that it is in; empty when it cannot be told."""

    @property
    def disabled(self) -> bool | None:
        """Whether the probe switched itself off; None where there is none."""

    @property
    def counters(self) -> Mapping[str, float]:
        """What it counted since its start, ``steps`` among it; what it cannot count is not in it."""

    @property
    def data_path(self) -> str:
        """The data file (:mod:`trainvitals.rankfile.ledger`); empty where there is none."""

    def phase_seconds(self, now: float) -> Mapping[str, float]:
        """Return the seconds that it spent in each phase until now, as far as can be told."""

    def seconds(self, before: Step, step: Step) -> float | None:
        """Return how long each step after ``before`` took, up to ``step``; None when it cannot be told."""
