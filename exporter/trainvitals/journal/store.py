"""The journal as those who write it see it: nothing here raises because a disk is full or a file is damaged.

What cannot be written waits in memory, bounded, and is tried again with whatever comes next.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time as clocks
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from trainvitals.journal import ask, retention, write
from trainvitals.journal.base import Base, JournalError, is_damaged, reason
from trainvitals.journal.place import node_name
from trainvitals.journal.rows import Attempt, Entry, Incident, Run

__all__ = ["Journal", "JournalError"]

log = logging.getLogger(__name__)

#: Rows that wait for room on the disk; of more, the oldest are dropped and counted.  Incidents wait on their own.
MOST_WAITING, MOST_INCIDENTS = 20_000, 1_000
#: Rows that are written in one transaction: some 50 ms.
_AT_ONCE = 2_000

#: A statement and its values.
_Row: TypeAlias = write.Row


class Journal:
    """The journal at ``path``, for a process that writes it; any number may, at once.

    ``node`` is the name of this machine in rows that do not say another.  ``patience`` is how many seconds the lock of
    another writer is waited for, ``verify`` looks at the whole file at first.  ``clock`` gives wall time; ``tell``
    takes lines, by default for the log of the program.  Raises JournalError when the file belongs to a newer version or
    is none of ours; anything else is counted in ``errors`` and tried again.  Safe in several threads.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float] = clocks.time,
        node: str = "",
        patience: float = 5.0,
        tell: Callable[[str], None] | None = None,
        verify: bool = False,
    ) -> None:
        self.node = node or node_name()
        self._clock = clock
        self._tell = tell or log.warning
        self._lock = threading.RLock()
        self._base = Base(path, patience=patience, clock=clock, tell=self._tell, verify=verify)
        self._waiting: deque[_Row] = deque()
        self._incidents: deque[_Row] = deque()
        self._complained: set[str] = set()
        #: What went wrong by reason: ``full``, ``busy``, ``damaged``, ``newer``, ``file``; and rows that were dropped.
        self.errors: Counter[str] = Counter()
        self.dropped = 0
        #: Rows that the last try to write left in memory.
        self.stuck = 0
        try:
            self._base.connection()
        except (OSError, sqlite3.Error) as error:
            self._failed(error)

    @property
    def path(self) -> str:
        """The file."""
        return self._base.path

    @property
    def waiting(self) -> int:
        """Rows that are not written yet."""
        return len(self._waiting) + len(self._incidents)

    # Writing ----------------------------------------------------------------------------------------------------------

    def record(
        self,
        kind: str,
        run: str,
        *,
        time: float | None = None,
        rank: int | None = None,
        step: int | None = None,
        text: str = "",
        details: Mapping[str, Any] | None = None,
        node: str = "",
        key: str = "",
        renew: bool = False,
    ) -> bool:
        """Write what happened, one of KINDS, now or at a ``time``; return whether it is on the disk.

        The same ``key`` (by default all that is told) of a run and kind is written once; with ``renew``, what is told
        later takes the place of what was told (an answer to a command, say).  Raises ValueError for another kind.
        """
        moment = self._clock() if time is None else time
        entry = Entry(
            kind=kind, run=run, time=moment, node=node, rank=rank, step=step, text=text,
            details=dict(details or {}),
        )  # fmt: skip
        return self.extend([write.entry(entry, self.node, key, renew=renew)])

    def record_run(self, run: Run) -> bool:
        """Write how far a run is, in the place of what is known of it on its node."""
        return self.extend([write.run(run, self.node)])

    def record_attempt(self, attempt: Attempt, key: str = "") -> bool:
        """Write how far a process of a run is; ``key`` names it for ever (by default its rank and start)."""
        return self.extend([write.attempt(attempt, self.node, key)])

    def record_incident(
        self, run: str, cause: str, *, attempt: int = 0, detected: float | None = None, key: str = "", **columns: Any
    ) -> int:
        """Write an interruption and return its id, which is the same whenever it is told again.

        ``columns`` are the others of :class:`Incident`.  An incident is known by its run and ``key``; by default that
        is the attempt and when it was detected.  One that is there keeps what it has; use :meth:`update_incident`.
        Raises TypeError for an unknown column.
        """
        moment = self._clock() if detected is None else detected
        known = write.incident_id(run, key or f"{attempt}@{moment:.3f}")
        columns.setdefault("node", self.node)
        found = Incident(id=known, run=run, cause=cause, attempt=attempt, detected=moment, **columns)
        self.extend((), [write.incident(found)])
        return known

    def update_incident(self, incident: int, **columns: Any) -> bool:
        """Write what became known of an incident: any columns but id and run.  Raises TypeError for an unknown one."""
        return self.extend((), [write.incident_update(incident, columns)])

    def extend(self, rows: Iterable[_Row], incidents: Iterable[_Row] = ()) -> bool:
        """Write rows of :mod:`trainvitals.journal.write`, all at once; return whether all is on the disk."""
        with self._lock:
            self._waiting.extend(rows)
            self._incidents.extend(incidents)
            return self.flush()

    def flush(self) -> bool:
        """Try to write what waits; return whether nothing does any more."""
        with self._lock:
            try:
                for waiting in (self._incidents, self._waiting):
                    while waiting:
                        self._write(waiting)
            except (OSError, sqlite3.Error, JournalError) as error:
                self._failed(error)
            self.stuck = self.waiting
            return not self.stuck

    def prune(self, keep_seconds: float, keep_bytes: int) -> bool:
        """Remove some of what is too old or too much; return whether there may be more of it."""
        with self._lock:
            try:
                with self._base.transaction() as connection:
                    is_more = retention.prune(connection, self._clock() - keep_seconds, keep_bytes)
                return retention.shrink(connection) or is_more
            except (OSError, sqlite3.Error, JournalError) as error:
                self._failed(error)
                return False

    def size(self) -> int:
        """Return the bytes of what is in the file; 0 where it cannot be read."""
        with self._lock:
            try:
                return retention.size(self._base.connection())
            except (OSError, sqlite3.Error, JournalError) as error:
                self._failed(error)
                return 0

    def close(self) -> None:
        """Write what waits, if that can be done, and close the file."""
        with self._lock:
            self.flush()
            self._base.close()

    def _write(self, waiting: deque[_Row]) -> None:
        """Write the oldest rows that wait."""
        rows = [waiting[place] for place in range(min(len(waiting), _AT_ONCE))]
        with self._base.transaction() as connection:
            for statement, values in rows:
                try:
                    connection.execute(statement, values)
                except (sqlite3.IntegrityError, sqlite3.InterfaceError, OverflowError):
                    # A row that no table takes must not hold up those behind it.
                    self.dropped += 1
        for _ in rows:
            waiting.popleft()
        self._complained.clear()

    def _failed(self, error: Exception) -> None:
        """Count an error and tell the first of its kind; begin anew where the file is damaged."""
        why = reason(error)
        self.errors[why] += 1
        for waiting, most in ((self._waiting, MOST_WAITING), (self._incidents, MOST_INCIDENTS)):
            while len(waiting) > most:
                waiting.popleft()
                self.dropped += 1
        if isinstance(error, sqlite3.Error) and is_damaged(error):
            try:
                self._base.set_aside(str(error))
            except OSError as problem:
                error = problem
            else:
                return
        if why not in self._complained:
            self._complained.add(why)
            self._tell(f"{self.path}: cannot be written ({error}); kept in memory and tried again")

    # Reading ----------------------------------------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        """Return the runs; see :func:`trainvitals.journal.ask.runs`, as for all below."""
        return ask.runs(self._ask)

    def attempts(self, run: str) -> list[Attempt]:
        """Return the processes of a run."""
        return ask.attempts(self._ask, run)

    def events(
        self,
        run: str | None,
        *,
        kinds: Collection[str] = (),
        since: float | None = None,
        until: float | None = None,
        since_step: int | None = None,
        last: int | None = None,
    ) -> list[Entry]:
        """Return entries of a run, oldest first."""
        return ask.events(
            self._ask, run, kinds=kinds, since=since, until=until, since_step=since_step, last=last
        )  # fmt: skip

    def incidents(self, run: str | None = None, *, since: float | None = None) -> list[Incident]:
        """Return the interruptions of a run, or of all, oldest first."""
        return ask.incidents(self._ask, run, since=since)

    def totals(self, most: int) -> list[ask.Total]:
        """Return the interruptions of each run by cause."""
        return ask.totals(self._ask, most)

    def _ask(self, question: str, values: Sequence[object]) -> Sequence[tuple[Any, ...]]:
        """Return all rows; none where the file cannot be read, which is counted."""
        with self._lock:
            self.flush()
            try:
                return self._base.connection().execute(question, tuple(values)).fetchall()
            except (OSError, sqlite3.Error, JournalError) as error:
                self._failed(error)
                return []
