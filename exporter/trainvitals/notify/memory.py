"""What was accepted, over restarts: a table of SQLite.

Alertmanager sends a message again until all targets of the receiver took it, and again when our answer was lost.  So
each part that a target accepted is remembered until the whole message is done, and for some minutes longer.  After
that the same message is a reminder, which is wanted.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable

#: Of a message that was never done, parts are remembered for so many seconds.
LONGEST = 7 * 86400.0

_TABLES = """
CREATE TABLE IF NOT EXISTS accepted (
    message TEXT NOT NULL, part TEXT NOT NULL, time REAL NOT NULL, PRIMARY KEY (message, part)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS done (message TEXT PRIMARY KEY, time REAL NOT NULL) WITHOUT ROWID;
"""


class Memory:
    """Remembers in the file ``path``, or with an empty one as long as the process lives.

    A message that is done is a duplicate for ``window`` seconds.  ``clock`` gives wall time.  Raises OSError when the
    file cannot be used.  A disk that is full later costs the memory of what comes then, and ``is_lossy`` says so.
    """

    def __init__(self, path: str, *, window: float, clock: Callable[[], float]) -> None:
        self._window = window
        self._clock = clock
        self._lock = threading.Lock()
        self.is_lossy = False
        #: What could not be written.
        self._unwritten: set[tuple[str, str]] = set()
        try:
            if path:
                os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
            self._base = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
            self._base.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + _TABLES)
        except sqlite3.Error as error:
            raise OSError(f"{path}: cannot be used: {error}") from None

    def is_done(self, message: str) -> bool:
        """Whether a message was done within the window."""
        rows = self._read("SELECT time FROM done WHERE message = ?", message)
        return bool(rows) and 0.0 <= self._clock() - rows[0][0] < self._window

    def has(self, message: str, part: str) -> bool:
        """Whether a part of a message that is not done was accepted."""
        return (message, part) in self._unwritten or bool(
            self._read("SELECT 1 FROM accepted WHERE message = ? AND part = ?", message, part)
        )

    def accept(self, message: str, part: str) -> None:
        """Remember that a part was accepted; on disk when this returns."""
        if not self._write("INSERT OR REPLACE INTO accepted VALUES (?, ?, ?)", message, part, self._clock()):
            self._unwritten.add((message, part))

    def finish(self, message: str) -> None:
        """Remember that all parts were; from now on only as long as the window is."""
        now = self._clock()
        self._write("INSERT OR REPLACE INTO done VALUES (?, ?)", message, now)
        self._write("DELETE FROM accepted WHERE message = ? OR time < ?", message, now - LONGEST)
        self._write("DELETE FROM done WHERE time < ?", now - max(self._window, 60.0))
        self._unwritten = {known for known in self._unwritten if known[0] != message}

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(sqlite3.Error):
            self._base.close()

    def _read(self, query: str, *values: object) -> list[tuple[float, ...]]:
        with self._lock:
            try:
                return self._base.execute(query, values).fetchall()
            except sqlite3.Error:
                self.is_lossy = True
                return []

    def _write(self, query: str, *values: object) -> bool:
        with self._lock:
            try:
                self._base.execute(query, values)
            except sqlite3.Error:
                self.is_lossy = True
                return False
        return True
