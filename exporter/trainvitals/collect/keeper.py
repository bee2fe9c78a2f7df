"""What the detectors of each rank know, over restarts of the exporter: one file, replaced as a whole every minute.

A rank is known again by its sources: the identity of its rank file, or the name of its log.  Beside its state stands
how far each source was judged, so that what is read again after a restart is not judged twice, and what came since is
judged.  How far logs were read is remembered after the states: a log is never remembered further than it was judged.

What compares the ranks of a run is kept for the run, which is known again by a source of any of its ranks.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from trainvitals.collect import states
from trainvitals.collect.logs import LogsCollector
from trainvitals.collect.rank import Kept, Rank
from trainvitals.collect.source import Mark, Source
from trainvitals.detect import Detector, state

log = logging.getLogger(__name__)

T = TypeVar("T")
#: The name of what is kept of a run, in the document of its state.
_OF_RUN = "run"

#: Seconds between two saves, and the share of a core that they may take: with many ranks they are further apart.
INTERVAL, SHARE = 60.0, 0.01
#: CPU seconds that a poll may spend on it; what is left waits for the next one.
SLICE = 0.2
#: Seconds for which the state of a rank is kept that nobody has seen since the restart, and how many of them.
_UNCLAIMED, _MOST_UNCLAIMED = 86400.0, 256


class Keeper:
    """Keeps the states of ranks at ``path``, or nowhere when it is empty.

    ``clock`` gives wall time, ``monotonic`` the time by which it is saved every ``interval`` seconds.
    """

    def __init__(
        self,
        path: str,
        *,
        logs: LogsCollector | None = None,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._logs = logs
        self._interval = interval
        self._clock = clock
        self._monotonic = monotonic
        self._due = monotonic() + interval
        self._round: deque[Rank] | None = None
        self._snapshot: Any = None
        self._cost = 0.0
        #: By run and rank; with the version of the rank that it is the state of.
        self._records: dict[tuple[str, int], tuple[tuple[Rank, int], states.Record]] = {}
        #: What could not be kept or restored, by reason.
        self.errors: Counter[str] = Counter()
        #: Wall time of the last save, and its bytes.
        self.saved: float | None = None
        self.size = 0
        self._complained: set[str] = set()
        self._unclaimed = list(states.load(path, self._complain)) if path else []
        if logs is not None and path:
            logs.waits_to_remember = True

    # After a restart --------------------------------------------------------------------------------------------------

    def resume(self, rank: Rank, sources: Sequence[Source], make: Callable[[], list[Detector]]) -> bool:
        """Give a new rank what was kept of it; return False where that went wrong, and the rank is of no use.

        ``make`` makes fresh detectors for those that cannot be restored.
        """
        if not self._unclaimed:
            return True
        known = {source.incarnation for source in sources if source.resumed}
        for record in self._claimed("rank", known):
            try:
                failed = rank.resume(_kept(record.document), make)
            except Exception as error:
                self._complain("rank", f"the state of a rank makes no sense: {error!r}")
                return False
            # It stays in the file until the rank is saved again.
            self._records[sources[-1].run, sources[-1].identity.rank] = (rank, -1), record
            if failed:
                self._complain("detector", f"detectors that begin afresh: {', '.join(failed)}", len(failed))
        return True

    def resume_run(self, ranks: Sequence[Rank], make: Callable[[], T]) -> T:
        """Return what compares some ranks of one run, as it was kept; a fresh one where nothing was, or no sense."""
        fresh = make()
        for record in self._claimed("run", {source for rank in ranks for source in rank.marks}):
            try:
                failed = state.restore(record.document["state"], {_OF_RUN: fresh})
            except Exception as error:
                self._complain("run", f"the state of a run makes no sense: {error!r}")
                return make()
            if failed:
                self._complain("run", "the state of a run is none that fits: its ranks are compared afresh")
                return make()
        return fresh

    def _claimed(self, subject: states.Subject, known: set[Hashable]) -> list[states.Record]:
        """Return the records that share a source, which nobody claims again."""
        found = [one for one in self._unclaimed if one.subject == subject and not known.isdisjoint(one.sources)]
        self._unclaimed = [one for one in self._unclaimed if one not in found]
        return found

    # While it runs ----------------------------------------------------------------------------------------------------

    def keep(self, ranks: Sequence[Rank], runs: Mapping[str, object]) -> None:
        """Save when it is time to; all that was handed on is judged by these ranks.

        ``runs`` are what compares the ranks of a run, by its name.
        """
        if not self._path:
            return
        if self._round is None:
            if self._monotonic() < self._due:
                return
            self._begin(ranks)
        self._go_on(ranks, runs, SLICE)

    def close(self, ranks: Sequence[Rank], runs: Mapping[str, object]) -> None:
        """Save now."""
        if self._path:
            self._begin(ranks)
            self._go_on(ranks, runs, float("inf"))

    def _begin(self, ranks: Sequence[Rank]) -> None:
        self._round = deque(ranks)
        self._cost = 0.0
        # Taken before the states: these may know more than it, and never less.
        self._snapshot = None if self._logs is None else self._logs.latest(self._logs.handed)

    def _go_on(self, ranks: Sequence[Rank], runs: Mapping[str, object], seconds: float) -> None:
        begun = time.thread_time()
        waiting = self._round or deque()
        while waiting and time.thread_time() - begun < seconds:
            self._encode(waiting.popleft())
        if not waiting:
            self._round = None
            self._write(ranks, [*self._compared(ranks, runs)])
        self._cost += time.thread_time() - begun
        if self._round is None:
            self._due = self._monotonic() + max(self._interval, self._cost / SHARE)

    def _encode(self, rank: Rank) -> None:
        key = (rank.identity.run, rank.identity.rank)
        known = self._records.get(key)
        if known is not None and known[0] == (rank, rank.version):
            return
        now = self._clock()
        try:
            document, failed = rank.kept()
            record = states.make({"saved": now, "sources": _sources([rank]), "state": document}, rank.marks)
        except Exception as error:
            # Its state of before is as good as it was.
            self._complain("rank", f"the state of a rank cannot be saved: {error!r}")
            return
        if failed:
            self._complain("detector", f"detectors whose state cannot be saved: {', '.join(failed)}", len(failed))
        if record is None:
            self._complain("rank", "the state of a rank is too large")
            self._records.pop(key, None)
            return
        self._records[key] = (rank, rank.version), record

    def _compared(self, ranks: Sequence[Rank], runs: Mapping[str, object]) -> Iterator[states.Record]:
        """Return a record for each run whose ranks are compared: small, and other numbers each time."""
        for run, part in runs.items():
            own = [rank for rank in ranks if rank.identity.run == run]
            try:
                document, failed = state.save({_OF_RUN: part})
                found = {"of": "run", "saved": self._clock(), "sources": _sources(own), "state": document}
                record = None if failed else states.make(found, (source for rank in own for source in rank.marks))
            except Exception as error:
                self._complain("run", f"the state of a run cannot be saved: {error!r}")
                continue
            if record is None:
                self._complain("run", "the state of a run is too large, or holds what has none")
                continue
            yield record

    def _write(self, ranks: Sequence[Rank], compared: Sequence[states.Record]) -> None:
        present = {(rank.identity.run, rank.identity.rank) for rank in ranks}
        self._records = {key: record for key, record in self._records.items() if key in present}
        oldest = self._clock() - _UNCLAIMED
        self._unclaimed = [record for record in self._unclaimed if record.saved >= oldest][-_MOST_UNCLAIMED:]
        records = [*self._unclaimed, *(record for _, record in self._records.values()), *compared]
        if not records and self.saved is None:
            return
        try:
            self.size = states.store(self._path, records)
        except OSError as error:
            self._complain("save", str(error))
            return
        self.saved = self._clock()
        if self._snapshot is not None and self._logs is not None:
            self._logs.remember(self._snapshot)

    def _complain(self, reason: str, message: str, count: int = 1) -> None:
        """Count what went wrong; the first of each reason is logged."""
        self.errors[reason] += count
        if reason not in self._complained:
            self._complained.add(reason)
            log.warning("%s: %s", self._path, message)


def _sources(ranks: Sequence[Rank]) -> list[list[Any]]:
    """Return the sources of some ranks, each with how far it was judged."""
    return [[list(one), *mark] for rank in ranks for one, mark in rank.marks.items() if isinstance(one, tuple)]


def _kept(document: dict[str, Any]) -> Kept:
    marks: dict[Hashable, Mark] = {
        tuple(known): Mark(int(step), int(event)) for known, step, event in document["sources"]
    }
    return Kept(marks, document["state"])
