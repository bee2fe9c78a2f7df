"""The file of a journal: opened, checked and migrated; set aside where it is damaged; never another's."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import sqlite3
import time
from collections.abc import Callable, Iterator

from trainvitals.journal.schema import SchemaError, migrate

#: What SQLite says of a file that is damaged, or none of its own (SQLITE_CORRUPT, SQLITE_NOTADB).
_DAMAGED = ("malformed", "not a database", "malformed database schema")
_DAMAGED_CODES = (11, 26)
_BESIDE = ("-wal", "-shm")
#: Seconds that a look at all pages may take; what is damaged behind them is found when it is needed.
_LONGEST_CHECK = 1.0
#: So many files that were set aside are kept, the newest.
KEPT_ASIDE = 3


class JournalError(Exception):
    """A journal that cannot be used as it is; the message is one line that names the file."""


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether an error says that the file itself is broken."""
    code = getattr(error, "sqlite_errorcode", None)  # Since Python 3.11.
    if code is not None:
        return code & 0xFF in _DAMAGED_CODES
    return isinstance(error, sqlite3.DatabaseError) and any(words in str(error) for words in _DAMAGED)


def reason(error: Exception) -> str:
    """Return what kind of error it is, for a label: ``full``, ``busy``, ``damaged``, ``newer`` or ``file``."""
    if isinstance(error, JournalError):
        return "newer"
    if isinstance(error, OSError):
        return "full" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "file"
    if isinstance(error, sqlite3.Error) and is_damaged(error):
        return "damaged"
    text = str(error)
    if "full" in text:
        return "full"
    return "busy" if "locked" in text else "file"


class Base:
    """A connection to the file at ``path``, opened when it is first needed and again when the file was replaced.

    ``patience`` is how many seconds the lock of another writer is waited for, ``tell`` takes a line about a damaged
    file, ``verify`` says whether all of it is looked at when it is opened.  Not thread-safe.
    """

    def __init__(
        self,
        path: str,
        *,
        patience: float,
        clock: Callable[[], float],
        tell: Callable[[str], None],
        verify: bool = False,
    ) -> None:
        self.path = path
        self._verify = verify
        self._patience = patience
        self._clock = clock
        self._tell = tell
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None

    def connection(self) -> sqlite3.Connection:
        """Return the connection; a damaged file is set aside first.  Raises OSError, sqlite3.Error, JournalError."""
        if self._connection is not None and _inode(self.path) != self._inode:
            # Another writer set it aside, or somebody removed it.
            self.close()
        if self._connection is None:
            try:
                self._connection = self._open()
            except sqlite3.Error as error:
                if not is_damaged(error):
                    raise
                self.set_aside(str(error))
                self._connection = self._open()
            self._inode = _inode(self.path)
        return self._connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Give a connection within a transaction.  Raises as :meth:`connection`; nothing is written then."""
        connection = self.connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        finally:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def set_aside(self, why: str) -> None:
        """Give a damaged file another name, so that a new one can begin.  Raises OSError."""
        inode = self._inode or _inode(self.path)
        self.close()
        folder = os.open(os.path.dirname(os.path.abspath(self.path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Two writers may find the same damage: the second must not set aside what the first began.
            fcntl.flock(folder, fcntl.LOCK_EX)
            if inode is None or _inode(self.path) != inode:
                return
            moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._clock()))
            aside = _free(f"{self.path}.damaged-{moment}")
            # The log first: it must never be taken for that of a new file.
            for ending in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(self.path + ending, aside + ending)
            self._tell(f"{self.path}: damaged ({why}): set aside as {aside}, a new journal begins")
            _forget_old(self.path)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection, self._inode = None, None

    def _open(self) -> sqlite3.Connection:
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), mode=0o700, exist_ok=True)
        if not os.path.exists(self.path):
            # What SQLite puts beside it gets its mode.  Never later: closing a second descriptor drops SQLite's locks.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            self.path, timeout=self._patience, isolation_level=None, check_same_thread=False, cached_statements=32
        )
        try:
            migrate(connection)
            if self._verify:
                _check_pages(connection)
            # A power cut may cost the last seconds; a killed process costs nothing.
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "journal_size_limit = 8388608"):
                connection.execute(f"PRAGMA {pragma}")
        except SchemaError as error:
            connection.close()
            raise JournalError(f"{self.path}: {error}") from None
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _check_pages(connection: sqlite3.Connection) -> None:
    """Look at the pages of a database for so long.  Raises sqlite3.Error where one is damaged."""
    deadline = time.monotonic() + _LONGEST_CHECK
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
    else:
        if found != "ok":
            raise sqlite3.DatabaseError(f"malformed: {' '.join(str(found).split())[:200]}")
    finally:
        connection.set_progress_handler(None, 0)


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _free(path: str) -> str:
    """Return a path that is not taken."""
    found, number = path, 1
    while os.path.lexists(found):
        number += 1
        found = f"{path}-{number}"
    return found


def _forget_old(path: str) -> None:
    aside = [found for found in glob.glob(f"{glob.escape(path)}.damaged-*") if not found.endswith(_BESIDE)]
    for old in sorted(aside)[:-KEPT_ASIDE]:
        for ending in ("", *_BESIDE):
            with contextlib.suppress(OSError):
                os.unlink(old + ending)
