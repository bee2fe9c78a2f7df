"""Writes into the journal what the exporter sees of its runs and of its node.

Looking on costs no file and no lock.  What is to be written waits for the end of the exporter's round, and is written
by a thread of its own: a file system that hangs must not stop the rounds.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from trainvitals.collect.rank import Rank
from trainvitals.collect.runs import Finding, Runs
from trainvitals.collect.scribe_node import NodeWatch
from trainvitals.collect.scribe_runs import RECALLED, RunsWatch
from trainvitals.collect.source import Source
from trainvitals.journal import Attempt, Entry, Journal, Run, write

log = logging.getLogger(__name__)

#: Seconds between two looks for what is old.
_PACE = 60.0
#: Entries that are read again after a restart of the exporter: of runs, and of the node.
_REMEMBERED, _OF_NODE = 5_000, 500
#: Rows that wait for a file system that hangs; of more, the oldest are left out.
_MOST_WAITING = 20_000
#: Seconds that the end of the exporter waits for the last rows to be written.
_LAST_WORDS = 5.0


class Scribe:
    """Writes into ``journal``; entries older than ``keep`` seconds are left out, and it grows to ``size`` bytes.

    ``node`` watches devices and the kernel.  ``clock`` gives wall time.
    """

    def __init__(
        self, journal: Journal, node: NodeWatch, *, keep: float, size: int, clock: Callable[[], float]
    ) -> None:
        self.journal = journal
        self._node, self._runs = node, RunsWatch(self)
        self._keep, self._size, self._clock = keep, size, clock
        self._rows: deque[write.Row] = deque()
        self._pruned = 0.0
        self._forgotten = 0
        self._complained: type[Exception] | None = None
        self._runs.recall(journal.events(None, kinds=RECALLED, last=_REMEMBERED))
        node.recall(journal.events("", kinds=("device", "kernel"), last=_OF_NODE))
        self._awake, self._stopping = threading.Event(), False
        self._thread = threading.Thread(target=self._loop, name="journal", daemon=True)

    @property
    def left_out(self) -> int:
        """Rows that were too many of one run at once, or for a file system that hangs."""
        return self._forgotten + self._runs.left_out

    # While sources are polled -----------------------------------------------------------------------------------------

    def observe(
        self,
        sources: Sequence[Source],
        runs: Runs,
        by_run: Mapping[str, Sequence[Rank]],
        findings: Mapping[str, Sequence[Finding]],
        now: float,
    ) -> None:
        """Take what a poll found; a source whose name belongs to somebody else is left out."""
        self._runs.observe(sources, runs, by_run, findings, now)

    def entry(self, entry: Entry, key: str = "") -> None:
        """Take an entry, and what it is known by; one that would be removed at once is left out."""
        if self._clock() - entry.time <= self._keep:
            self._rows.append(write.entry(entry, self.journal.node, key))

    def run(self, run: Run) -> None:
        """Take how far a run is."""
        self._rows.append(write.run(run, self.journal.node))

    def attempt(self, attempt: Attempt, key: str) -> None:
        """Take how far a process is, and what it is known by."""
        self._rows.append(write.attempt(attempt, self.journal.node, key))

    # At the end of a round --------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let what waits be written, by the thread."""
        while len(self._rows) > _MOST_WAITING:
            self._rows.popleft()
            self._forgotten += 1
        if not self._thread.is_alive() and not self._stopping:
            self._thread.start()
        self._awake.set()

    def _loop(self) -> None:
        while not self._stopping:
            self._awake.wait()
            self._awake.clear()
            try:
                self.write()
            except Exception as error:
                # The next round is another one.
                if type(error) is not self._complained:
                    self._complained = type(error)
                    log.exception("the journal cannot be written")

    def write(self) -> None:
        """Write what waits, and forget what is old once in a while."""
        now = self._clock()
        for entry in self._node.look(now):
            self.entry(entry)
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if rows or self.journal.waiting:
            self.journal.extend(rows)
        if not 0.0 <= now - self._pruned < _PACE and not self.journal.prune(self._keep, self._size):
            self._pruned = now

    def close(self) -> None:
        """Write what waits, and close the journal; one that hangs is left alone."""
        self._stopping = True
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_WORDS)
        if not self._thread.is_alive():
            self.write()
            self.journal.close()
