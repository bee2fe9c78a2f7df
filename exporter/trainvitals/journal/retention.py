"""How long a journal remembers, and how large it may become: the oldest goes first, a little at a time."""

from __future__ import annotations

import sqlite3

#: Rows that one call removes at most: some 20 ms.
AT_ONCE = 2_000
#: Pages that one call gives back to the file system.
_PAGES = 512

_OLD = (
    "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE time < ?1 ORDER BY time LIMIT ?2)",
    "DELETE FROM attempts WHERE key IN (SELECT key FROM attempts WHERE coalesce(ended, seen) < ?1 LIMIT ?2)",
    "DELETE FROM incidents WHERE id IN (SELECT id FROM incidents WHERE detected < ?1 LIMIT ?2)",
    "DELETE FROM runs WHERE seen < ?1 AND ?2",
)
_OLDEST = "DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY time LIMIT ?)"


def prune(connection: sqlite3.Connection, oldest: float, most_bytes: int) -> bool:
    """Remove some of what was before ``oldest``, or is too much; return whether there may be more of it.

    Only entries go because of their size: runs, attempts and incidents are few.  Call it within a transaction.
    Raises sqlite3.Error.
    """
    removed = [connection.execute(statement, (oldest, AT_ONCE)).rowcount for statement in _OLD]
    is_more = max(removed) >= AT_ONCE
    # Free pages are written before the file grows.
    if (present := size(connection)) > most_bytes:
        (entries,) = connection.execute("SELECT coalesce(max(id) - min(id), 0) FROM events").fetchone()
        too_many = int(entries * (1.0 - most_bytes / present)) + 1
        is_more = connection.execute(_OLDEST, (min(too_many, AT_ONCE),)).rowcount > 0 or is_more
    return is_more


def shrink(connection: sqlite3.Connection) -> bool:
    """Give back some pages that are free; return whether there are more.  Within no transaction.  Raises sqlite3.Error.

    The pragma frees one page each time it is stepped, and only a script is stepped to its end.
    """
    connection.executescript(f"PRAGMA incremental_vacuum({_PAGES});")
    return _pragma(connection, "freelist_count") > _PAGES


def size(connection: sqlite3.Connection) -> int:
    """Return the bytes of what is in the database.  Raises sqlite3.Error."""
    pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    return pages * _pragma(connection, "page_size")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
