"""The checks of the logs that are followed."""

from __future__ import annotations

import os
import sys
import time

import pytest
from tests.doctor.helpers import machine, only, outcomes, settings

from trainvitals.doctor import logs as checks
from trainvitals.doctor.base import Outcome

LINE = "iter {}: loss 2.5000, time 250.00ms, mfu 31.00%\n"


def check(tmp_path, *paths, **more):
    """Return the results for sources."""
    return list(checks.sources(machine(tmp_path, settings=settings(sources={"paths": paths, **more}))))


def log(path, steps=7, age=300.0):
    """Write a log that grew so many seconds ago."""
    path.write_text("".join(map(LINE.format, range(1, steps + 1))))
    os.utime(path, (time.time() - age, time.time() - age))
    return str(path)


def test_no_source_is_no_fault(tmp_path):
    """Most nodes follow no log."""
    assert Outcome.ABSENT is only(check(tmp_path)).outcome
    assert Outcome.ABSENT is only(checks.positions(machine(tmp_path))).outcome


def test_a_source_says_its_format_and_its_newest_step(tmp_path):
    """And when it grew."""
    result = only(check(tmp_path, log(tmp_path / "a.log")))

    assert Outcome.OK is result.outcome
    assert "1 log: nanogpt; the newest grew 5 minutes ago, its newest step is 7" == result.why
    assert str(tmp_path / "a.log") == result.subject


def test_of_a_folder_the_newest_counts(tmp_path):
    """What is too old is counted."""
    log(tmp_path / "a.log", 5, 7200.0)
    log(tmp_path / "b.log", 9, 10.0)
    log(tmp_path / "c.log", 3, 10 * 86400.0)

    why = only(check(tmp_path, str(tmp_path))).why

    assert why.startswith("2 logs: nanogpt; the newest grew 10 seconds ago, its newest step is 9; passed over: 1 old")


def test_the_time_of_a_step_is_that_of_the_log(tmp_path):
    """A log that was copied is as old as its steps."""
    path = tmp_path / "log.jsonl"
    now = time.time()
    path.write_text("".join(f'{{"step": {n}, "loss": 2.5, "time": {now - 7200 + n}}}\n' for n in range(1, 9)))

    assert "its newest step is 8 of 2 hours ago" in only(check(tmp_path, str(path))).why


def test_a_time_in_the_future_is_said(tmp_path):
    """A clock is wrong."""
    result = only(check(tmp_path, log(tmp_path / "a.log", age=-7200.0)))

    assert "the newest grew in the future, by 2 hours: a clock is wrong" in result.why


@pytest.mark.parametrize(
    ("name", "outcome", "words"),
    [
        ("missing.log", Outcome.PROBLEM, "not there"),
        ("*.csv", Outcome.ABSENT, "no log is there yet"),
        ("empty", Outcome.ABSENT, "no log is there yet"),
        ("old.log", Outcome.ABSENT, "older than sources.keep"),
    ],
)
def test_what_is_not_there(tmp_path, name, outcome, words):
    """A pattern or a folder may get its logs later."""
    (tmp_path / "empty").mkdir()
    log(tmp_path / "old.log", age=9 * 86400.0)

    result = only(check(tmp_path, str(tmp_path / name)))

    assert outcome is result.outcome
    assert words in result.why


def test_an_unknown_format_is_said(tmp_path):
    """It is read for errors alone, which may be all that is wanted."""
    (tmp_path / "notes.txt").write_text("hello\n" * 9)

    result = only(check(tmp_path, str(tmp_path / "notes.txt")))

    assert Outcome.OK is result.outcome
    assert "no format is known in" in result.why
    assert f"trainvitals follow --once {tmp_path}/notes.txt" == result.action


def test_a_format_that_does_not_exist_is_a_problem(tmp_path):
    """The exporter would not start with it."""
    results = check(tmp_path, {"path": log(tmp_path / "a.log"), "format": "megatronlm"})

    assert Outcome.PROBLEM is only(results).outcome
    assert "did you mean megatron?" in only(results).why


def test_a_library_that_is_missing_is_a_problem(tmp_path, monkeypatch):
    """With the command that installs it."""
    (tmp_path / "run").mkdir()
    from tests.follow.binary import scalar, version

    data = version() + scalar(3, "train/loss", 2.5)
    (tmp_path / "run" / "events.out.tfevents.1772000000.node.11.0").write_bytes(data)
    monkeypatch.setitem(sys.modules, "google_crc32c", None)

    result = only(check(tmp_path, str(tmp_path / "run")))

    assert (Outcome.PROBLEM, "pip install 'trainvitals[logs]'") == (result.outcome, result.action)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every file")
def test_a_log_that_may_not_be_read_is_a_problem(tmp_path):
    """With the command that lets us."""
    path = log(tmp_path / "a.log")
    os.chmod(path, 0)

    assert Outcome.PROBLEM is only(check(tmp_path, path)).outcome


def test_a_log_that_cannot_be_opened_is_a_problem(tmp_path, monkeypatch):
    """Whoever the user is."""
    path = log(tmp_path / "a.log")
    monkeypatch.setattr(checks, "_can_read", lambda _: False)

    result = only(check(tmp_path, path))

    assert Outcome.PROBLEM is result.outcome
    assert f"may not read 1 of 1 logs: {path}" in result.why
    assert result.action.startswith("setfacl -m u:")


def test_the_file_of_the_positions_must_have_a_place(tmp_path):
    """A folder that can be made is one; a file in its place is none."""
    (tmp_path / "file").write_text("")
    found = {}
    for name in ("new/state", "file/state", "."):
        values = settings(sources={"paths": ["/x"], "state_folder": str(tmp_path / name)})
        found[name] = only(checks.positions(machine(tmp_path, settings=values))).outcome.value

    assert {"new/state": "ok", "file/state": "problem", ".": "ok"} == found


def test_each_source_has_a_line(tmp_path):
    """By its path."""
    good, bad = log(tmp_path / "a.log"), str(tmp_path / "b.log")

    assert {good: "ok", bad: "problem"} == outcomes(check(tmp_path, good, bad))
