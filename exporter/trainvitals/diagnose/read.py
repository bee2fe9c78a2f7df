"""From paths to runs that were read and judged."""

from __future__ import annotations

import glob
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import BinaryIO

from trainvitals.detect import Detector
from trainvitals.diagnose.case import Case
from trainvitals.diagnose.recorded import RecordedRun, of_name
from trainvitals.diagnose.recorded import runs as recorded_runs
from trainvitals.follow.base import Format, Scanner
from trainvitals.follow.follower import Follower
from trainvitals.follow.formats import FORMATS
from trainvitals.follow.run import FollowedRun
from trainvitals.follow.sources import Source
from trainvitals.spooled import recording
from trainvitals.telemetry import Event

#: Bytes of all logs that are read at one go: more of them would only take memory.
_AT_ONCE = float(1 << 26)
#: A poll that brings nothing new, although there is more: so many times, then the log is left.
_PATIENCE = 8

#: Told how many bytes were read, and of how many.
Progress = Callable[[int, int], None]


class _Clock:
    """Passes a second at each poll, so that each may read as much."""

    def __init__(self) -> None:
        self._now = time.time()

    def __call__(self) -> float:
        return self._now

    def tick(self) -> None:
        self._now += 1.0


class _Errors:
    """Looks for errors in a text.  Its tables take as long to load as a log to read, and many logs have no text."""

    def __init__(self) -> None:
        self._reader: Scanner | None = None

    @property
    def words(self) -> tuple[bytes, ...]:
        """What lines with errors hold; see :class:`trainvitals.follow.base.Scanner`."""
        return self._loaded().words

    def scan(self, block: bytes, places: Sequence[int] | None = None) -> Iterable[tuple[int, Event]]:
        """Return the errors in a block of lines; see :class:`trainvitals.follow.base.Scanner`."""
        return self._loaded().scan(block, places)

    def _loaded(self) -> Scanner:
        if self._reader is None:
            from trainvitals.follow.errors.reader import ErrorReader  # noqa: PLC0415  See the class.

            self._reader = ErrorReader()
        return self._reader


class Reading:
    """What was read: ``cases`` by the name of the run, and ``problems``, what is wrong with a log, by its path."""

    def __init__(self, make: Callable[[str], Case]) -> None:
        self._make = make
        self.cases: dict[str, Case] = {}
        self.problems: dict[str, str] = {}

    def take(self, runs: Sequence[FollowedRun | RecordedRun]) -> int:
        """Take over a poll; return how much was new."""
        news = 0
        for run in runs:
            name = run.name
            case = self.cases.get(name)
            if case is not None and bool(case.status) != isinstance(run, RecordedRun):
                # A log, and a run that has the probe: two, as in the exporter.
                name += "~2"
                case = self.cases.get(name)
            if case is None:
                case = self.cases[name] = self._make(name)
            case.take(run)
            news += len(run.steps) + len(run.events)
        return news

    def useful(self) -> list[Case]:
        """Return the runs that tell anything, in the order of their names."""
        return [case for _, case in sorted(self.cases.items()) if case.steps or case.kinds]


def read(
    paths: Sequence[str],
    build: Callable[[], list[Detector]],
    *,
    format_name: str = "",
    progress: Progress | None = None,
    formats: Sequence[Format] = FORMATS,
    make: Callable[[str], Case] | None = None,
) -> Reading:
    """Read all that logs, folders and patterns hold now, and judge it.

    ``build`` makes the detectors of a run; ``make`` the case of a run by its name, where it is to be another one.
    """
    clock = _Clock()
    reading = Reading(make or (lambda name: Case(name, build)))
    paths, spooled = _sorted_out(paths)
    recorded, problems = recorded_runs(spooled)
    reading.take(recorded)
    reading.problems = problems
    if spooled and not paths:
        return reading
    follower = Follower(
        [Source(path, format=format_name) for path in paths],
        formats=formats,
        scanner=_Errors,
        rate=_AT_ONCE if len(paths) > 1 or any(map(os.path.isdir, paths)) else math.inf,
        clock=clock,
    )
    idle, left = 0, -1
    try:
        while idle < _PATIENCE:
            runs = follower.poll()
            clock.tick()
            news, behind = reading.take(runs), follower.behind
            if progress is not None:
                done = sum(run.read for run in runs)
                progress(done, done + behind)
            if not behind:
                break
            idle = 0 if news or behind != left else idle + 1
            left = behind
        reading.take(follower.poll(final=True))
        reading.problems = {**problems, **follower.problems, **_rejected(paths, follower.rejected)}
    finally:
        follower.close()
    return reading


def _sorted_out(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the paths of logs, and the rank files that others are, hold, or name by their run."""
    logs: list[str] = []
    spooled: list[str] = []
    for path in paths:
        place = os.path.expanduser(path)
        found = recording.find(place)
        if not found and not os.path.lexists(place):
            found = of_name(path)
        (spooled if found else logs).extend(found or [path])
    return logs, list(dict.fromkeys(spooled))


def _rejected(paths: Sequence[str], reasons: Mapping[str, int]) -> dict[str, str]:
    """Return what was named and is not there, and how much that was found was not even opened, by reason."""
    found = {
        path: "missing"
        for path in map(os.path.expanduser, paths)
        if reasons.get("missing") and not os.path.lexists(path) and not glob.glob(path, recursive=True)
    }
    counts = {reason.replace("_", " "): str(count) for reason, count in reasons.items() if reason != "missing"}
    return {**found, **counts}


def save_input(stream: BinaryIO, path: str) -> None:
    """Write what comes from a stream into a file, so that it can be read like any log."""
    with open(path, "wb") as file:
        while block := stream.read(1 << 20):
            file.write(block)


def standard_input() -> BinaryIO:
    """Return standard input as bytes."""
    return sys.stdin.buffer
