"""Running vendors' tools: whatever they do, it ends in time and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from tests.devices.helpers import wait_until

from trainvitals.devices.tools import FAILED, MISSING, TIMED_OUT, Runner


@pytest.fixture
def tool(tmp_path):
    """Return a function that writes a tool of the name ``smi`` and returns who runs it."""

    def write(script, **options):
        path = tmp_path / "bin" / "smi"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return Runner([str(path.parent)], environ={"PATH": "/usr/bin:/bin"}, **options)

    return write


def test_what_a_tool_prints_is_its_answer(tool):
    """Both outputs, in English, with its arguments as they are and nothing to read."""
    run = tool('echo "$1|$LC_ALL|$LANG"; echo no >&2; cat')

    answer = run(["smi", "a b;c"])

    assert (answer.text, answer.reason) == ("a b;c|C|C\nno\n", "")


def test_a_tool_that_is_not_there_is_missing(tool):
    """It is no failure."""
    answer = tool("true")(["other-smi"])

    assert (answer.text, answer.reason, answer.seconds) == ("", MISSING, 0.0)


def test_a_tool_that_fails_keeps_its_text(tool):
    """The error stands there."""
    answer = tool("echo ret is -8005; exit 3")(["smi"])

    assert (answer.text, answer.reason) == ("ret is -8005\n", FAILED)


def test_a_tool_for_another_machine_has_failed(tool, tmp_path):
    """It cannot even be started."""
    run = tool("true")
    (tmp_path / "bin" / "smi").write_bytes(b"\x7fELF nonsense")

    assert run(["smi"]).reason == FAILED


def test_a_tool_that_hangs_is_killed_with_what_it_has_started(tool, tmp_path):
    """What it said before is kept, and no process is left."""
    run = tool(f"echo half; sleep 1000 & echo $! > {tmp_path}/pid; wait", timeout=0.5)

    begun = time.monotonic()
    answer = run(["smi"])

    assert (answer.text, answer.reason) == ("half\n", TIMED_OUT)
    assert time.monotonic() - begun < 5
    left = int((tmp_path / "pid").read_text())
    wait_until(lambda: not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE)


def test_a_tool_that_closes_its_output_and_stays_is_killed(tool):
    """The end of its output is not its own."""
    run = tool("echo said; exec >&- 2>&-; sleep 1000", timeout=0.5)

    assert run(["smi"]).reason == TIMED_OUT


def test_what_a_tool_leaves_behind_is_killed(tool, tmp_path):
    """A helper that goes on in the background is not waited for longer than the time, and ends."""
    run = tool(f"sleep 1000 > /dev/null 2>&1 & echo $! > {tmp_path}/pid; echo done")

    assert run(["smi"]).text == "done\n"
    left = int((tmp_path / "pid").read_text())
    wait_until(lambda: not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE)


def test_output_without_end_is_cut(tool):
    """Memory is bounded, and so is time."""
    run = tool("exec yes", timeout=0.3, most=1000)

    answer = run(["smi"])

    assert (len(answer.text), answer.reason) == (1000, TIMED_OUT)


def test_bytes_that_are_no_text_are_replaced(tool):
    """A broken tool costs no more than its answer."""
    assert tool(r"printf 'a\377b'")(["smi"]).text == "a\ufffdb"


def test_a_tool_that_cannot_be_killed_is_not_started_again(tool, tmp_path, monkeypatch):
    """One process in the hands of the kernel is enough; when it has gone, the tool runs again."""
    run = tool(f"echo x >> {tmp_path}/starts; sleep 1000", timeout=0.2)
    monkeypatch.setattr(os, "killpg", lambda pid, _: kept.append(pid))
    kept: list[int] = []

    answers = [run(["smi"]).reason, run(["smi"]).reason]

    assert answers == [TIMED_OUT, TIMED_OUT]
    assert (tmp_path / "starts").read_text() == "x\n"
    monkeypatch.undo()
    os.killpg(kept[0], signal.SIGKILL)
    wait_until(lambda: run(["smi"]).seconds > 0)
    assert (tmp_path / "starts").read_text() == "x\nx\n"


def test_a_tool_ends_with_who_runs_it(tool, tmp_path):
    """A reading process that is killed leaves no tool in the driver."""
    tool(f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 1000")
    script = f"from trainvitals.devices.tools import Runner; Runner([{str(tmp_path / 'bin')!r}], timeout=900)(['smi'])"
    reader = subprocess.Popen([sys.executable, "-c", script])
    wait_until((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())

    reader.kill()
    reader.wait()

    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
