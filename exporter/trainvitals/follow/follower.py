"""All followed logs: what is new in them, run by run, poll by poll."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainvitals.follow.base import Facts, Format, Piece, Scanner
from trainvitals.follow.formats import FORMATS, Formats
from trainvitals.follow.positions import Positions
from trainvitals.follow.reader import SNIFF, Reader
from trainvitals.follow.run import FollowedRun
from trainvitals.follow.sources import Log, Source, Sources
from trainvitals.follow.tail import BLOCK
from trainvitals.follow.writers import Writers

#: Bytes of all logs that are read in a second, at most.
RATE = 1 << 24
#: Folders are searched every so many seconds.
SEARCH = 10.0
#: So many files stay open between polls; others are opened anew for each.
_MAX_OPEN = 256
#: What was remembered of a log that is gone is kept for so many seconds.
_KEEP = 7 * 86400.0
#: So many runs are followed at once, those in one file among them.
_MAX_RUNS = 4096
_LONGEST_NAME = 200
#: Seconds by which a file may seem younger than it can be.
_AHEAD = 60.0


class Follower:
    """Follows logs.

    ::

        follower = Follower([Source("/data/logs")], positions="/var/lib/trainvitals/positions.json", scanner=Errors)
        while True:
            for run in follower.poll():
                ...  # run.history, run.steps, run.events are what is new of it
            follower.save()

    ``positions`` is the file in which is remembered what was read; empty: nothing is.  ``scanner`` makes what looks
    for errors in every text.  ``rate`` is in bytes a second; infinity reads all there is at each poll.  A log whose
    last change is longer than ``max_age`` seconds ago when it is found is left alone.  ``clock`` gives wall time.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        positions: str = "",
        formats: Sequence[Format] = FORMATS,
        scanner: Callable[[], Scanner] | None = None,
        rate: float = RATE,
        max_age: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._formats = formats
        self._scanner = scanner
        self._rate = rate
        self._clock = clock
        self._sources = Sources(sources, formats, max_age)
        self._positions = Positions(positions)
        saved = self._positions.load()
        self._saved_logs: dict[str, Any] = _mapping(saved, "logs")
        self._saved_runs: dict[str, Any] = _mapping(saved, "runs")
        self._logs: list[Log] = []
        self._readers: dict[str, Reader] = {}
        self._runs: dict[str, FollowedRun] = {}
        self._searched = 0.0
        self._polled = 0.0
        self._first = 0
        #: The run that the next item of a log belongs to; and of each run, the name of that of its file.
        self._current: dict[str, FollowedRun] = {}
        self._bases: dict[str, str] = {}
        self._writers = Writers()
        #: What could not be followed or remembered, by reason.
        self.rejected: Counter[str] = Counter()

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong with a log, by its path; and with the file of the positions."""
        found = {reader.path: reader.problem for reader in self._readers.values() if reader.problem}
        return found if not self._positions.problem else {**found, "positions": self._positions.problem}

    @property
    def behind(self) -> int:
        """Bytes of all logs that are not read yet."""
        return sum(reader.unread for reader in self._readers.values())

    def poll(self, *, final: bool = False) -> list[FollowedRun]:
        """Read what is new; return all runs, in the order of their names, whether there is anything new or not.

        A log whose format nobody knows is a run only when somebody named it or an error was found in it.
        With ``final``, nobody writes the logs any more: half lines count, and what is doubtful is decided.
        """
        now = self._clock()
        for run in self._runs.values():
            run.begin()
        self._search(now)
        self._read(self._budget(now), now, final)
        for run in self._runs.values():
            readers = self._readers_of(run)
            changed = _changed(run, readers, now)
            read, unread = sum(reader.read for reader in readers), sum(reader.unread for reader in readers)
            run.settle(changed, read=read, unread=unread, final=final)
            run.behind, run.bad = unread, sum(reader.bad for reader in readers)
            run.describe([reader.format for reader in readers if reader.format is not None])
        return [run for _, run in sorted(self._runs.items()) if self._is_shown(run)]

    def save(self) -> None:
        """Remember what was read, so that a restart goes on behind it.  Call it when what a poll gave is dealt with."""
        self.keep(self.snapshot())

    def snapshot(self) -> dict[str, Any]:
        """Return what :meth:`save` would remember, as JSON knows it."""
        oldest = self._clock() - _KEEP
        for saved in (self._saved_logs, self._saved_runs):
            for key in [key for key, state in saved.items() if not _time(state) >= oldest]:
                del saved[key]
        for key, reader in self._readers.items():
            _put(self._saved_logs, key, reader.state(), reader.changed)
        for name, run in self._runs.items():
            _put(self._saved_runs, name, run.state(), run.changed)
        return {"logs": dict(self._saved_logs), "runs": dict(self._saved_runs)}

    def keep(self, snapshot: Mapping[str, Any]) -> None:
        """Remember what :meth:`snapshot` gave at some time before."""
        if not self._positions.save(snapshot):
            self.rejected["positions"] += 1

    def close(self) -> None:
        """Close every file."""
        for reader in self._readers.values():
            reader.close()

    # Which logs and runs there are ----------------------------------------------------------------------------------

    def _search(self, now: float) -> None:
        if self._searched and 0.0 <= now - self._searched < SEARCH:
            return
        self._searched = now
        self._logs = self._sources.find(now)
        self.rejected = Counter(self._sources.rejected)
        present = {log.key for log in self._logs}
        for key in self._readers.keys() - present:
            # The last lines may stand in it still, after it was renamed.
            if self._readers[key].problem == "gone" or not self._readers[key].unread:
                self._forget(key)
        new = []
        for found in self._logs:
            reader = self._readers.get(found.key)
            if reader is not None:
                reader.path = found.path
                continue
            reader = Reader(found.path, self._of(found.format), self._scanner, self._saved_logs.get(found.key))
            self._readers[found.key] = reader
            new.append(found)
        self._replay(new)
        paths: dict[str, list[str]] = {}
        for found in self._logs:
            paths.setdefault(found.run, []).append(found.path)
        for name, run in self._runs.items():
            run.paths = tuple(paths.get(self._bases.get(name, name), ()))

    def _of(self, name: str) -> Sequence[Format]:
        """Return the formats that a log may have of which a setting says this name."""
        if not name:
            return self._formats
        found = Formats.of(self._formats).named(name)
        return [] if found is None else [found]

    def _forget(self, key: str) -> None:
        reader = self._readers.pop(key)
        self._writers.forget(key)
        _put(self._saved_logs, key, reader.state(), reader.changed)
        reader.close()
        current = self._current.pop(key, None)
        if current is not None and not any(run is current for run in self._current.values()):
            base = self._bases.get(current.name, current.name)
            for name in [name for name in self._runs if self._bases.get(name, name) == base]:
                run = self._runs.pop(name)
                _put(self._saved_runs, name, run.state(), run.changed)

    def _replay(self, new: Sequence[Log]) -> None:
        """Go on where these logs were left before a restart: what was told then becomes the history of their runs."""
        replayed = {}
        for found in new:
            known = set(self._runs)
            items = self._readers[found.key].replay()
            if found.run in known and found.run not in replayed:
                for _ in items:
                    pass  # Its run goes on already.
                self._current[found.key] = self._runs[found.run]
                continue
            self._run(found.run, found.run).begin_replay()
            replayed[found.run] = self._runs[found.run]
            self._deliver(found, items, replayed)
        for name, run in replayed.items():
            run.settle(run.changed)
            run.end_replay(self._saved_runs.get(name))

    def _run(self, name: str, base: str) -> FollowedRun:
        run = self._runs.get(name)
        if run is None:
            run = self._runs[name] = FollowedRun(name)
            self._bases[name] = base
            run.begin()
        return run

    def _readers_of(self, run: FollowedRun) -> list[Reader]:
        base = self._bases.get(run.name, run.name)
        return [self._readers[log.key] for log in self._logs if log.run == base and log.key in self._readers]

    def _is_shown(self, run: FollowedRun) -> bool:
        is_base = self._bases.get(run.name, run.name) == run.name
        is_named = any(log.named for log in self._logs if log.run == run.name)
        has_parts = is_base and any(base == run.name and name != base for name, base in self._bases.items())
        return run.has_news or (not has_parts and (is_named or bool(run.formats)))

    # Reading --------------------------------------------------------------------------------------------------------

    def _budget(self, now: float) -> int:
        """Return how many bytes may be read now."""
        if math.isinf(self._rate):
            return 1 << 62
        elapsed = min(60.0, max(0.0, now - self._polled)) if self._polled else 1.0
        self._polled = now
        return max(BLOCK, int(self._rate * elapsed))

    def _read(self, budget: int, now: float, final: bool) -> None:
        """Read from all logs, each its share; who comes first changes from poll to poll."""
        logs = self._logs
        runs = list(dict.fromkeys(log.run for log in logs))
        self._first = (self._first + 1) % max(1, len(runs))
        turn = {name: (place - self._first) % len(runs) for place, name in enumerate(runs)}
        order = sorted(logs, key=lambda log: turn[log.run]) if budget < (1 << 62) else logs
        unread: set[str] = set()
        for place, found in enumerate(order):
            reader = self._readers.get(found.key)
            # Of a run that was resumed in another file, the one before it is read to its end first.
            if reader is None or (found.run in unread and found.rank is None):
                continue
            share = max(SNIFF, budget // (len(order) - place))
            self._deliver(found, reader.poll(share, now, final=final), {})
            budget = max(0, budget - reader.read)
            if reader.unread:
                unread.add(found.run)
            if place >= _MAX_OPEN:
                reader.close()

    def _deliver(self, found: Log, batches: Iterable[list[Piece]], replayed: dict[str, FollowedRun]) -> None:
        """Hand items to the run of a log, or to that of the runs in it which they belong to."""
        run = self._current.get(found.key)
        if run is None:
            run = self._current[found.key] = self._run(found.run, found.run)
        reader = self._readers[found.key]
        for batch in batches:
            items, rank = batch, found.rank
            if rank is None and reader.format is not None and reader.format.in_parts:
                rank, items = self._writers.sort(found.run, found.key, run.step, items)
            if not any(type(item) is Facts and item.run for item in items):
                run.take(items, rank)
                continue
            for item in items:
                if isinstance(item, Facts) and item.run:
                    run = self._current[found.key] = self._part(found.run, item.run, replayed)
                run.take((item,), rank)

    def _part(self, base: str, part: str, replayed: dict[str, FollowedRun]) -> FollowedRun:
        """Return one of the runs in a log."""
        name = f"{base}/{part[:_LONGEST_NAME]}"
        if name not in self._runs and len(self._runs) >= _MAX_RUNS:
            name = base
        is_new = name not in self._runs
        run = self._run(name, base)
        if replayed and name not in replayed:
            run.begin_replay()
            replayed[name] = run
        elif is_new and not replayed:
            # The log could not be read right after the restart: this run goes on without its history.
            run.begin_replay()
            run.end_replay(self._saved_runs.get(name))
        return run


def _changed(run: FollowedRun, readers: Sequence[Reader], now: float) -> float:
    """Return when a run's files were last changed; where a file server's clock is ahead, when news of them came."""
    changed = max((reader.changed for reader in readers), default=0.0)
    if changed <= now + _AHEAD:
        return changed
    return now if not run.changed or any(reader.read for reader in readers) else run.changed


def _mapping(saved: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = saved.get(name)
    return (
        {str(key): value for key, value in found.items() if isinstance(value, dict)} if isinstance(found, dict) else {}
    )


def _put(saved: dict[str, Any], key: str, state: dict[str, Any], changed: float) -> None:
    """Remember a state and when its log was last changed; that stays where the log could not be looked at since."""
    saved[key] = {**state, "seen": max(changed, _time(saved.get(key, {"seen": 0.0})))}


def _time(state: Mapping[str, Any]) -> float:
    seen = state.get("seen")
    return float(seen) if isinstance(seen, (int, float)) else -math.inf
