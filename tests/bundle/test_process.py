"""One child: ready, late, dead at once, stopped, and nothing of it left."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading

import pytest

from trainvitals.bundle import guard as guard_module
from trainvitals.bundle.process import BundleError, Child, Guard, stop_all
from trainvitals.bundle.signals import Signals

PYTHON = [sys.executable, "-S", "-c"]
#: Starts a child of its own, says both ids, and sleeps.
PARENT = (
    "import subprocess, sys, time;"
    "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)']);"
    "print(child.pid, flush=True); time.sleep(600)"
)
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


@pytest.fixture
def spawn(tmp_path, guard, until):
    """A function that starts a child; all are killed at the end."""
    children = []

    def start(code, **options):
        child = Child("Thing", [*PYTHON, code], log=tmp_path / f"{len(children)}.log", guard=guard, **options)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        until(lambda child=child: child.poll() is not None)


def alive(pid):
    """Whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_is_ready_when_its_url_answers(spawn, signals):
    """`wait_ready` returns once the URL says 200, whatever it said before."""
    answers = iter([503, 503, 200])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(next(answers))
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    child = spawn("import time; time.sleep(600)", url=f"http://127.0.0.1:{server.server_port}/")
    child.wait_ready(signals, 30)
    server.shutdown()
    thread.join()
    server.server_close()
    assert next(answers, None) is None


def test_a_child_that_dies_at_once_is_reported_with_its_last_words(spawn, signals):
    """The error names the child, its exit code and the last lines of its log."""
    child = spawn("print('the reason'); raise SystemExit(7)", url="http://127.0.0.1:9/")
    with pytest.raises(BundleError) as raised:
        child.wait_ready(signals, 30)
    assert str(raised.value) == "Thing ended by itself with exit code 7. It said last:\n    the reason"


def test_a_child_that_is_killed_is_reported_by_the_name_of_the_signal(spawn, until):
    """A negative exit code becomes a name."""
    child = spawn("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    until(lambda: child.poll() is not None)
    assert child.obituary() == "Thing was ended by SIGKILL. It said nothing."


def test_a_child_that_is_never_ready_is_reported(spawn, signals):
    """The deadline ends the wait."""
    child = spawn("import time; print('thinking', flush=True); time.sleep(600)", url="http://127.0.0.1:9/")
    with pytest.raises(BundleError, match=r"Thing is not ready after 1 s\."):
        child.wait_ready(signals, 1)


def test_a_program_that_is_not_there_is_reported(tmp_path, guard, signals):
    """The launcher says which program it could not become."""
    child = Child("Thing", ["/no/such/program"], log=tmp_path / "log", guard=guard, url="http://127.0.0.1:9/")
    with pytest.raises(BundleError, match="/no/such/program: No such file or directory"):
        child.wait_ready(signals, 30)


def test_last_lines_are_the_last_and_not_the_whole_log(spawn, until):
    """A long log is cut."""
    child = spawn("for i in range(10000): print('line', i)")
    until(lambda: child.poll() is not None)
    assert child.last_lines(2) == ["line 9998", "line 9999"]


def test_stopping_ends_the_child_and_what_it_started(spawn, signals, until):
    """SIGTERM goes to the whole group."""
    child = spawn(PARENT)
    grandchild = int(until(child.last_lines)[0])
    stop_all([child], signals)
    assert child.poll() == -signal.SIGTERM
    until(lambda: not alive(grandchild))


def test_a_child_that_ends_takes_its_group_with_it(spawn, until):
    """What a dead child left in its group is swept up."""
    child = spawn(PARENT)
    grandchild = int(until(child.last_lines)[0])
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: child.poll() is not None)
    until(lambda: not alive(grandchild))


def test_a_child_that_refuses_is_killed(spawn, signals, until):
    """After the grace comes SIGKILL."""
    child = spawn(STUBBORN)
    until(child.last_lines)
    stop_all([child], signals, seconds=0.3)
    assert child.poll() == -signal.SIGKILL


def test_one_more_signal_ends_the_patience(spawn, until):
    """A second Ctrl-C while stopping kills at once, and is no error."""
    child = spawn(STUBBORN)
    until(child.last_lines)

    class Impatient(Signals):
        def wait(self, _seconds):
            self.received.append(signal.SIGINT)

    signals = Impatient(frozenset())
    signals.received.append(signal.SIGINT)
    stop_all([child], signals, seconds=600)
    assert child.poll() == -signal.SIGKILL


def test_the_guard_ends_and_removes_what_is_registered(tmp_path):
    """When the pipe to the guard ends, groups are ended (also those that refuse) and folders are removed."""
    folder, kept, left = (tmp_path / name for name in ("temporary", "kept", "left"))
    for path in (folder, kept, left):
        path.mkdir()
        (path / "file").write_text("x")
    stubborn, forgotten = (
        subprocess.Popen([*PYTHON, STUBBORN], start_new_session=True, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    )
    for process in (stubborn, forgotten):
        process.stdout.readline()
    guard = Guard()
    guard.tell("group", stubborn.pid)
    guard.tell("group", forgotten.pid)
    guard.tell("forget", forgotten.pid)
    for path in (folder, left):
        guard.tell("folder", path)
    guard.tell("leave", left)
    threading.Thread(target=stubborn.wait).start()
    guard.close()
    assert stubborn.wait(timeout=30) == -signal.SIGKILL
    assert forgotten.poll() is None
    assert (folder.exists(), kept.exists(), left.exists()) == (False, True, True)
    forgotten.kill()
    for process in (stubborn, forgotten):
        process.wait()
        process.stdout.close()


def test_the_launcher_refuses_without_its_parent(tmp_path):
    """A child whose parent died before the kernel was asked does not start."""
    command = [sys.executable, guard_module.__file__, "launch", "1", "touch", str(tmp_path / "started")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "the parent is gone already\n")
    assert not (tmp_path / "started").exists()
