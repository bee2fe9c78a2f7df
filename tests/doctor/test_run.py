"""Checks are made in processes of their own: none can delay, break or colour the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.doctor.helpers import machine
from tests.held import held, new_since

from trainvitals.doctor.base import Check, Group, Outcome, ok, problem
from trainvitals.doctor.run import examine

#: Since Python 3.12 a fork beside threads, which other tests may have left, is warned of.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def good(_):
    """Find that all is well."""
    yield ok("fine")


def bad(_):
    """Find two things."""
    yield ok("fine", subject="first")
    yield problem("broken", "repair it", "second")


def raising(_):
    """Fail after a result."""
    yield ok("fine")
    raise ValueError("a strange machine")


def hanging(_):
    """Never come back, and leave the signals that could end it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)
    yield ok("never")


def crashing(_):
    """Die without a word, as a library does that follows a bad pointer."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield ok("never")


def printing(_):
    """Print, as a library should not."""
    os.write(1, b"noise")
    os.write(2, b"noise")
    yield ok("fine")


def parent_of_a_sleeper(here):
    """Start a program and hang."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    with open(here.path("/pid"), "w") as file:
        file.write(str(child.pid))
    time.sleep(1000)
    yield ok("never")


def group(*checks):
    """Return a group of these checks, named after their functions."""
    return [Group("Group", tuple(Check(check.__name__, "", check) for check in checks))]


def test_results_come_in_the_order_of_the_table(tmp_path):
    """Whatever finishes first, the report has the order of the table."""
    rows = examine(group(bad, good), machine(tmp_path))

    assert [("bad: first", "ok"), ("bad: second", "problem"), ("good", "ok")] == [
        (row.name, row.result.outcome.value) for row in rows
    ]
    assert rows[1].result == problem("broken", "repair it", "second")


def test_a_check_that_raises_is_a_problem_and_costs_only_itself(tmp_path):
    """The error is shown in a sentence."""
    broken, fine = examine(group(raising, good), machine(tmp_path))

    assert broken.result.why == "the check failed: ValueError: a strange machine"
    assert fine.result.outcome is Outcome.OK


def test_a_check_that_hangs_is_given_up(tmp_path):
    """The others are reported, in time, and what hangs is named."""
    begun = time.monotonic()
    rows = examine(group(hanging, good), machine(tmp_path), deadline=1.0)

    assert time.monotonic() - begun < 5
    assert ["no answer within 1 s: what it reads hangs", "fine"] == [row.result.why for row in rows]
    assert rows[0].result.outcome is Outcome.PROBLEM


def test_a_check_that_crashes_is_a_problem(tmp_path):
    """A bad pointer in a vendor's library ends one check."""
    crashed, fine = examine(group(crashing, good), machine(tmp_path))

    assert crashed.result.why == "the check ended without a result: a library may have crashed"
    assert fine.result.outcome is Outcome.OK


def test_what_a_check_prints_is_not_seen(tmp_path, capfd):
    """The report alone is on standard output, so that it can be parsed."""
    examine(group(printing), machine(tmp_path))

    assert capfd.readouterr() == ("", "")


def test_what_a_check_started_ends_with_it(tmp_path):
    """No process is left behind."""
    examine(group(parent_of_a_sleeper), machine(tmp_path), deadline=3.0)

    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and _state(pid) not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def test_nothing_is_left_open(tmp_path):
    """Descriptors and children are as before."""
    examine(group(good), machine(tmp_path))
    before = held()

    examine(group(good, hanging), machine(tmp_path), deadline=0.5)

    assert new_since(before) == []
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
