"""Training processes, as families."""

from __future__ import annotations

import os

import pytest
from tests.held import held, new_since
from tests.helpers import Node, Scrape, trainer, wait_until
from tests.host.trees import plant

from trainvitals.collect.base import NoData, Sink, Tally
from trainvitals.collect.processes import ProcessesCollector
from trainvitals.collect.ranks import LiveRank
from trainvitals.host.cgroups import Cgroups
from trainvitals.host.limits import Limits
from trainvitals.host.processes import Process
from trainvitals.host.workers import Workers

IMAGE = (b"1", b"2")


class Table:
    """A rank, 10, whose main thread waits in the kernel, and two workers, one of them as well."""

    def __init__(self):
        self.processes = {
            10: Process(10, 1, b"python", True, 50.0, 7.5, 1000, 17, 31, IMAGE),
            11: Process(11, 10, b"pt_data_worker", False, 51.0, 1.25, 300, 1, 0, IMAGE),
            12: Process(12, 10, b"pt_data_worker", True, 52.0, 2.0, 400, 1, 0, IMAGE),
        }
        self.read = self.processes.get

    def pids(self):
        """Return all processes."""
        return set(self.processes)

    def descriptors_ratio(self, _):
        """Return a quarter."""
        return 0.25


def collector(tmp_path, live, table=None):
    """Return the collector behind fake processes; process 10 is in a job with a limit."""
    proc = plant(tmp_path / "proc", {"10/cgroup": "0::/job\n", "20/cgroup": "0::/job\n"})
    group = {
        "job/memory.max": "4000\n",
        "job/memory.current": "3000\n",
        "job/memory.stat": "inactive_file 500\n",
        "job/memory.events": "oom_kill 1\n",
        "job/cpu.max": "200000 100000\n",
        "job/cpu.stat": "throttled_usec 1250000\n",
    }
    workers = Workers(table or Table(), slept=lambda: 0.0)
    return ProcessesCollector(lambda: live, workers, Cgroups(proc), Limits(plant(tmp_path / "cgroup", group)))


def scrape(made):
    """Collect once."""
    sink = Sink(Tally(), limit=20_000, collector="processes")
    made.collect(sink)
    return Scrape(sink.families())


RANK = LiveRank("big", 3, 10, 60.0, "GPU-1")


def test_every_reading_has_its_family(tmp_path):
    """The process, its workers, and the group whose limit holds for them."""
    labels = '{rank="3",run="big"}'

    assert scrape(collector(tmp_path, [RANK])) == {
        f"trainvitals_rank_process_visible{labels}": 1,
        f"trainvitals_rank_process_cpu_seconds_total{labels}": 7.5,
        f"trainvitals_rank_process_resident_memory_bytes{labels}": 1000,
        f"trainvitals_rank_process_threads{labels}": 17,
        f"trainvitals_rank_process_major_page_faults_total{labels}": 31,
        f"trainvitals_rank_process_blocked{labels}": 1,
        f"trainvitals_rank_process_descriptors_ratio{labels}": 0.25,
        f"trainvitals_rank_loader_workers{labels}": 2,
        f"trainvitals_rank_loader_blocked_workers{labels}": 1,
        f"trainvitals_rank_loader_cpu_seconds_total{labels}": 3.25,
        f"trainvitals_rank_loader_resident_memory_bytes{labels}": 700,
        f"trainvitals_rank_cgroup_memory_limit_bytes{labels}": 4000,
        f"trainvitals_rank_cgroup_memory_used_bytes{labels}": 2500,
        f"trainvitals_rank_cgroup_oom_kills_total{labels}": 1,
        f"trainvitals_rank_cgroup_cpu_throttled_seconds_total{labels}": 1.25,
        "trainvitals_orphaned_loader_workers": 0,
        "trainvitals_orphaned_loader_resident_memory_bytes": 0,
    }


@pytest.mark.parametrize("pid", [0, 99])
def test_a_process_that_cannot_be_seen_is_said_to_be_so(tmp_path, pid):
    """One series says it, and there is no 0 for what is not known."""
    found = scrape(collector(tmp_path, [LiveRank("big", 3, pid, 60.0, "")]))

    assert {name: value for name, value in found.items() if "rank=" in name} == {
        'trainvitals_rank_process_visible{rank="3",run="big"}': 0
    }


def test_without_a_rank_there_is_nothing(tmp_path):
    """That is no failure."""
    with pytest.raises(NoData):
        scrape(collector(tmp_path, []))


def test_what_a_rank_left_behind_is_shown_without_any_rank(tmp_path):
    """Its workers belong to somebody else now, and hold memory."""
    live, table = [RANK], Table()
    made = collector(tmp_path, live, table)
    scrape(made)

    live.clear()
    del table.processes[10]
    for pid in (11, 12):
        old = table.processes[pid]
        table.processes[pid] = Process(pid, 1, old.name, False, old.started, 3.0, 450, 1, 0, IMAGE)

    assert scrape(made) == {
        "trainvitals_orphaned_loader_workers": 2,
        "trainvitals_orphaned_loader_resident_memory_bytes": 900,
    }


TRAINER = """
    import os, sys, time, trainvitals

    trainvitals.init(run="forking", rank=2)
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            sys.stdin.close()
            time.sleep(600)
        children.append(child)
    trainvitals.step(1, loss=2.0)
    print("ready", flush=True)
    print(*children, flush=True)
    sys.stdin.readline()
"""


def test_the_process_of_a_rank_is_found_by_its_lock(spool):
    """From the rank file to its process and the children that it forked; killed, it leaves them behind."""
    node = Node(spool)
    made = ProcessesCollector(lambda: node.collector.live)
    with trainer(TRAINER, spool) as process:
        children = [int(text) for text in process.stdout.readline().split()]
        try:
            node.scrape()
            (live,) = node.collector.live
            assert (live.run, live.rank, live.pid, live.device_uuid) == ("forking", 2, process.pid, "")
            found = scrape(made)
            before = held()
            for _ in range(50):
                scrape(made)
            assert new_since(before) == []
            process.kill()
            process.wait()
            node.scrape()
            assert node.collector.live == ()
            left = wait_until(lambda: orphans(made))
        finally:
            for child in children:
                os.kill(child, 9)

    labels = '{rank="2",run="forking"}'
    assert found[f"trainvitals_rank_process_visible{labels}"] == 1
    assert found[f"trainvitals_rank_loader_workers{labels}"] == 2
    assert found[f"trainvitals_rank_process_resident_memory_bytes{labels}"] > 2**20
    assert found[f"trainvitals_rank_process_cpu_seconds_total{labels}"] > 0
    assert left["trainvitals_orphaned_loader_workers"] == 2


def orphans(made):
    """Return what is left behind, or nothing while nothing is."""
    try:
        return scrape(made)
    except NoData:
        return {}
