"""Data-loader workers."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.helpers import PATIENCE, trainer, wait_until

from trainvitals.host.processes import Process, ProcessTable
from trainvitals.host.workers import Orphans, Usage, Workers

PYTHON = (b"4096", b"140730")
OTHER = (b"8192", b"150999")


def process(pid, parent=1, *, name=b"python", image=PYTHON, started=50.0, cpu=0.0, resident=100, blocked=False):
    """Return a process with one thread and no faults."""
    return Process(pid, parent, name, blocked, started, cpu, resident, 1, 0, image)


class FakeTable:
    """A table of processes that a test changes."""

    def __init__(self, *processes: Process) -> None:
        self.processes = {one.pid: one for one in processes}
        self.reads: list[int] = []

    def put(self, *processes):
        """Start processes, or change what is known of them."""
        self.processes.update({one.pid: one for one in processes})

    def read(self, pid):
        """Return a process, and remember who asked."""
        self.reads.append(pid)
        return self.processes.get(pid)

    def pids(self):
        """Return all processes."""
        return set(self.processes)

    def descriptors_ratio(self, _):
        """Return a quarter."""
        return 0.25


def follow(table):
    """Return workers behind a table on a machine that never slept."""
    return Workers(table, slept=lambda: 0.0)


RANK = {"rank 0": (10, 60.0)}


def test_a_process_and_its_workers():
    """Forked children count, with their CPU time, memory and state; what the training starts otherwise does not."""
    root = process(10, cpu=7.0)
    table = FakeTable(
        root,
        process(11, 10, cpu=1.5, resident=30),
        process(12, 10, cpu=2.0, resident=40, blocked=True),
        process(13, 10, image=OTHER, name=b"nvcc"),
        process(14, 10, image=OTHER, name=b"python"),
        process(15, 13),
        process(16, 1),
        process(17, 11),
    )

    assert follow(table).update(RANK) == {
        "rank 0": Usage(
            process=root,
            descriptors_ratio=0.25,
            workers=2,
            workers_cpu_seconds=3.5,
            workers_resident_bytes=70,
            workers_blocked=1,
        )
    }


def test_workers_of_a_fork_server_are_known_by_their_name():
    """Python 3.14 starts them so: the fork server stands between, and their program lies elsewhere."""
    named = b"pt_data_worker"
    table = FakeTable(
        process(10),
        process(11, 10, image=OTHER),
        process(12, 11, image=OTHER, name=named),
        process(13, 11, image=OTHER, name=b"python"),
        process(14, 10, image=(b"1", b"2"), name=named),
        process(15, 1, name=named),
    )

    assert follow(table).update(RANK)["rank 0"].workers == 2


def test_where_programs_are_hidden_names_decide():
    """An exporter without the right to look into the processes of other users."""
    table = FakeTable(
        process(10, image=None, name=b"python3"),
        process(11, 10, image=None, name=b"python3"),
        process(12, 10, image=None, name=b"pt_data_worker"),
        process(13, 10, image=None, name=b"wandb-core"),
    )

    assert follow(table).update(RANK)["rank 0"].workers == 2


def test_each_rank_has_its_own():
    """Also when one rank is the child of another."""
    table = FakeTable(process(10), process(20, 10), process(11, 10), process(21, 20), process(22, 20))

    usages = follow(table).update({"a": (10, 60.0), "b": (20, 60.0)})

    assert (usages["a"].workers, usages["b"].workers) == (1, 2)


def test_cpu_time_goes_on_when_workers_end():
    """What an ended worker had used stays; a number that comes back is another worker."""
    table = FakeTable(process(10), process(11, 10, cpu=5.0), process(12, 10, cpu=3.0))
    workers = follow(table)
    seen = []

    def look():
        usage = workers.update(RANK)["rank 0"]
        seen.append((usage.workers, usage.workers_cpu_seconds))

    look()
    table.put(process(12, 10, cpu=4.0))
    del table.processes[11]
    look()
    table.put(process(11, 10, cpu=0.5, started=70.0))
    look()
    table.put(process(12, 10, cpu=0.25, started=80.0))
    look()
    table.processes = {10: process(10)}
    look()

    assert seen == [(2, 8.0), (1, 9.0), (2, 9.5), (2, 9.75), (0, 9.75)]


def test_cpu_time_does_not_fall_by_a_hair():
    """0.1 + (0.2 + 0.3) is less than (0.1 + 0.2) + 0.3, and a rate would take that for a restart."""
    table = FakeTable(
        process(10), process(11, 10, cpu=0.1), process(12, 10, cpu=0.2), process(13, 10, cpu=0.3, started=70.0)
    )
    workers = follow(table)
    seen = [workers.update(RANK)["rank 0"].workers_cpu_seconds]
    for pid in (11, 12, 13):
        del table.processes[pid]
        seen.append(workers.update(RANK)["rank 0"].workers_cpu_seconds)

    assert seen == [0.6, 0.6, 0.6, 0.6]


def test_a_worker_that_could_not_be_read_is_not_counted_twice():
    """For want of a descriptor, say; it comes back with all that it used."""
    table = FakeTable(process(10), process(11, 10, cpu=5.0), process(12, 10, cpu=3.0))
    workers = follow(table)
    workers.update(RANK)

    hidden = table.processes.pop(11)
    table.pids = lambda: {10, 11, 12}
    for _ in range(3):
        usage = workers.update(RANK)["rank 0"]
        assert (usage.workers, usage.workers_cpu_seconds) == (1, 8.0)
    table.put(replace(hidden, cpu_seconds=6.0))
    usage = workers.update(RANK)["rank 0"]

    assert (usage.workers, usage.workers_cpu_seconds) == (2, 9.0)


def test_a_worker_that_runs_another_program_stops_counting():
    """Seen between its fork and what it is for."""
    table = FakeTable(process(10), process(11, 10, cpu=0.01))
    workers = follow(table)
    assert workers.update(RANK)["rank 0"].workers == 1

    table.put(process(11, 10, image=OTHER, name=b"nvcc", cpu=90.0))
    usage = workers.update(RANK)["rank 0"]

    assert (usage.workers, usage.workers_cpu_seconds) == (0, 0.01)


def test_a_number_that_another_process_took_is_not_the_rank():
    """One that started after the rank's file was made has nothing to do with it."""
    table = FakeTable(process(10, started=61.5))

    assert follow(table).update(RANK) == {}
    # As long as the machine slept, the clock of starts is ahead of the clock of rank files.
    assert set(Workers(table, slept=lambda: 5.0).update(RANK)) == {"rank 0"}


def test_a_restarted_rank_begins_anew():
    """Its counters are those of the new process."""
    table = FakeTable(process(10), process(11, 10, cpu=5.0))
    workers = follow(table)
    workers.update(RANK)

    table.processes = {30: process(30, started=90.0), 31: process(31, 30, cpu=0.5, started=91.0)}
    usage = workers.update({"rank 0": (30, 95.0)})["rank 0"]

    assert (usage.workers, usage.workers_cpu_seconds) == (1, 0.5)


@pytest.mark.parametrize("pid", [0, -1, 99])
def test_a_process_that_cannot_be_seen_is_left_out(pid):
    """In a container without the host's process ids the number is 0."""
    assert follow(FakeTable(process(10))).update({"rank 0": (pid, 60.0)}) == {}


def test_only_new_processes_are_read():
    """A node has thousands of others, and they stay what they are."""
    others = [process(pid) for pid in range(1000, 2000)]
    table = FakeTable(process(10), process(11, 10), *others)
    workers = follow(table)
    workers.update(RANK)
    assert len(table.reads) == 1002

    table.reads.clear()
    table.put(process(2000), process(12, 10))
    assert workers.update(RANK)["rank 0"].workers == 2
    assert sorted(table.reads) == [10, 11, 12, 2000]

    table.reads.clear()
    assert workers.update({**RANK, "rank 1": (1500, 60.0)})["rank 0"].workers == 2
    assert len(table.reads) > 1000, "a child of the new rank may be older than our knowledge of it"


def test_without_a_rank_nothing_is_looked_for():
    """No process is read."""
    table = FakeTable(process(10))

    assert follow(table).update({}) == {}
    assert table.reads == []


def test_too_many_workers_are_cut():
    """A rank with so many children is out of order; memory stays bounded."""
    table = FakeTable(process(10), *(process(100 + number, 10) for number in range(1500)))

    assert follow(table).update(RANK)["rank 0"].workers == 1024


def test_workers_that_outlive_their_rank_are_orphans():
    """Once somebody else is their parent; they hold memory until they end."""
    table = FakeTable(process(10), process(11, 10, resident=30), process(12, 10, resident=40))
    workers = follow(table)
    workers.update(RANK)
    assert workers.orphans() == Orphans()

    table.processes = {11: process(11, 1, resident=31), 12: process(12, 1, resident=41), 13: process(13, 1)}
    assert workers.update({}) == {}
    assert workers.orphans() == Orphans(2, 72)
    assert workers.orphans() == Orphans(2, 72)

    table.put(process(11, 1, started=99.0))
    assert workers.orphans() == Orphans(1, 41)
    del table.processes[12]
    assert workers.orphans() == Orphans()


def test_a_rank_that_is_lost_from_sight_has_no_orphans():
    """Its file was unreadable for a round; its workers still have their parent, and come back with it."""
    table = FakeTable(process(10), process(11, 10, resident=30))
    workers = follow(table)
    workers.update(RANK)

    workers.update({})
    assert workers.orphans() == Orphans()
    assert workers.update(RANK)["rank 0"].workers == 1
    assert workers.orphans() == Orphans()

    table.processes = {11: process(11, 1, resident=30)}
    workers.update({})
    assert workers.orphans() == Orphans(1, 30)


# With real processes -------------------------------------------------------------------------------------------------

FORKING = """
    import os, subprocess, sys, time

    def work(seconds):
        while time.process_time() < seconds:
            pass
        sys.stdin.close()
        time.sleep(600)

    children = []
    for seconds in (0.2, 0.3):
        child = os.fork()
        if child == 0:
            work(seconds)
        children.append(child)
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("ready", flush=True)
    print(*children, program.pid, flush=True)
    for line in sys.stdin:
        child = children.pop(0)
        os.kill(child, 9)
        os.waitpid(child, 0)
        print("ended", flush=True)
"""


@contextmanager
def forked(spool):
    """Run a process with two forked children, which used 0.2 and 0.3 s of CPU, and another program."""
    with trainer(FORKING, spool) as root:
        pids = [int(text) for text in root.stdout.readline().split()]
        try:
            yield root, pids
        finally:
            for pid in pids:
                end(pid)


def end(pid):
    """End a process that may be gone."""
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


def test_real_workers_are_found_and_their_cpu_time_is_kept(spool):
    """Two children were forked; the third runs a program of its own."""
    table = ProcessTable()
    with forked(spool) as (root, _):
        workers = Workers(table)
        now = {"rank": (root.pid, time.monotonic())}
        busy = wait_until(lambda: (usage := workers.update(now)["rank"]).workers_cpu_seconds >= 0.45 and usage)
        assert busy.workers == 2
        assert busy.workers_cpu_seconds < 2.0
        assert busy.workers_resident_bytes > 2**20

        root.stdin.write("\n")
        root.stdin.flush()
        assert root.stdout.readline() == "ended\n"
        after = workers.update(now)["rank"]
        assert after.workers == 1
        assert after.workers_cpu_seconds >= busy.workers_cpu_seconds
        assert after.workers_resident_bytes < busy.workers_resident_bytes


def test_real_workers_of_a_killed_rank_are_orphans(spool):
    """SIGKILL leaves forked children behind."""
    with forked(spool) as (root, _):
        workers = Workers(ProcessTable())
        assert workers.update({"rank": (root.pid, time.monotonic())})["rank"].workers == 2
        root.kill()
        root.wait()
        assert workers.update({}) == {}
        found = wait_until(lambda: (orphans := workers.orphans()).count == 2 and orphans)
        assert found.resident_bytes > 2**20


def test_workers_of_pytorch_are_found(spool):
    """A DataLoader with three workers, whatever the version calls them."""
    pytest.importorskip("torch", reason="torch is not installed")
    script = """
        import sys, torch

        class Numbers(torch.utils.data.Dataset):
            def __len__(self):
                return 64

            def __getitem__(self, index):
                return index

        loader = torch.utils.data.DataLoader(Numbers(), num_workers=3, persistent_workers=True)
        iterator = iter(loader)
        next(iterator)
        print("ready", flush=True)
        sys.stdin.readline()
    """
    with trainer(script, spool) as root:
        usage = Workers(ProcessTable()).update({"rank": (root.pid, time.monotonic())})["rank"]
        root.communicate("\n", timeout=PATIENCE)

    assert usage.workers == 3


def test_a_hidden_program_does_not_change_the_count(spool):
    """By names alone, the other Python that the training started counts too: the best that can be known."""
    table = ProcessTable()

    class Hiding:
        pids = staticmethod(table.pids)
        descriptors_ratio = staticmethod(table.descriptors_ratio)

        @staticmethod
        def read(pid):
            found = table.read(pid)
            return None if found is None else replace(found, image=None)

    with forked(spool) as (root, _):
        assert Workers(Hiding()).update({"rank": (root.pid, time.monotonic())})["rank"].workers == 3
