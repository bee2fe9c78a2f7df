"""Reads the logs that are followed, and shows what can be said about them beside their runs."""

from __future__ import annotations

import contextlib
import glob
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainvitals.collect.base import Collector, NoData, Sink
from trainvitals.collect.followed import FollowedLog
from trainvitals.config import ConfigError, SourcesSettings
from trainvitals.follow.errors import ErrorReader
from trainvitals.follow.follower import Follower
from trainvitals.follow.formats import why_unknown
from trainvitals.follow.run import FollowedRun
from trainvitals.follow.sources import Source

#: So many steps are handed on at a poll; counting and judging one takes some 60 microseconds.
STEPS = 10_000


class LogsCollector(Collector):
    """The logs that are followed.  ``follower`` is None where there are none to follow.

    The collector reads; :meth:`poll` hands on what was read, to whom it may concern.  Both may have a thread of their
    own.  A log is shown until ``keep`` seconds after it grew last.
    """

    name = "logs"

    def __init__(
        self,
        follower: Follower | None,
        *,
        keep: float,
        paths: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._follower = follower
        self._paths = paths
        self._keep = keep
        self._clock = clock
        self._lock = threading.Lock()
        self._logs: dict[str, FollowedLog] = {}
        self._runs: dict[str, FollowedRun] = {}
        #: Times that something was handed on; and what is to be remembered, with their number then.
        self.handed = 0
        self._snapshot: tuple[int, Mapping[str, Any]] | None = None
        #: Whether somebody else says when to remember how far the logs were read: see :meth:`remember`.
        self.waits_to_remember = False
        #: What is wrong with a log, by path; replaced as a whole, so that any thread may take it.
        self._problems: dict[str, str] = {}

    @classmethod
    def from_settings(
        cls,
        settings: SourcesSettings,
        positions: str = "",
        clock: Callable[[], float] = time.time,
        *,
        is_limited: bool = True,
    ) -> LogsCollector:
        """Follow what the settings name.  ``positions`` is the file that remembers how far; empty: nothing does.

        Raises ConfigError.
        """
        for log in settings.paths:
            if log.format and (why := why_unknown(log.format)):
                raise ConfigError(f"sources.paths: format: {why}")
        sources = [Source(log.path, log.run, log.format) for log in settings.paths]
        if not sources:
            return cls(None, keep=settings.keep, clock=clock)
        follower = Follower(
            sources,
            positions=positions,
            scanner=ErrorReader,
            rate=settings.rate if is_limited else float("inf"),
            max_age=settings.keep,
            clock=clock,
        )
        return cls(follower, keep=settings.keep, paths=[log.path for log in settings.paths], clock=clock)

    # Reading ----------------------------------------------------------------------------------------------------------

    def read(self, *, final: bool = False) -> None:
        """Read what is new; with ``final``, nobody writes the logs any more."""
        if self._follower is None or self.pending > STEPS:
            return
        self._remember()
        runs = self._follower.poll(final=final)
        self._problems = self._follower.problems
        with self._lock:
            self._runs = {run.name: run for run in runs}
            for run in runs:
                log = self._logs.get(run.name)
                if log is None:
                    log = self._logs[run.name] = FollowedLog(run, _owner(run))
                log.push(run)
            for name in self._logs.keys() - self._runs.keys():
                del self._logs[name]

    def _remember(self) -> None:
        """Remember how far the logs were read, if all of it was handed on: who is killed does the rest again."""
        if self._follower is None or any(log.waits for log in self._logs.values()):
            return
        if not self.waits_to_remember:
            self._follower.save()
            return
        snapshot = self._follower.snapshot()
        with self._lock:
            self._snapshot = (self.handed, snapshot)

    def latest(self, handed: int) -> Mapping[str, Any] | None:
        """Return how far the logs were read at some time when no more than ``handed`` had been handed on; or None."""
        with self._lock:
            snapshot = self._snapshot
        return snapshot[1] if snapshot is not None and snapshot[0] <= handed else None

    def remember(self, snapshot: Mapping[str, Any]) -> None:
        """Remember what :meth:`latest` gave: what was told up to there is dealt with for good."""
        if self._follower is not None:
            self._follower.keep(snapshot)

    @property
    def pending(self) -> int:
        """Steps that were read and not handed on yet."""
        return sum(log.pending for log in self._logs.values())

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read, or to hand on, at once."""
        return self._follower is not None and (self._follower.behind > 0 or self.pending > 0)

    def poll(self) -> list[FollowedLog]:
        """Hand on what is new, at most STEPS steps; return the logs that are to be shown."""
        now = self._clock()
        with self._lock:
            self.handed += 1
            room = STEPS
            for log in self._logs.values():
                before = log.pending
                log.take(room, now)
                room -= before - log.pending
            return [log for log in self._logs.values() if log.pending or now - log.grown <= self._keep]

    def stop(self) -> None:
        """Remember what was read, and close every file."""
        if self._follower is not None:
            self._remember()
            self._follower.close()

    # Showing ----------------------------------------------------------------------------------------------------------

    def format_of(self, run: str) -> str:
        """Return the format of a run's logs; empty when it is not known."""
        log = self._logs.get(run)
        return "" if log is None else log.format

    def complaints(self) -> list[tuple[str, str]]:
        """Return what cannot be followed, and why, in words."""
        if self._follower is None:
            return []
        runs = list(self._runs.values())
        found = [path for run in runs for path in run.paths]
        unknown = [path for run in runs if not run.formats for path in run.paths]
        missing = [path for path in self._paths if not glob.glob(path, recursive=True) and not os.path.lexists(path)]
        empty = [path for path in self._paths if path not in missing and not found]
        complaints = dict.fromkeys(unknown, "no format that is known") | dict.fromkeys(missing, "not there")
        complaints |= dict.fromkeys(empty, "no log of a known format in it")
        return sorted({**complaints, **self._problems}.items())

    def collect(self, sink: Sink) -> None:
        """Read what is new, then add the families about logs."""
        if self._follower is None:
            raise NoData
        self.read()
        with self._lock:
            for log in self._logs.values():
                self._add(sink, log)
            known = sum(len(run.paths) for run in self._runs.values() if run.formats)
            unknown = sum(len(run.paths) for run in self._runs.values() if not run.formats)
        for state, number in (
            ("followed", known),
            ("unknown", unknown),
            ("problem", len(self._problems)),
        ):
            sink.add("trainvitals_log_files", number, state)
        for reason, number in sorted(self._follower.rejected.items()):
            sink.add("trainvitals_log_files_rejected", number or None, reason)

    def _add(self, sink: Sink, log: FollowedLog) -> None:
        run = log.run
        sink.add("trainvitals_log_info", 1.0, run, log.format)
        sink.add("trainvitals_log_grown_timestamp_seconds", log.grown, run)
        sink.add("trainvitals_log_newest_timestamp_seconds", log.newest, run)
        sink.add("trainvitals_log_silence_seconds", log.silence, run)
        sink.add("trainvitals_log_read_bytes_total", log.read, run)
        sink.add("trainvitals_log_pending_bytes", log.behind, run)
        sink.add("trainvitals_log_parse_errors_total", log.bad, run)


def _owner(run: FollowedRun) -> int:
    """Return the user who wrote a log; that of the exporter, for one that is gone."""
    for path in run.paths:
        with contextlib.suppress(OSError):
            return os.stat(path).st_uid
    return os.getuid()
