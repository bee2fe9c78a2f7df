"""The bounded probe of mounts: none holds up another, and none is probed twice at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from tests.devices.helpers import is_running
from tests.held import held, new_since
from tests.helpers import wait_until

from trainvitals.host import mount_worker
from trainvitals.host.mount_child import spawn
from trainvitals.host.mount_probe import MountProbe
from trainvitals.host.mounts import Mount

BLOCKING = Path(__file__).parents[1] / "fixtures" / "mounts" / "blocking_worker.py"


def mount(name, *, device=None, number=7, source="nas:/x"):
    """Return the mount /x/NAME, of a file system of its own."""
    return Mount(number, device or f"0:{name}", "/", f"/x/{name}", "nfs4", source, read_only=False)


GOOD, DEAD, SLOW = mount("good"), mount("dead"), mount("slow")
ALL = {GOOD: "s", DEAD: "s", SLOW: "sw"}


class Bench:
    """A probe on file systems that behave as told; everything is quick."""

    def __init__(self, folder, **settings):
        self.folder = folder
        self.started = []
        defaults = {"interval": 0.02, "timeout": 0.4, "backoff": (0.02, 0.1), "start_child": self.start_child}
        self.probe = MountProbe(**{**defaults, **settings})

    def start_child(self):
        """Start the process with the file systems of the folder."""
        return self.start(subprocess.Popen, BLOCKING, mount_worker.__file__, self.folder)

    def start(self, kind, *arguments):
        """Start a process of a kind and note it."""
        command = [sys.executable, "-I", "-S", "-B", *map(str, arguments)]
        self.started.append(kind(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return self.started[-1]

    def block(self, name):
        """Let the probes of a mount not come back."""
        (self.folder / f"{name}.block").touch()

    def release(self, name):
        """Let them come back."""
        (self.folder / f"{name}.block").unlink()

    def lines(self, file):
        """Return how many lines a file of the folder has, by line."""
        path = self.folder / file
        return Counter(path.read_text().splitlines()) if path.exists() else Counter()

    def until(self, condition, wanted=ALL):
        """Ask until a condition holds for the states; return them."""
        return wait_until(lambda: states if condition(states := self.probe.ask(wanted)) else None)


@pytest.fixture
def bench(tmp_path):
    """A probe that was started; at its end nothing of it is left."""
    before = held()
    made = Bench(tmp_path)
    made.probe.start()
    yield made
    for path in tmp_path.glob("*.block"):
        path.unlink()
    made.probe.stop()
    assert new_since(before) == []


def test_healthy_mounts_have_values_at_once(bench):
    """The first question waits for the child and for the answers."""
    states = bench.probe.ask(ALL, patience=30)

    finding = states[GOOD].finding
    assert [state.stuck for state in states.values()] == [False, False, False]
    assert (finding.size, finding.available, finding.files, finding.files_free) == (1000, 250, 100, 40)
    assert (finding.trouble, finding.is_reached) == ("", True)
    assert 0 <= finding.seconds <= finding.finished - finding.begun
    assert bench.lines("begun") == {"good s": 1, "dead s": 1, "slow sw": 1}


def test_a_mount_is_probed_again_after_the_interval(tmp_path):
    """Not with every question."""
    bench = Bench(tmp_path, interval=1000, clock=lambda: time.monotonic() + bench.ahead)
    bench.ahead = 0
    bench.probe.start()
    for _ in range(5):
        bench.probe.ask({GOOD: "s"}, patience=30)
    assert bench.lines("begun") == {"good s": 1}

    bench.ahead = 1000
    bench.until(lambda _: bench.lines("begun") == {"good s": 2}, {GOOD: "s"})
    bench.probe.stop()


def test_a_stuck_mount_holds_up_nobody_even_at_first_sight(bench):
    """The question is answered, the others have values, and the dead one has none until it is known to be stuck."""
    bench.block("dead")
    begun = time.monotonic()
    states = bench.until(lambda states: states[GOOD].finding and states[SLOW].finding)

    assert time.monotonic() - begun < 20
    assert (states[DEAD].finding, states[DEAD].stuck or None) == (None, None)
    states = bench.until(lambda states: states[DEAD].stuck)
    assert states[DEAD].finding is None
    assert begun <= states[DEAD].since <= time.monotonic() - 0.4
    assert states[GOOD].stuck is False


def test_a_question_waits_a_moment_only(bench):
    """However many mounts are dead."""
    dead = {mount(f"dead{number}"): "s" for number in range(20)}
    for number in range(20):
        bench.block(f"dead{number}")
    bench.probe.ask({GOOD: "s"}, patience=30)

    begun = time.monotonic()
    bench.probe.ask(dead)
    first = time.monotonic() - begun
    begun = time.monotonic()
    for _ in range(20):
        bench.probe.ask(dead)

    assert first < 2.0
    assert time.monotonic() - begun < 2.0


def test_a_stuck_mount_recovers(bench, caplog):
    """When the server is back its values are, and both is said once."""
    caplog.set_level("INFO")
    bench.until(lambda states: states[DEAD].finding)
    bench.block("dead")
    bench.until(lambda states: states[DEAD].stuck)
    bench.release("dead")
    states = bench.until(lambda states: states[DEAD].finding)

    assert (states[DEAD].stuck, states[DEAD].since) == (False, None)
    assert caplog.messages == [
        "storage: /x/dead does not answer (nfs4)",
        "storage: /x/dead answers again",
    ]


def test_an_answer_that_is_late_says_how_late(bench):
    """A slow mount is shown with its latency."""
    bench.block("slow")
    bench.until(lambda states: states[SLOW].stuck)
    bench.release("slow")
    bench.probe._interval = 1000
    states = bench.until(lambda states: states[SLOW].finding)

    assert 0.2 <= states[SLOW].finding.seconds < 60
    assert states[GOOD].finding.seconds < states[SLOW].finding.seconds


def test_a_trouble_is_a_finding(bench):
    """A mount that answers with an error is not stuck."""
    for name, trouble in (("good", "ESTALE"), ("dead", "FILE"), ("slow", "HIDDEN")):
        (bench.folder / f"{name}.trouble").write_text(trouble)
    states = bench.probe.ask(ALL, patience=30)

    assert [state.finding.trouble for state in states.values()] == ["ESTALE", "FILE", "HIDDEN"]
    assert [state.finding.is_reached for state in states.values()] == [True, False, False]
    assert [state.stuck for state in states.values()] == [False, False, False]


def test_a_thousand_rounds_with_a_stuck_mount_grow_nothing(bench):
    """One worker hangs and stays one; threads, descriptors and memory are those of the beginning."""
    bench.block("dead")
    bench.probe._interval = 0.0
    bench.until(lambda states: states[DEAD].stuck)
    ours, theirs = psutil.Process(), psutil.Process(bench.started[0].pid)
    for _ in range(100):
        bench.probe.ask(ALL)
    before = (ours.num_threads(), ours.num_fds(), theirs.num_fds())
    memory = (ours.memory_info().rss, theirs.memory_info().rss)

    for _ in range(1000):
        states = bench.probe.ask(ALL, patience=30)

    assert states[DEAD].stuck
    assert bench.lines("begun")["good s"] > 1000
    assert bench.lines("begun")["dead s"] == 1
    assert before == (ours.num_threads(), ours.num_fds(), theirs.num_fds())
    # The main thread and the one that hangs; another may just end.
    wait_until(lambda: theirs.num_threads() == 2)
    grown = [now - then for now, then in zip((ours.memory_info().rss, theirs.memory_info().rss), memory, strict=True)]
    assert max(grown) < 2 << 20


def test_a_file_system_has_one_worker_whatever_it_is_called(bench):
    """Unmounted by force and mounted again elsewhere, or bound: while the kernel keeps it, it is the same one."""
    again = Mount(99, DEAD.device, "/", "/x/elsewhere", "nfs4", "nas:/x", read_only=False)
    bench.block("dead")
    bench.until(lambda states: states[DEAD].stuck)
    states = bench.until(lambda states: states[again].stuck, {GOOD: "s", again: "s"})

    assert (states[again].finding, bench.lines("begun")["elsewhere s"]) == (None, 0)
    bench.release("dead")
    bench.until(lambda states: states[again].finding, {GOOD: "s", again: "s"})
    assert bench.lines("begun")["elsewhere s"] >= 1


def test_what_is_not_wanted_is_forgotten(bench):
    """A mount that is gone has no state; its late answer is not that of another in its place."""
    bench.until(lambda states: states[DEAD].finding)
    bench.block("dead")
    bench.until(lambda states: states[DEAD].stuck)
    assert set(bench.probe.ask({GOOD: "s"})) == {GOOD}

    bench.probe._interval = 1000
    bench.release("dead")
    wait_until(lambda: not bench.probe._flights)
    bench.probe.ask({GOOD: "s"})
    assert set(bench.probe._findings) == {GOOD}

    # The kernel gives the numbers of one that is gone to the next.
    other = mount("dead", source="nas:/other")
    (bench.folder / "dead.trouble").write_text("ESTALE")
    assert bench.probe.ask({other: "s"}, patience=30)[other].finding.trouble == "ESTALE"


def test_workers_are_bounded(tmp_path):
    """Dead servers that are mounted and forced off again and again take no more threads than the limit."""
    bench = Bench(tmp_path, most=3)
    bench.probe.start()
    for number in range(10):
        bench.block(f"dead{number}")
    for number in range(10):
        bench.probe.ask({mount(f"dead{number}"): "s"}, patience=0.05)

    assert sum(bench.lines("begun").values()) <= 3
    assert bench.probe.ask({GOOD: "s"}, patience=0.05)[GOOD].stuck is None
    for number in range(10):
        bench.release(f"dead{number}")
    bench.until(lambda states: states[GOOD].finding, {GOOD: "s"})
    bench.probe.stop()


def test_a_child_that_was_killed_is_replaced(bench):
    """And counted; what hung in it is probed anew."""
    bench.block("dead")
    bench.until(lambda states: states[DEAD].stuck)
    os.kill(bench.started[0].pid, signal.SIGKILL)
    bench.until(lambda _: bench.lines("begun")["dead s"] == 2)
    states = bench.until(lambda states: states[GOOD].finding and states[DEAD].stuck)

    assert (bench.probe.restarts, len(bench.started), states[DEAD].finding) == (1, 2, None)


def test_a_child_that_is_stopped_does_not_make_its_mounts_stuck(bench):
    """Nothing is known of any mount, until another child answers."""
    bench.probe._keeper._silence = 1.0
    bench.until(lambda states: all(state.finding for state in states.values()))
    os.kill(bench.started[0].pid, signal.SIGSTOP)
    seen = []

    def replaced(states):
        seen.extend(state.stuck for state in states.values())
        return len(bench.started) == 2 and all(state.finding for state in states.values())

    bench.until(replaced)
    assert True not in seen
    assert bench.probe.is_answering


class Unkillable(subprocess.Popen):
    """A process as one looks that the kernel holds."""

    def kill(self):
        """Do nothing, as SIGKILL does to it."""


def test_a_child_that_cannot_be_killed_keeps_its_mount_to_itself(tmp_path):
    """Another takes over the other mounts; the dead one stays stuck and gets no second worker until the first ends."""
    bench = Bench(tmp_path, silence=1.0)

    def start_child():
        kind = subprocess.Popen if bench.started else Unkillable
        return bench.start(kind, BLOCKING, mount_worker.__file__, tmp_path)

    bench.probe._keeper._start_child = start_child
    bench.probe.start()
    bench.block("dead")
    bench.until(lambda states: states[DEAD].stuck)
    os.kill(bench.started[0].pid, signal.SIGSTOP)
    bench.until(lambda _: len(bench.started) == 2)
    states = bench.until(lambda states: states[GOOD].finding and states[SLOW].finding)

    assert (states[DEAD].stuck, states[DEAD].finding) == (True, None)
    for _ in range(50):
        bench.probe.ask(ALL)
    assert bench.lines("begun")["dead s"] == 1
    os.kill(bench.started[0].pid, signal.SIGKILL)
    bench.until(lambda _: bench.lines("begun")["dead s"] == 2)
    bench.release("dead")
    bench.until(lambda states: states[DEAD].finding)
    bench.probe.stop()


def test_children_that_cannot_be_killed_are_few(tmp_path, monkeypatch):
    """After three there is no fourth, and nothing is known."""
    monkeypatch.setattr("trainvitals.host.mount_child._GRACE", 0.1)
    bench = Bench(tmp_path, silence=0.1)
    bench.probe._keeper._start_child = lambda: bench.start(Unkillable, "-c", "import time; time.sleep(1000)")
    bench.probe.start()
    wait_until(lambda: len(bench.probe._keeper.unkilled) == 3)
    assert bench.probe.ask({GOOD: "s"})[GOOD].stuck is None
    wait_until(lambda: not bench.probe.is_answering)
    bench.probe.stop()

    assert len(bench.started) == 3
    for child in bench.started:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()


@pytest.mark.parametrize(
    "nonsense",
    ["print('what', flush=True)", "print('1 fast - 1 2 3 4', flush=True)", "print('x' * 100000, end='', flush=True)"],
)
def test_a_child_that_writes_nonsense_is_replaced(tmp_path, nonsense):
    """Whatever it is."""
    bench = Bench(tmp_path)
    good = bench.start_child

    def start_child():
        if bench.started:
            return good()
        return bench.start(subprocess.Popen, "-c", f"{nonsense}; input()")

    bench.probe._keeper._start_child = start_child
    bench.probe.start()
    bench.until(lambda states: states[GOOD].finding)
    bench.probe.stop()

    assert bench.probe.restarts == 1
    assert not is_running(bench.started[0].pid)


def test_a_child_that_cannot_be_started_is_tried_again(tmp_path, caplog):
    """Questions are answered with nothing meanwhile, and the log says it once."""
    bench = Bench(tmp_path)
    good, failures = bench.start_child, [OSError(12, "Cannot allocate memory")] * 3

    def start_child():
        if failures:
            raise failures.pop()
        return good()

    bench.probe._keeper._start_child = start_child
    bench.probe.start()
    bench.until(lambda states: states[GOOD].finding)
    bench.probe.stop()

    assert caplog.messages == ["storage: the probing process cannot be started: Cannot allocate memory"]


def test_a_child_that_takes_no_more_lines_holds_up_nobody(bench):
    """Its pipe is full: the probe has not begun."""
    bench.until(lambda states: states[GOOD].finding)
    os.kill(bench.started[0].pid, signal.SIGSTOP)
    bench.probe._most = 100_000
    begun = time.monotonic()
    # Each line has 1,000 characters or more, and a pipe holds 65,536.
    for number in range(300):
        bench.probe.ask({mount(f"{'n' * 500}{number}"): "s"}, patience=0.0)

    assert time.monotonic() - begun < 20


def test_it_stops_while_a_mount_is_stuck(bench):
    """The child ends, with its thread."""
    bench.block("dead")
    bench.until(lambda states: states[DEAD].stuck)
    begun = time.monotonic()
    bench.probe.stop()

    assert time.monotonic() - begun < 4
    assert not is_running(bench.started[0].pid)


def test_stopping_twice_or_without_a_start_is_nothing(tmp_path):
    """As a daemon whose start failed does."""
    bench = Bench(tmp_path)
    bench.probe.stop()
    bench.probe.start()
    bench.probe.stop()
    bench.probe.stop()


def test_the_real_child_probes_this_machine():
    """Root and shared memory of this machine have a size."""
    from trainvitals.host.mounts import Choice, Mounts

    mounts, _ = Choice().of(Mounts().read())
    probe = MountProbe(start_child=spawn)
    probe.start()
    states = probe.ask(dict.fromkeys(mounts, "sr"), patience=30)
    probe.stop()

    sizes = {one.mountpoint: state.finding.size for one, state in states.items() if state.finding}
    space = os.statvfs("/")
    assert sizes["/"] == space.f_blocks * space.f_frsize
