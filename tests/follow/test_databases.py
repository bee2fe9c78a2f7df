"""Databases of MLflow and Trackio, and MLflow's folders: values, runs, and that nothing of the user's is touched."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import subprocess
import sys
import threading

import pytest
from tests.follow.binary import MLFLOW_SCHEMA, START, write_mlflow, write_mlflow_folder, write_trackio
from tests.follow.helpers import LOGS, items_of

from trainvitals.follow import sqlite
from trainvitals.follow.base import Facts, Row
from trainvitals.follow.follower import Follower
from trainvitals.follow.formats.mlflow import MLflow, MLflowFolder
from trainvitals.follow.formats.trackio import Trackio
from trainvitals.follow.sources import Source

RUN = "0123456789abcdef0123456789abcdef"


def follow(path):
    """Return a function that polls a path: steps and results of each run."""
    clock = iter(range(2_000_000_000, 2_100_000_000, 3600))
    follower = Follower([Source(str(path))], rate=math.inf, clock=lambda: float(next(clock)))

    def poll():
        return {
            run.name: [(step.step, step.values.get("loss")) for step in run.steps]
            for run in follower.poll()
            if run.steps
        }

    poll.follower = follower
    return poll


# Values --------------------------------------------------------------------------------------------------------------


def test_mlflow():
    """Runs that go on at once are told apart; values of one step are one row; a late value is no restart."""
    found = items_of(LOGS / "mlflow/mlflow.db")
    start = found.index(Facts(run="tuning/low", started=START))
    other = found.index(Facts(run="tuning/low-bbbbbbbb", started=START + 0.5))

    assert found[start + 1 : other] == [
        Row(0, {"loss": 2.0, "learning_rate": 0.00390625}, START + 0.001),
        Row(100, {"loss": 1.75, "learning_rate": 0.0078125}, START + 1.001),
        found[start + 3],
        Row(200, {"loss": 1.75}, START + 2.003, split="validation"),
    ]
    last = found[start + 3]
    assert (last.step, last.values["loss"], last.values["big"]) == (200, 1.5, math.inf)
    assert math.isnan(last.values["grad_norm"])
    assert found[other + 1] == Row(0, {"loss": 2.5, "learning_rate": 0.50390625}, START + 0.501 - 0.5)
    assert found[other + 3 :] == [
        Facts(run="tuning/low"),
        Row(None, {"best": 0.5}, START + 2.004),
        Facts(target_steps=300),
        Facts(finished=START + 9),
        Facts(run="tuning/low-bbbbbbbb"),
        Row(200, {"loss": 2.0, "learning_rate": 0.51171875}, START + 2.001),
    ]


def test_mlflow_folder():
    """Values of one step are one row, though each name has a file."""
    first, *rows, target, end = items_of(LOGS / f"mlflow-files/{RUN}")

    assert (first, target, end) == (Facts(started=START), Facts(target_steps=200), Facts(finished=1772000009.5))
    assert rows[0] == Row(0, {"learning_rate": 0.5, "loss": 3.5}, 1772000001.0)
    assert (rows[1].step, math.isnan(rows[1].values["loss"]), rows[1].values["learning_rate"]) == (100, True, 0.25)
    assert rows[2:] == [
        Row(200, {"loss": math.inf}, 1772000003.0),
        Row(200, {"loss": 3.25}, 1772000003.5, split="validation"),
    ]


def test_trackio():
    """Two runs of one name are told apart; words of NaN are numbers."""
    found = items_of(LOGS / "trackio/tiny.db")

    assert found[:2] == [Facts(run="tiny"), Row(0, {"loss": 2.5, "learning_rate": 0.001}, START)]
    assert math.isnan(found[2].values["loss"])
    assert (found[2].step, found[2].values["inner/x"], found[2].time) == (1, 1.5, START + 1)
    assert found[3:6] == [
        Row(2, {"loss": 2.25}, START + 2, split="validation"),
        Facts(run="tiny-other678"),
        Row(0, {"loss": 3.0, "learning_rate": 0.001}, START),
    ]
    assert found[-4:] == [Facts(run="tiny"), Facts(target_steps=90), Facts(run="tiny-other678"), Facts(target_steps=90)]


def test_trackio_before_runs_had_an_identity():
    """Their name is enough then."""
    found = items_of(LOGS / "trackio/old.db")

    assert found[:2] == [Facts(run="tiny"), Row(0, {"loss": 2.5, "learning_rate": 0.001}, START)]
    assert found[-1] == Facts(target_steps=90)


def test_deleted_runs_are_left_out(tmp_path):
    """What MLflow shows no more is no run."""
    path = tmp_path / "mlflow.db"
    write_mlflow(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid LIKE 'a%'")
    connection.close()

    assert {item.run for item in MLflow().read(str(path)) if isinstance(item, Facts)} - {""} == {"tuning/low"}


# Live ----------------------------------------------------------------------------------------------------------------


def test_a_database_that_grows(tmp_path):
    """What is new comes once, of each run."""
    path = tmp_path / "mlflow.db"
    write_mlflow(path)
    poll = follow(path)
    name = f"{tmp_path.name}/mlflow/tuning/low"
    assert poll() == {
        name: [(0, 2.0), (100, 1.75), (200, 1.5), (200, None)],
        f"{name}-bbbbbbbb": [(0, 2.5), (100, 2.25), (200, 2.0)],
    }
    assert poll() == {}
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO metrics VALUES ('train/loss', 1.25, 1772000009000, ?, 300, 0)", ("b" * 32,))
    connection.close()

    assert poll() == {f"{name}-bbbbbbbb": [(300, 1.25)]}
    assert poll() == {}


def test_a_folder_that_grows(tmp_path):
    """A metric that grew is found, though the folder itself did not change."""
    write_mlflow_folder(tmp_path / RUN)
    poll = follow(tmp_path)
    assert poll() == {RUN: [(0, 3.5), (100, pytest.approx(math.nan, nan_ok=True)), (200, math.inf)]}
    with (tmp_path / RUN / "metrics/train/loss").open("a") as file:
        file.write("1772000009000 2.5 300\n1772000009100 2.25 40")

    assert poll() == {RUN: [(300, 2.5)]}


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_read_while_it_is_written(tmp_path, mode):
    """A writer is never refused, and all its steps come once and in order."""
    path = tmp_path / "tiny.db"
    writer = sqlite3.connect(path, timeout=0.5, check_same_thread=False)
    writer.execute(f"PRAGMA journal_mode = {mode}")
    writer.execute(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, "
        "step INTEGER NOT NULL, metrics TEXT NOT NULL)"
    )
    insert = "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES ('2026-02-25T06:13:20', 'one', ?, ?)"
    writer.execute(insert, (0, '{"loss": 1.0}'))
    writer.commit()
    problems = []

    def write():
        for step in range(1, 300):
            try:
                writer.execute(insert, (step, f'{{"loss": {step}.5}}'))
                writer.commit()
            except sqlite3.Error as error:
                problems.append(error)

    thread = threading.Thread(target=write)
    poll, found = follow(path), []
    thread.start()
    while thread.is_alive():
        found += poll().get(f"{tmp_path.name}/tiny/one", [])
    thread.join()
    found += poll().get(f"{tmp_path.name}/tiny/one", [])
    writer.close()

    assert problems == []
    assert found == [(0, 1.0), *((step, step + 0.5) for step in range(1, 300))]


# What is the user's --------------------------------------------------------------------------------------------------


def listing(folder):
    """Return names, sizes and times of the files of a folder."""
    return sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(folder))


def test_nothing_is_left_beside_a_database(tmp_path):
    """Neither a log nor shared memory is made where there is none, with a log (WAL) in the header or not."""
    write_mlflow(tmp_path / "mlflow.db")
    write_trackio(tmp_path / "tiny.db")
    with sqlite3.connect(tmp_path / "tiny.db") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    before = listing(tmp_path)

    assert list(MLflow().read(str(tmp_path / "mlflow.db")))
    assert list(Trackio().read(str(tmp_path / "tiny.db")))

    assert [name for name, _, _ in before] == ["mlflow.db", "tiny.db"]
    assert listing(tmp_path) == before


def test_a_database_whose_writer_died(tmp_path):
    """What stands in the log only is read, from a copy: to repair it is not ours."""
    path = tmp_path / "tiny.db"
    write_trackio(path)
    program = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA journal_mode = WAL'); c.execute("
        "\"INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES ('first', '', 'tiny', 9, "
        '\'{\\"loss\\": 0.5}\')"); c.commit(); os._exit(0)'
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    (tmp_path / "tiny.db-shm").unlink()
    before = listing(tmp_path)

    rows = [item for item in Trackio().read(str(path)) if isinstance(item, Row)]

    assert (rows[-1].step, rows[-1].values) == (9, {"loss": 0.5})
    assert [name for name, _, _ in before] == ["tiny.db", "tiny.db-wal"]
    assert listing(tmp_path) == before


def test_a_large_one_whose_writer_died_is_an_error(tmp_path, monkeypatch):
    """It is not copied."""
    path = tmp_path / "tiny.db"
    write_trackio(path)
    data = bytearray(path.read_bytes())
    data[18:20] = b"\2\2"
    path.write_bytes(data)
    (tmp_path / "tiny.db-wal").write_bytes(b"x")
    monkeypatch.setattr(sqlite, "_MOST_COPIED", 1000)

    with pytest.raises(ValueError, match="too large"):
        list(Trackio().read(str(path)))


def test_a_writer_that_holds_it_is_waited_for_shortly(tmp_path):
    """It is an error of this reading, which is tried again."""
    path = tmp_path / "mlflow.db"
    write_mlflow(path)
    with sqlite3.connect(path, isolation_level=None) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ValueError, match="locked"):
            list(MLflow().read(str(path)))
        writer.execute("ROLLBACK")
    writer.close()

    assert list(MLflow().read(str(path)))


# Hostile input -------------------------------------------------------------------------------------------------------


def test_columns_may_hold_anything(tmp_path):
    """SQLite keeps any type in any column; what is no number of a step costs itself."""
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(MLFLOW_SCHEMA)
        connection.execute(
            "INSERT INTO runs VALUES ('a', CAST(x'ff41' AS TEXT), 'RUNNING', 'soon', NULL, 'active', NULL)"
        )
        insert = "INSERT INTO metrics VALUES (?, ?, ?, 'a', ?, 0)"
        for row in (
            ("loss", 1.5, 1772000001000, 1),
            ("loss", "words", 1772000001000, 2),
            ("loss", 1.5, 1772000001000, "three"),
            (b"loss", 1.5, 1772000001000, 4),
            ("loss", b"\xff", 1772000001000, 5),
            ("x" * 1000, 1.5, 1772000001000, 6),
            ("loss", 2.5, 2**62, 2**62),
        ):
            connection.execute(insert, row)
    connection.close()

    assert [item for item in MLflow().read(str(path)) if isinstance(item, Row)] == [
        Row(1, {"loss": 1.5}, 1772000001.0),
        Row(2**62, {"loss": 2.5}, None),
    ]


def test_a_table_without_an_end_is_an_error(tmp_path, monkeypatch):
    """A view may go on for ever: it is given up."""
    monkeypatch.setattr(sqlite, "_LONGEST", 0.1)
    path = tmp_path / "tiny.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE n(step) AS (SELECT 1 UNION ALL SELECT step + 1 FROM n) "
            "SELECT step AS rowid, 'a' AS run_name, '' AS timestamp, step, '{}' AS metrics FROM n"
        )
    connection.close()

    with pytest.raises(ValueError, match="interrupted"):
        list(Trackio().read(str(path)))


def test_huge_texts_are_cut_by_the_database(tmp_path):
    """A step with a megabyte of JSON costs itself."""
    path = tmp_path / "tiny.db"
    write_trackio(path)
    with sqlite3.connect(path) as connection:
        insert = "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES ('first', '', 'tiny', ?, ?)"
        connection.execute(insert, (8, '{"loss": 1.5, "words": "' + "x" * 1_000_000 + '"}'))
        connection.execute(insert, (9, '{"loss": 2.5}'))
    connection.close()

    rows = [item for item in Trackio().read(str(path)) if isinstance(item, Row)]

    assert [row.step for row in rows if row.values.get("loss") in {1.5, 2.5} and row.step > 5] == [9]


@pytest.mark.parametrize("text", ["", "[]", "{", "a: [", "status: !!python/object:os.system {}"])
def test_a_damaged_meta_is_an_error_of_the_run(tmp_path, text):
    """It may be in the middle of being written: the core tries again."""
    folder = tmp_path / RUN
    shutil.copytree(LOGS / f"mlflow-files/{RUN}", folder)
    (folder / "meta.yaml").write_text(text)

    with pytest.raises(ValueError, match=r"meta\.yaml"):
        list(MLflowFolder().read(str(folder)))


def test_odd_lines_of_a_metric_are_left_out(tmp_path):
    """What is no number of a step costs itself."""
    write_mlflow_folder(tmp_path / RUN)
    (tmp_path / RUN / "metrics/train/loss").write_bytes(
        b"\xff\n1 2 3 4 5\nx y z\n1772000001000 2.5 7\n" + b"9" * 5000 + b" 1 1\n"
    )

    rows = [item for item in MLflowFolder().read(str(tmp_path / RUN)) if isinstance(item, Row)]

    assert [(row.step, row.values["loss"]) for row in rows if "loss" in row.values and not row.split] == [(7, 2.5)]
