"""What must not break the journal: SIGKILL, a full disk, damage, two writers at once, another version."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.held import held, new_since

from trainvitals.journal import Entry, Journal, JournalError, base, schema, write
from trainvitals.journal import store as stores

#: Writes until it is killed; says of each incident and entry that it is written.
_WRITER = """
import sys
from trainvitals.journal import Journal
path, name, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
journal = Journal(path)
for number in range(first, first + 100_000):
    journal.record_incident(name, "killed", attempt=number, key=str(number), last_step=number)
    told = journal.record("checkpoint", name, step=number, text="x" * (number % 700), key=str(number))
    print(number if told and not journal.waiting else -1, flush=True)
"""


def writer(path: Path, name: str, first: int = 0) -> subprocess.Popen:
    """Start a process that writes."""
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), name, str(first)], stdout=subprocess.PIPE, text=True
    )


def numbers(process: subprocess.Popen, count: int) -> list[int]:
    """Return what a writer said until so many rows were written; -1 is one that waits."""
    said: list[int] = []
    while len(said) - said.count(-1) < count:
        said.append(int(process.stdout.readline()))
    return said


def kill(process: subprocess.Popen) -> list[int]:
    """Kill a writer with SIGKILL; return what it said meanwhile."""
    process.send_signal(signal.SIGKILL)
    rest = [int(line) for line in process.stdout.read().split("\n")[:-1]]
    process.wait()
    process.stdout.close()
    return rest


def whole(path: Path) -> str:
    """Return what SQLite says of the whole file."""
    connection = sqlite3.connect(path)
    (found,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    return found


def test_whoever_is_killed_loses_nothing_that_was_written(tmp_path):
    """Killed at a random moment again and again: what was said to be written is there, once, and the file is whole."""
    path, lucky = tmp_path / "journal.db", random.Random(8)
    expected: list[int] = []
    for _ in range(12):
        first = len(expected)
        process = writer(path, "llama", first)
        said = numbers(process, lucky.randrange(1, 60))
        said += kill(process)
        assert said == list(range(first, first + len(said)))
        expected += said

    assert "ok" == whole(path)
    journal = Journal(str(path))
    found = [incident.attempt for incident in journal.incidents("llama")]
    steps = [entry.step for entry in journal.events("llama")]
    # A row may have been written and not told of any more.
    assert set(expected) <= set(found)
    assert set(expected) <= set(steps)
    assert len(found) == len(set(found))
    assert len(steps) == len(set(steps))
    assert {} == journal.errors
    journal.close()


def test_two_writers_wait_for_each_other(tmp_path):
    """Two processes write at once, one of them is killed: each has all of its rows."""
    path = tmp_path / "journal.db"
    one, other = writer(path, "one"), writer(path, "other")
    said_one = numbers(one, 150)
    said_one += kill(one)
    said_other = numbers(other, 150)
    said_other += kill(other)

    journal = Journal(str(path))
    for name, said in (("one", said_one), ("other", said_other)):
        # On a disk that stands still for seconds a row waits in memory, and is written with the next.
        assert len(set(said) - {-1}) >= 150
        assert set(said) - {-1} <= {incident.attempt for incident in journal.incidents(name)}
    journal.close()
    assert "ok" == whole(path)


def test_a_lock_that_is_held_is_waited_for_and_then_tried_again(tmp_path):
    """Who has little patience keeps its rows and writes them when the lock is free."""
    told = []
    journal = Journal(str(tmp_path / "journal.db"), patience=0.01, tell=told.append)
    other = sqlite3.connect(journal.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    assert not journal.record("note", "llama", text="first")
    assert not journal.record("note", "llama", text="second")
    assert (2, {"busy": 2}, 1) == (journal.waiting, dict(journal.errors), len(told))
    other.execute("COMMIT")
    other.close()

    assert journal.flush()
    assert ["first", "second"] == [entry.text for entry in journal.events("llama")]
    journal.close()


_FULL = """
import json, resource, sys
from trainvitals.journal import Journal
told = []
journal = Journal(sys.argv[1], tell=told.append)
journal.record("note", "llama", text="before")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
import os
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(sys.argv[1] + "-wal") + 20_000, hard))
for number in range(400):
    journal.record("note", "llama", step=number, text="x" * 500)
incident = journal.record_incident("llama", "disk", key="1")
full = (journal.waiting, sum(journal.errors.values()), len(told))
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
ok = journal.flush()
print(json.dumps([full, ok, journal.waiting, journal.dropped, [e.step for e in journal.events("llama")],
                  len(journal.incidents()), told]))
"""


def test_a_file_that_cannot_grow_keeps_rows_in_memory(tmp_path):
    """Writes fail, are counted and told in one line, and succeed as soon as there is room."""
    path = tmp_path / "journal.db"
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(path)], capture_output=True, text=True, check=True, timeout=300
    )

    (waiting, errors, lines), ok, left, dropped, steps, incidents, told = json.loads(done.stdout)
    assert waiting > 300
    assert errors > 300
    assert (1, True, 0, 0) == (lines, ok, left, dropped)
    assert [None, *range(400)] == steps
    assert 1 == incidents
    assert f"{path}: cannot be written (" in told[0]
    assert "\n" not in told[0]
    assert "ok" == whole(path)


_TINY = """
set -e
mount -t tmpfs -o size=400k none "$1"
exec "$2" -c '
import json, os, sys
from trainvitals.journal import Journal
told = []
folder = sys.argv[1]
journal = Journal(folder + "/journal.db", tell=told.append)
for number in range(400):
    journal.record("note", "llama", step=number, text="x" * 600, details={"more": "y" * 500})
full = (journal.waiting, dict(journal.errors), len(told))
os.system("mount -o remount,size=8m " + folder)
print(json.dumps([full, journal.flush(), [e.step for e in journal.events("llama")] == list(range(400))]))
' "$1"
"""


def test_a_full_disk_keeps_rows_in_memory(tmp_path):
    """The same on a file system of 400 KiB, which is made larger then."""
    if subprocess.run(["unshare", "-Urm", "true"], check=False).returncode:
        pytest.skip("this machine lets nobody mount a file system of his own")
    folder = tmp_path / "tiny"
    folder.mkdir()
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", _TINY, "sh", str(folder), sys.executable],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    if "mount:" in done.stderr:
        pytest.skip("this machine lets nobody mount a file system of his own")

    (waiting, errors, lines), ok, is_all = json.loads(done.stdout)
    assert waiting > 50
    assert ["full"] == list(errors)
    assert (1, True, True) == (lines, ok, is_all)


def test_what_waits_is_bounded(tmp_path, monkeypatch):
    """The oldest rows go when memory would fill up, and are counted; incidents have room of their own."""
    monkeypatch.setattr(stores, "MOST_WAITING", 10)
    folder = tmp_path / "file"
    folder.write_text("a file stands where the folder should be")
    journal = Journal(str(folder / "journal.db"), tell=lambda _: None)
    incident = journal.record_incident("llama", "killed", key="1")
    for number in range(25):
        journal.record("note", "llama", step=number)
    assert (11, 15) == (journal.waiting, journal.dropped)
    folder.unlink()

    assert list(range(15, 25)) == [entry.step for entry in journal.events("llama")]
    assert [incident] == [found.id for found in journal.incidents()]
    journal.close()


@pytest.mark.parametrize("how", ["no database", "a page", "cut off", "empty"])
def test_a_damaged_file_is_set_aside_and_a_new_one_begins(tmp_path, how):
    """It keeps its content under another name, in one line; a file without a byte is merely new."""
    path, told = tmp_path / "journal.db", []
    journal = Journal(str(path))
    for number in range(2000):
        journal.record("note", "llama", step=number, text="x" * 200)
    journal.close()
    data = path.read_bytes()
    broken = {
        "no database": b"hello" * 1000,
        "a page": data[:8192] + b"\xff" * 8192 + data[16384:],
        "cut off": data[: len(data) // 2],
        "empty": b"",
    }[how]
    path.write_bytes(broken)

    journal = Journal(str(path), tell=told.append, verify=True, clock=lambda: 0.0)
    assert journal.record("note", "llama", text="after")

    assert ["after"] == [entry.text for entry in journal.events("llama")]
    journal.close()
    aside = tmp_path / "journal.db.damaged-19700101T000000"
    if how == "empty":
        assert [] == told
    else:
        assert broken == aside.read_bytes()
        (line,) = told
        assert line.startswith(f"{path}: damaged (")
        assert line.endswith(f"): set aside as {aside}, a new journal begins")


def test_damage_under_the_hands_of_two_writers_is_set_aside_once(tmp_path):
    """The second to find it takes the new file, and what was waiting is written there."""
    path, told = tmp_path / "journal.db", []
    one, other = (Journal(str(path), tell=told.append) for _ in range(2))
    one.record("note", "llama", text="lost")
    one._base.set_aside("test")
    assert other.record("note", "llama", text="from the other")
    assert one.record("note", "llama", text="from the one")

    assert ["from the other", "from the one"] == [entry.text for entry in one.events("llama")]
    other._base.set_aside("test")
    one._base._inode = (0, 0)
    one._base.set_aside("not the file that was damaged")
    assert 2 == len(told)
    one.close()
    other.close()


def test_only_the_newest_damaged_files_are_kept(tmp_path):
    """A disk that damages all must not fill up with what it damaged."""
    path, now = tmp_path / "journal.db", [0.0]
    for number in range(base.KEPT_ASIDE + 3):
        now[0] = 3600.0 * number
        path.write_bytes(b"damaged %d" % number * 1000)
        Journal(str(path), clock=lambda: now[0], tell=lambda _: None).close()

    assert base.KEPT_ASIDE == len(list(tmp_path.glob("*.damaged-*")))
    assert (tmp_path / "journal.db.damaged-19700101T050000").exists()


def test_a_file_that_is_removed_begins_anew(tmp_path):
    """Rows go where the name leads, not into a file that has none."""
    path = tmp_path / "journal.db"
    journal = Journal(str(path))
    journal.record("note", "llama", text="gone")
    for beside in tmp_path.iterdir():
        beside.unlink()

    assert journal.record("note", "llama", text="here")
    assert ["here"] == [entry.text for entry in Journal(str(path)).events("llama")]
    journal.close()


def test_an_older_version_is_brought_forward(tmp_path, monkeypatch):
    """Each migration runs once, in order, and rows stay."""
    path = tmp_path / "journal.db"
    journal = Journal(str(path))
    journal.record("note", "llama", text="old")
    journal.close()
    more = (("ALTER TABLE events ADD COLUMN color TEXT",), ("UPDATE events SET color = 'blue'",))
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, *more))
    monkeypatch.setattr(schema, "VERSION", len(schema.MIGRATIONS))

    journal = Journal(str(path))

    assert [("old", "blue")] == journal._ask("SELECT text, color FROM events", ())
    assert [(schema.VERSION,)] == journal._ask("PRAGMA user_version", ())
    journal.close()


def test_a_migration_that_fails_leaves_all_as_it_was(tmp_path, monkeypatch):
    """A half of a migration is none."""
    path = tmp_path / "journal.db"
    Journal(str(path)).close()
    bad = ("ALTER TABLE events ADD COLUMN color TEXT", "INSERT INTO nowhere VALUES (1)")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, bad))
        patch.setattr(schema, "VERSION", len(schema.MIGRATIONS))
        journal = Journal(str(path), tell=lambda _: None)
        assert {"file": 1} == journal.errors
        journal.close()

    assert Journal(str(path)).record("note", "llama", text="still works")


def test_a_newer_version_is_refused_in_one_line(tmp_path):
    """What an older program would write into it could be wrong."""
    path = tmp_path / "journal.db"
    Journal(str(path)).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(JournalError) as caught:
        Journal(str(path))

    assert f"{path}: written by a newer trainvitals (version 99, this one knows {schema.VERSION})" == str(caught.value)


def test_a_database_of_somebody_else_is_left_alone(tmp_path):
    """A wrong path must not cost anybody his tables."""
    path = tmp_path / "journal.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()

    with pytest.raises(JournalError, match="a database, but no journal of trainvitals"):
        Journal(str(path))

    connection = sqlite3.connect(path)
    assert [("mine",)] == connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()


def test_retention_removes_the_oldest_a_little_at_a_time(tmp_path):
    """What is too old goes, then the oldest entries where the file is too large; incidents stay."""
    journal = Journal(str(tmp_path / "journal.db"), clock=lambda: 10_000.0)
    journal.extend([write.entry(Entry(kind="note", run="llama", time=t, text="x" * 500), "n1") for t in range(9000)])
    journal.record_incident("llama", "killed", detected=9_999.0)
    journal.record_incident("llama", "killed", detected=1.0)

    calls = 1
    while journal.prune(5000.0, 10**9):
        calls += 1
    assert {} == journal.errors
    assert 3 <= calls < 6
    assert 5000.0 == journal.events("llama")[0].time
    assert [9_999.0] == [incident.detected for incident in journal.incidents()]
    while journal.prune(5000.0, 800_000):
        pass
    assert 100_000 < journal.size() <= 800_000
    assert 8999.0 == journal.events("llama")[-1].time
    journal.close()
    assert os.path.getsize(journal.path) < 3_000_000


def test_descriptors_do_not_leak(tmp_path):
    """A hundred journals that were closed leave no descriptor open."""
    Journal(str(tmp_path / "journal.db")).close()
    before = held()
    for _ in range(100):
        journal = Journal(str(tmp_path / "journal.db"))
        journal.record("note", "llama")
        journal.close()

    assert new_since(before) == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (sqlite3.DatabaseError("database disk image is malformed"), "damaged"),
        (sqlite3.DatabaseError("file is not a database"), "damaged"),
        (sqlite3.OperationalError("database or disk is full"), "full"),
        (sqlite3.OperationalError("database is locked"), "busy"),
        (sqlite3.OperationalError("disk I/O error"), "file"),
        (OSError(28, "No space left on device"), "full"),
        (PermissionError(13, "Permission denied"), "file"),
        (JournalError("newer"), "newer"),
    ],
)
def test_errors_have_reasons_without_their_codes_too(error, expected):
    """Codes of SQLite came with Python 3.11; before, its words must do."""
    assert expected == base.reason(error)
