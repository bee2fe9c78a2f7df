"""Single processes."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time

import pytest
from tests.helpers import wait_until
from tests.host.trees import failing, plant

from trainvitals.host.processes import Process, ProcessTable


def stat(*, name=b"python", state=b"S", started=b"1234", stack=b"140730", **more):
    """Return a line of /proc/PID/stat, its 52 fields numbered as in proc(5)."""
    fields = [b"0"] * 53
    fields[3], fields[4] = state, b"9"
    fields[10], fields[12] = b"1000", b"31"
    fields[14], fields[15], fields[16], fields[17] = b"250", b"50", b"7000", b"8000"
    fields[20], fields[22], fields[23] = b"17", started, b"999999999"
    fields[24], fields[26], fields[27], fields[28] = b"512", b"4096", b"8192", stack
    for number, value in more.items():
        fields[int(number[1:])] = value
    return b"77 (%b) %b\n" % (name, b" ".join(fields[3:]))


def table(tmp_path, **files):
    """Return a table of one process, 77, with a tick of 10 ms and pages of 4 KiB."""
    return ProcessTable(plant(tmp_path, {f"77/{name}": data for name, data in files.items()}), ticks=100, page=4096)


EXPECTED = Process(
    pid=77,
    parent=9,
    name=b"python",
    is_blocked=False,
    started=12.34,
    cpu_seconds=3.0,
    resident_bytes=2 * 2**20,
    threads=17,
    major_faults=31,
    image=(b"4096", b"140730"),
)


def test_a_line_is_read_field_by_field(tmp_path):
    """CPU time is its own, not that of children it waited for; memory is what is resident."""
    assert table(tmp_path, stat=stat()).read(77) == EXPECTED


@pytest.mark.parametrize("name", [b"python", b"my (odd) name", b") S 1 1", b"a\nb", b"\xff\xfe", b""])
def test_a_name_can_be_anything(tmp_path, name):
    """The last parenthesis ends it."""
    found = table(tmp_path, stat=stat(name=name)).read(77)

    assert (found.name, found.parent, found.threads) == (name, 9, 17)


@pytest.mark.parametrize(("state", "blocked"), [(b"R", False), (b"S", False), (b"T", False), (b"D", True)])
def test_only_an_uninterruptible_wait_is_blocked(tmp_path, state, blocked):
    """State D."""
    assert table(tmp_path, stat=stat(state=state)).read(77).is_blocked is blocked


@pytest.mark.parametrize("state", [b"Z", b"X", b"x"])
def test_the_dead_are_gone(tmp_path, state):
    """A zombie has a line still."""
    assert table(tmp_path, stat=stat(state=state)).read(77) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"77",
        b"77 (python)",
        b"77 (python) S 9 1 2",
        stat().replace(b" 1234 ", b" x "),
        b")" * 3000,
        b"\0" * 100,
    ],
)
def test_a_broken_line_is_no_process(tmp_path, data):
    """It costs itself."""
    assert table(tmp_path, stat=data).read(77) is None


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_process_that_cannot_be_read_is_none(number):
    """It went away while it was read, or belongs to somebody else."""
    assert ProcessTable("/proc", opener=failing(number)).read(1) is None


def test_what_we_may_not_know_is_not_known(tmp_path):
    """The kernel writes zeros where the program of another user lies."""
    assert table(tmp_path, stat=stat(stack=b"0", f26=b"1")).read(77).image is None


def test_only_numbers_are_processes(tmp_path):
    """/proc holds other folders too."""
    proc = plant(tmp_path, {"1/stat": "", "20/stat": "", "self/stat": "", "sys/x": "", "uptime": "1 2"})

    assert ProcessTable(proc).pids() == {1, 20}


def test_this_process_is_read_as_it_is():
    """Against what the operating system says in other ways."""
    found = ProcessTable().read(os.getpid())
    usage = resource.getrusage(resource.RUSAGE_SELF)

    assert found.pid == os.getpid()
    assert found.parent == os.getppid()
    assert abs(found.cpu_seconds - usage.ru_utime - usage.ru_stime) < 0.5
    assert 2**20 < found.resident_bytes <= usage.ru_maxrss * 1024 + 2**25
    assert found.threads >= 1
    assert found.started < time.clock_gettime(time.CLOCK_BOOTTIME)


def test_cpu_time_and_start_of_a_real_process():
    """A child that computes for half a second."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    script = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        found = ProcessTable().read(process.pid)
        process.stdin.close()
    assert 0.45 <= found.cpu_seconds < 5.0
    assert before - 0.02 <= found.started <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_real_zombie_is_gone():
    """It ended, and its parent has not asked for it."""
    with subprocess.Popen(["true"]) as process:
        wait_until(lambda: ProcessTable().read(process.pid) is None)


def test_descriptors_are_counted_against_the_limit():
    """Where the kernel gives their number (6.2 and newer); else there is no ratio."""
    ratio = ProcessTable().descriptors_ratio(os.getpid())
    if ratio is None:
        pytest.skip("this kernel does not tell how many descriptors a process has")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    assert ratio == pytest.approx(len(os.listdir("/proc/self/fd")) / soft, abs=3 / soft)


LIMITS = b"Limit  Soft Limit  Hard Limit  Units\nMax processes  5  6  processes\nMax open files  %b  4096  files\n"


@pytest.mark.parametrize("limit", [b"unlimited", b"0", b"-1"])
def test_without_a_limit_there_is_no_ratio(tmp_path, limit):
    """And no 0."""
    assert table(tmp_path, **{"limits": LIMITS % limit, "fd/0": ""}).descriptors_ratio(77) is None


def test_a_limit_below_what_is_open_is_full(tmp_path):
    """The limit may be lowered later; a ratio above 1 would be dropped."""
    assert table(tmp_path, **{"limits": LIMITS % b"1", "fd/0": ""}).descriptors_ratio(77) == 1.0


def test_a_process_that_is_gone_has_no_ratio(tmp_path):
    """Nor one whose folder is closed to us."""
    assert table(tmp_path).descriptors_ratio(77) is None
