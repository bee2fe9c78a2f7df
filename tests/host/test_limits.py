"""Limits of control groups."""

from __future__ import annotations

import errno

import pytest
from tests.host.trees import failing, plant

from trainvitals.host.limits import Limits, Usage

GIB = 2**30

#: A job of Slurm under version 2: its limits stand above the task that a process is in.
SLURM = {
    "cgroup.controllers": "cpu memory\n",
    "system.slice/memory.max": "max\n",
    "system.slice/memory.events": "oom_kill 40\n",
    "system.slice/slurmstepd.scope/job_7/memory.max": f"{64 * GIB}\n",
    "system.slice/slurmstepd.scope/job_7/memory.current": f"{50 * GIB}\n",
    "system.slice/slurmstepd.scope/job_7/memory.stat": f"anon 1\nfile 2\ninactive_file {8 * GIB}\nactive_file 3\n",
    "system.slice/slurmstepd.scope/job_7/memory.events": "low 0\nhigh 0\nmax 12\noom 4\noom_kill 3\n",
    "system.slice/slurmstepd.scope/job_7/cpu.max": "800000 100000\n",
    "system.slice/slurmstepd.scope/job_7/cpu.stat": "usage_usec 9\nnr_throttled 5\nthrottled_usec 2500000\n",
    "system.slice/slurmstepd.scope/job_7/step_0/memory.max": "max\n",
    "system.slice/slurmstepd.scope/job_7/step_0/memory.events": "oom_kill 1\n",
    "system.slice/slurmstepd.scope/job_7/step_0/cpu.max": "max 100000\n",
    "system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.max": "max\n",
    "system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.events": "oom_kill 0\n",
}
TASK = "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"


def test_the_tightest_limit_counts(tmp_path):
    """With its use, without what the kernel gives back first, and what was killed and held back there."""
    assert Limits(plant(tmp_path, SLURM)).of({"": TASK}) == Usage(
        memory_limit=64 * GIB, memory_used=42 * GIB, oom_kills=3, cpus=8.0, throttled_seconds=2.5
    )


def test_without_a_limit_only_kills_are_told(tmp_path):
    """Those of the group itself."""
    files = {name: text for name, text in SLURM.items() if "job_7/memory.max" not in name and "job_7/cpu" not in name}

    assert Limits(plant(tmp_path, files)).of({"": TASK}) == Usage(oom_kills=0)


def test_a_host_is_no_container(tmp_path):
    """The root of all groups has no file of a limit."""
    assert Limits(plant(tmp_path, SLURM)).of_container() == Usage()


def test_a_container_sees_its_own_group_as_the_root(tmp_path):
    """Version 2: as in the container of a pod with 4 GiB and one and a half CPUs."""
    files = {
        "memory.max": f"{4 * GIB}\n",
        "memory.current": f"{3 * GIB}\n",
        "memory.stat": f"inactive_file {GIB}\n",
        "memory.events": "oom 2\noom_kill 2\noom_group_kill 0\n",
        "cpu.max": "150000 100000\n",
        "cpu.stat": "throttled_usec 1250000\n",
    }

    assert Limits(plant(tmp_path, files)).of_container() == Usage(4 * GIB, 2 * GIB, 2, 1.5, 1.25)


def test_a_container_without_limits_tells_its_kills(tmp_path):
    """No limit is no series, not a huge number."""
    files = {"memory.max": "max\n", "memory.current": "5\n", "memory.events": "oom_kill 1\n", "cpu.max": "max 100000\n"}

    assert Limits(plant(tmp_path, files)).of_container() == Usage(oom_kills=1)


VERSION_1 = {
    "memory/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/memory.usage_in_bytes": "77\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 9\n",
    "memory/slurm/uid_5/job_7/memory.limit_in_bytes": f"{16 * GIB}\n",
    "memory/slurm/uid_5/job_7/memory.usage_in_bytes": f"{9 * GIB}\n",
    "memory/slurm/uid_5/job_7/memory.stat": f"inactive_file 5\ntotal_inactive_file {2 * GIB}\n",
    "memory/slurm/uid_5/job_7/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
    "memory/slurm/uid_5/job_7/step_0/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/slurm/uid_5/job_7/step_0/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "cpu/cpu.cfs_quota_us": "-1\n",
    "cpu/cpu.cfs_period_us": "100000\n",
    "cpu/slurm/uid_5/cpu.cfs_quota_us": "250000\n",
    "cpu/slurm/uid_5/cpu.cfs_period_us": "100000\n",
    "cpu/slurm/uid_5/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 7500000000\n",
}


def test_version_1_has_a_tree_for_each_controller(tmp_path):
    """And counts a killed process only in its own group."""
    paths = {"memory": "/slurm/uid_5/job_7/step_0", "cpu": "/slurm/uid_5/", "": "/system.slice/slurmd.service"}

    assert Limits(plant(tmp_path, VERSION_1)).of(paths) == Usage(16 * GIB, 7 * GIB, 2, 2.5, 7.5)


def test_a_host_of_version_1_has_no_limit(tmp_path):
    """Its root says "the largest number of pages"."""
    assert Limits(plant(tmp_path, VERSION_1)).of_container() == Usage()


@pytest.mark.parametrize("path", ["/../../kubepods.slice/x", "/..", None])
def test_a_group_outside_of_our_namespace_cannot_be_read(tmp_path, path):
    """A path with dots leads to other folders, not to that group."""
    plant(tmp_path / "root", {"memory.max": "5\n"})
    plant(tmp_path, {"kubepods.slice/x/memory.max": "6\n"})
    paths = {} if path is None else {"": path}

    assert Limits(str(tmp_path / "root")).of(paths) == Usage()


@pytest.mark.parametrize("text", ["", "N/A", "-1", "max", "1e9", b"\xff\xff"])
def test_what_makes_no_sense_is_absent(tmp_path, text):
    """In every one of the files."""
    names = ("memory.max", "memory.current", "memory.stat", "memory.events", "cpu.max", "cpu.stat")

    assert Limits(plant(tmp_path, dict.fromkeys(names, text))).of_container() == Usage()


@pytest.mark.parametrize("quota", ["100000 0", "0 100000", "100000", "max", "100000 -5"])
def test_a_quota_that_makes_no_sense_is_absent(tmp_path, quota):
    """No division by nothing."""
    assert Limits(plant(tmp_path, {"cpu.max": quota, "cpu.stat": "throttled_usec 5\n"})).of_container() == Usage()


def test_more_to_give_back_than_there_is_leaves_nothing(tmp_path):
    """The two files are read one after the other."""
    files = {"memory.max": "1000\n", "memory.current": "10\n", "memory.stat": "inactive_file 12\n"}

    assert Limits(plant(tmp_path, files)).of_container().memory_used == 0


def test_an_error_is_an_error(tmp_path):
    """A group that is there and cannot be read must not look like one without limits."""
    with pytest.raises(OSError, match="injected"):
        Limits(plant(tmp_path, SLURM), failing(errno.EIO)).of({"": TASK})


def test_this_machine_can_be_read():
    """Whatever it has."""
    usage = Limits().of_container()
    assert usage.memory_limit is None or usage.memory_limit > 0
