"""The journal -> families: how it is, and which interruptions of runs are in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from trainvitals.collect.base import Collector, NoData, Sink
from trainvitals.collect.scribe import Scribe
from trainvitals.journal.ask import Total

#: Seconds between two looks at the incidents, which others write.
PACE = 10.0
#: Pairs of a run and a cause that are shown, those with the newest interruption first.
MOST = 400


class JournalCollector(Collector):
    """Shows the incidents of the journal, and what could not be written."""

    name = "journal"

    def __init__(self, scribe: Scribe | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._scribe = scribe
        self._monotonic = monotonic
        self._looked = float("-inf")
        self._totals: Sequence[Total] = ()
        self._size = 0

    def collect(self, sink: Sink) -> None:
        """Add what is known.  Raises NoData where there is no journal."""
        if self._scribe is None:
            raise NoData
        journal = self._scribe.journal
        if self._monotonic() - self._looked >= PACE:
            self._looked = self._monotonic()
            self._size, self._totals = journal.size(), journal.totals(MOST)
        sink.add("trainvitals_journal_bytes", self._size or None)
        sink.add("trainvitals_journal_rows_waiting", journal.stuck)
        sink.add("trainvitals_journal_rows_dropped_total", journal.dropped + self._scribe.left_out)
        for reason, count in sorted(journal.errors.items()):
            sink.add("trainvitals_journal_errors_total", count, reason)
        for one in self._totals:
            key = (one.run, one.cause)
            sink.add("trainvitals_incidents_total", one.times, *key)
            sink.add("trainvitals_incident_steps_lost_total", one.steps_lost, *key)
            sink.add("trainvitals_incident_seconds_lost_total", one.seconds_lost, *key)
            sink.add("trainvitals_incident_seconds_to_recover_total", one.seconds_to_recover, *key)
            sink.add("trainvitals_last_incident_timestamp_seconds", one.last, *key)
