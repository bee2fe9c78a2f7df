"""Somebody else's SQLite database, read while it is written, without leaving anything beside it or holding it up.

Sources: SQLite's pages on URI file names, on write-ahead logs (a reader makes ``-shm`` and ``-wal`` where they are
missing, even when it may only read) and on the file format (bytes 18 and 19 are 2 where that log is in use).

Each question is asked and answered within one short transaction, so that a writer waits for milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from trainvitals.follow.base import FileFormat

MAGIC = b"SQLite format 3\0"
#: Rows of one question: some milliseconds.
CHUNK = 5000
#: A question takes so many seconds at most, which is looked at after so many of SQLite's operations.
_LONGEST, _OPERATIONS = 5.0, 100_000
#: A writer's lock is waited for so many seconds; the reading is tried again later anyway.
_PATIENCE = 0.25
#: A database whose writer died is copied, to be read, if it is not larger.
_MOST_COPIED = 1 << 28


class Database:
    """A database that is only read.  Raises ValueError (with SQLite's words) and OSError."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._deadline = 0.0
        # A schema may hold views that never end.
        connection.set_progress_handler(lambda: time.monotonic() > self._deadline, _OPERATIONS)

    def columns(self, table: str) -> set[str]:
        """Return the names of the columns of a table; empty, if there is none."""
        return {str(row[1]) for row in self.ask(f"PRAGMA table_info({table})")}

    def ask(self, question: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of an answer."""
        self._deadline = time.monotonic() + _LONGEST
        try:
            return self._connection.execute(question, tuple(values)).fetchall()
        except sqlite3.OperationalError as error:
            if "decode" not in str(error) or self._connection.text_factory is not str:
                raise ValueError(str(error)) from None
            # Text may be anything; but Python's own way is faster.
            self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
            return self.ask(question, values)
        except (sqlite3.Error, OverflowError) as error:
            raise ValueError(str(error)) from None

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Yield all rows of a table in the order in which they were added, many at once; each begins with its rowid.

        Columns are SQL: a text that is not cut by ``substr`` may have a gigabyte.
        """
        question = f"SELECT rowid, {', '.join(columns)} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT {CHUNK}"  # noqa: S608
        last = -(2**63)
        while found := self.ask(question, (last,)):
            yield found
            if len(found) < CHUNK:
                return
            last = found[-1][0]


class DatabaseFormat(FileFormat):
    """A format that is a database."""

    companions = ("-wal",)

    def signature(self, path: str) -> object:
        """Return what is another when the content is another.  Raises OSError.

        What is in the write-ahead log counts when the index, which is shared memory, says so; its head has the number
        of the last frame that does.
        """
        index = b""
        with contextlib.suppress(OSError), open(f"{path}-shm", "rb") as file:
            index = file.read(48)
        return index, super().signature(path)


def has_columns(head: bytes, path: str, table: str, columns: set[str], marks: Sequence[bytes]) -> bool:
    """Whether a file that begins with ``head`` is a database with such a table.

    The schema stands in the first pages, as a rule, with these ``marks``; or else in the write-ahead log, still.
    """
    if not head.startswith(MAGIC):
        return False
    if all(mark in head for mark in marks):
        return True
    try:
        with reading(path) as database:
            return database.columns(table) >= columns
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def reading(path: str) -> Iterator[Database]:
    """Open a database to read it.  Raises as :class:`Database`."""
    with open(path, "rb") as file:
        head = file.read(20)
    if not head.startswith(MAGIC):
        raise ValueError("no SQLite database")
    with contextlib.ExitStack() as stack:
        is_still, where, how = False, path, "mode=ro"
        if head[18:20] == b"\2\2":
            if not os.path.exists(f"{path}-wal"):
                # Nobody has it open, for the last one to close it removes the log.
                is_still, how = True, "mode=ro&immutable=1"
            elif os.path.exists(f"{path}-shm"):
                how = "mode=ro&readonly_shm=1"
            else:
                where = stack.enter_context(_copied(path))
        try:
            connection = sqlite3.connect(
                f"file:{quote(os.path.abspath(where))}?{how}", uri=True, timeout=_PATIENCE, isolation_level=None
            )
        except sqlite3.Error as error:
            raise ValueError(str(error)) from None
        stack.callback(connection.close)
        yield Database(connection)
        if is_still and os.path.exists(f"{path}-wal"):
            raise ValueError("opened by a writer while it was read")


@contextlib.contextmanager
def _copied(path: str) -> Iterator[str]:
    """Copy a database and the log that a dead writer left: whoever opens it must repair it, and that is not ours."""
    if os.path.getsize(path) + os.path.getsize(f"{path}-wal") > _MOST_COPIED:
        raise ValueError("its writer died, and it is too large to be copied")
    with tempfile.TemporaryDirectory(prefix="trainvitals-") as folder:
        where = os.path.join(folder, "copy.db")
        shutil.copyfile(path, where)
        shutil.copyfile(f"{path}-wal", f"{where}-wal")
        yield where
