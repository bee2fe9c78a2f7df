"""The tables of the journal, and the way from each version of them to the next.

Times are seconds since the epoch.  ``key`` is the natural key of a row (16 bytes): what is told twice is written once.
``PRAGMA user_version`` counts the migrations that were made, ``PRAGMA application_id`` says whose file it is.
"""

from __future__ import annotations

import sqlite3

APPLICATION = 0x54564A31
#: Of version n leads the n-th, counted from 0, to n + 1.  What stands here is never changed, only added to.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE runs (
            run TEXT NOT NULL, node TEXT NOT NULL, began REAL NOT NULL, seen REAL NOT NULL, state TEXT NOT NULL,
            step INTEGER, target INTEGER, framework TEXT NOT NULL, world_size INTEGER, details TEXT NOT NULL,
            PRIMARY KEY (run, node)
        ) WITHOUT ROWID""",
        """CREATE TABLE attempts (
            key BLOB PRIMARY KEY, run TEXT NOT NULL, node TEXT NOT NULL, rank INTEGER NOT NULL,
            attempt INTEGER NOT NULL, began REAL NOT NULL, seen REAL NOT NULL, ended REAL, state TEXT NOT NULL,
            first_step INTEGER, last_step INTEGER, steps INTEGER, phases TEXT NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX attempts_by_run ON attempts (run, began)",
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, run TEXT NOT NULL, kind TEXT NOT NULL,
            time REAL NOT NULL, node TEXT NOT NULL, rank INTEGER, step INTEGER, text TEXT NOT NULL,
            details TEXT NOT NULL
        )""",
        "CREATE INDEX events_by_run ON events (run, time)",
        "CREATE INDEX events_by_time ON events (time)",
        """CREATE TABLE incidents (
            id INTEGER PRIMARY KEY, run TEXT NOT NULL, attempt INTEGER NOT NULL, cause TEXT NOT NULL,
            category TEXT NOT NULL, node TEXT NOT NULL, device TEXT NOT NULL, rank INTEGER, detected REAL NOT NULL,
            last_step INTEGER, resume_step INTEGER, steps_lost INTEGER, seconds_lost REAL, seconds_to_recover REAL,
            decision TEXT NOT NULL, evidence TEXT NOT NULL, text TEXT NOT NULL, details TEXT NOT NULL
        )""",
        "CREATE INDEX incidents_by_run ON incidents (run, detected)",
    ),
)
VERSION = len(MIGRATIONS)


class SchemaError(Exception):
    """A database that is not ours to write; the message is a part of a line."""


def check(connection: sqlite3.Connection) -> int:
    """Return the version of a database, 0 for an empty one.  Raises SchemaError, sqlite3.Error."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == 0 and version == 0:
        if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
            raise SchemaError("a database, but no journal of trainvitals")
        return 0
    if application != APPLICATION:
        raise SchemaError("a database, but no journal of trainvitals")
    if version > VERSION:
        raise SchemaError(f"written by a newer trainvitals (version {version}, this one knows {VERSION})")
    return int(version)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a database to the newest version, in one transaction.  Raises SchemaError, sqlite3.Error."""
    version = check(connection)
    if version == VERSION:
        return
    if version == 0:
        # Before there is a table, or never: what is removed is given back to the file system.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another writer may have done it meanwhile.
        for statements in MIGRATIONS[check(connection) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
