"""Mapping series: ranks, jobs and containers to devices."""

from __future__ import annotations

import os

import pytest
from tests.held import held, new_since
from tests.helpers import Node, Scrape, trainer
from tests.host.trees import plant

from trainvitals.collect.attribution import AttributionCollector
from trainvitals.collect.base import NoData, Sink, Tally
from trainvitals.collect.ranks import LiveRank
from trainvitals.config import Settings
from trainvitals.host import processes
from trainvitals.host.cgroups import Cgroups
from trainvitals.host.slurm import Job, JobFolder, Minors
from trainvitals.telemetry import DeviceProcess, DeviceSample

A = "GPU-aaaaaaaa-0001-0002-0003-000000000004"
B = "GPU-bbbbbbbb-0001-0002-0003-000000000004"
MIG = "MIG-cccccccc-0001-0002-0003-000000000004"
ID = "4f" * 32
UID = "0f8a4c1e-93b7-4d52-8f60-7a1d2c3b4e5f"

POD = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope"
SLURM = "/system.slice/slurmstepd.scope/job_{}/step_{}/user/task_0"


def device(index, uuid, *pids, pci="", up=True, memory=100.0, mig=None):
    """Return a sample of a device with these processes, each with so much memory."""
    listed = tuple(DeviceProcess(pid, memory, mig) for pid in pids)
    return DeviceSample(index=index, uuid=uuid, vendor="nvidia", pci_bus_id=pci, up=up, processes=listed)


class Jobs:
    """Jobs that a prolog told of."""

    def __init__(self, *jobs: Job) -> None:
        self._jobs = list(jobs)

    def jobs(self):
        """Return the jobs."""
        return self._jobs


class Setting:
    """A collector, and what it sees: change it between two scrapes."""

    def __init__(self, tmp_path, *, ranks=(), devices=(), jobs=(), groups=None, gpus=None, sees_host=True):
        self.ranks, self.devices = list(ranks), list(devices)
        proc = {f"{pid}/cgroup": f"0::{path}\n" for pid, path in (groups or {}).items()}
        for address, (uuid, minor) in (gpus or {}).items():
            proc[f"driver/nvidia/gpus/{address}/information"] = f"GPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        root = plant(tmp_path, proc)
        self.collector = AttributionCollector(
            lambda: self.ranks,
            lambda: self.devices,
            Jobs(*jobs),
            Minors(root),
            Cgroups(root),
            sees_host=sees_host,
        )

    def scrape(self):
        """Collect once."""
        tally = Tally()
        sink = Sink(tally, limit=20_000, collector="attribution")
        self.collector.collect(sink)
        assert tally.rejected == {}, "no series comes twice, and no value is impossible"
        return {name.removeprefix("trainvitals_"): value for name, value in Scrape(sink.families()).items()}

    def info(self, family):
        """Collect once and return the labels of the series of a family, as they stand in the text format."""
        prefix = f"{family}{{"
        found = {name.removeprefix(prefix)[:-1]: value for name, value in self.scrape().items() if prefix in name}
        assert set(found.values()) <= {1.0}
        return set(found)


def rank(number, pid=0, uuid="", run="big"):
    """Return a live rank."""
    return LiveRank(run, number, pid, 60.0, uuid)


def place(index, uuid, gpu_instance="", compute_instance=""):
    """Return the labels of a place around which others stand in the order of the alphabet."""
    return f'compute_instance="{compute_instance}",device="{index}",gpu_instance="{gpu_instance}"', f'uuid="{uuid}"'


def on(index, uuid, number, *instance, run="big"):
    """Return the labels of a rank on a device."""
    first, last = place(index, uuid, *instance)
    return f'{first},rank="{number}",run="{run}",{last}'


def given(index, uuid, job, user="", *instance):
    """Return the labels of a job on a device."""
    first, last = place(index, uuid, *instance)
    return f'{first},slurm_job_id="{job}",slurm_user="{user}",{last}'


def contained(index, uuid, *, pod, runtime):
    """Return the labels of a container on a device."""
    first, last = place(index, uuid)
    first = first.replace(",device", f',container_id="{ID}",device')
    return f'{first},pod_uid="{pod}",runtime="{runtime}",{last}'


# Ranks ---------------------------------------------------------------------------------------------------------------


def test_a_rank_has_the_device_that_its_probe_told(tmp_path):
    """By UUID, not by number: device 1 is the first that the job sees. Other processes on it change nothing."""
    setting = Setting(tmp_path, ranks=[rank(0, 10, B), rank(1, 11, A)], devices=[device(0, A, 10), device(1, B, 99)])

    assert setting.info("rank_device_info") == {on(1, B, 0), on(0, A, 1)}


@pytest.mark.parametrize("told", ["", "GPU-dddddddd-0001-0002-0003-000000000004", "0"])
def test_a_rank_that_told_nothing_known_is_found_by_its_process(tmp_path, told):
    """A model over two devices has both; a device without its process is not its own."""
    setting = Setting(
        tmp_path,
        ranks=[rank(0, 10, told)],
        devices=[device(0, A, 10), device(1, B, 10, 99), device(2, "GPU-third", 99)],
    )

    assert setting.info("rank_device_info") == {on(0, A, 0), on(1, B, 0)}


def test_uuids_are_compared_without_their_spelling(tmp_path):
    """CUDA gives the bytes of the UUID of an instance, without saying what it is of."""
    split = device(0, A)
    split.set("mig_info", 1.0, "7", "0", MIG, "1g.10gb")
    setting = Setting(
        tmp_path,
        ranks=[rank(0, uuid=A.upper()), rank(1, uuid=MIG), rank(2, uuid=MIG.replace("MIG-", "GPU-"))],
        devices=[split],
    )

    assert setting.info("rank_device_info") == {on(0, A, 0), on(0, A, 1, "7", "0"), on(0, A, 2, "7", "0")}


def test_a_process_on_an_instance_has_the_instance(tmp_path):
    """As the driver names it."""
    setting = Setting(tmp_path, ranks=[rank(0, 10)], devices=[device(0, A, 10, mig=("3", "0"))])

    assert setting.info("rank_device_info") == {on(0, A, 0, "3", "0")}


def test_without_the_host_s_processes_numbers_mean_nothing(tmp_path):
    """In a container, 10 may be any process of the node: only what the probe told counts, and no memory is shown."""
    setting = Setting(
        tmp_path, ranks=[rank(0, 10), rank(1, 11, B)], devices=[device(0, A, 10), device(1, B, 11)], sees_host=False
    )

    assert setting.scrape() == {f"rank_device_info{{{on(1, B, 1)}}}": 1.0}


@pytest.mark.parametrize("pid", [0, -1])
def test_a_rank_without_a_process_id_matches_no_process(tmp_path, pid):
    """Nor does a driver's list with such a number."""
    setting = Setting(tmp_path, ranks=[rank(0, pid)], devices=[device(0, A, pid)])

    assert setting.info("rank_device_info") == set()


def test_a_device_that_does_not_answer_keeps_its_ranks(tmp_path):
    """Who hangs on it is what one wants to know then. Its memory is not known."""
    split = device(1, B, 11, mig=("3", "0"))
    split.set("mig_info", 1.0, "7", "0", MIG, "1g.10gb")
    setting = Setting(
        tmp_path, ranks=[rank(0, 10), rank(1, 11), rank(2, 0, MIG)], devices=[device(0, A, 10, 99), split]
    )
    before = setting.info("rank_device_info")
    assert before == {on(0, A, 0), on(1, B, 1, "3", "0"), on(1, B, 2, "7", "0")}

    for _ in range(3):
        setting.devices = [one.down("lost") for one in setting.devices]
        assert setting.info("rank_device_info") == before
        assert not any("memory" in name for name in setting.scrape())

    setting.devices = [device(0, A), device(1, B)]
    assert setting.info("rank_device_info") == set()


def test_an_ended_rank_has_no_device(tmp_path):
    """The mapping is of now."""
    setting = Setting(tmp_path, ranks=[rank(0, 10, A)], devices=[device(0, A, 10)])
    assert setting.info("rank_device_info") == {on(0, A, 0)}

    setting.ranks = []

    assert setting.info("rank_device_info") == set()


# Memory --------------------------------------------------------------------------------------------------------------


def test_memory_is_that_of_each_rank_and_of_all_others(tmp_path):
    """One series for what is no rank, however many processes that are."""
    first = DeviceSample(
        index=0,
        uuid=A,
        vendor="nvidia",
        processes=(
            DeviceProcess(10, 500.0),
            DeviceProcess(98, 30.0),
            DeviceProcess(99, 4.0),
            DeviceProcess(11, 7.0),
            DeviceProcess(10, 1.0, ("3", "0")),
        ),
    )
    setting = Setting(tmp_path, ranks=[rank(0, 10, A), rank(1, 11, B)], devices=[first, device(1, B, 11, memory=8.0)])

    memory = {name: value for name, value in setting.scrape().items() if "memory" in name}
    assert memory == {
        f'device_process_memory_bytes{{device="0",rank="0",run="big",uuid="{A}"}}': 501.0,
        f'device_process_memory_bytes{{device="0",rank="1",run="big",uuid="{A}"}}': 7.0,
        f'device_process_memory_bytes{{device="0",rank="",run="",uuid="{A}"}}': 34.0,
        f'device_process_memory_bytes{{device="1",rank="1",run="big",uuid="{B}"}}': 8.0,
    }


def test_a_sum_with_an_unknown_part_is_unknown(tmp_path):
    """A part of it would look like all of it."""
    mixed = DeviceSample(
        index=0,
        uuid=A,
        vendor="nvidia",
        processes=(DeviceProcess(98, 30.0), DeviceProcess(99, None), DeviceProcess(97, 5.0), DeviceProcess(10, 500.0)),
    )
    setting = Setting(tmp_path, ranks=[rank(0, 10)], devices=[mixed])

    memory = {name: value for name, value in setting.scrape().items() if "memory" in name}
    assert memory == {f'device_process_memory_bytes{{device="0",rank="0",run="big",uuid="{A}"}}': 500.0}


# Slurm ---------------------------------------------------------------------------------------------------------------


def test_a_job_has_the_devices_that_it_was_given(tmp_path):
    """Also while nothing runs on them yet."""
    setting = Setting(tmp_path, devices=[device(0, A), device(1, B)], jobs=[Job("55", "alice", uuids=(B,))])

    assert setting.info("device_slurm_job_info") == {given(1, B, "55", "alice")}


def test_a_number_is_that_of_the_device_file(tmp_path):
    """/dev/nvidia0 is the last of nvidia-smi here, and a GPU that the driver has not opened is known by its address."""
    setting = Setting(
        tmp_path,
        devices=[device(0, A, pci="00000000:07:00.0"), device(1, B, pci="00000000:C7:00.0")],
        jobs=[Job("55", "alice", minors=(0,)), Job("56", "bob", minors=(5, 7))],
        gpus={"0000:c7:00.0": (B, 0), "0000:07:00.0": ("GPU-????????-????-????-????-????????????", 5)},
    )

    assert setting.info("device_slurm_job_info") == {given(1, B, "55", "alice"), given(0, A, "56", "bob")}


def test_a_number_that_the_driver_does_not_know_is_no_index(tmp_path):
    """Better no mapping than a wrong one."""
    setting = Setting(tmp_path, devices=[device(0, A)], jobs=[Job("55", "alice", minors=(0,))])

    assert setting.info("device_slurm_job_info") == set()


def test_a_job_that_was_given_an_instance_has_the_instance(tmp_path):
    """And two jobs on one device are two series."""
    split = device(0, A)
    split.set("mig_info", 1.0, "7", "0", MIG, "1g.10gb")
    split.set("mig_info", 1.0, "8", "0", MIG.replace("c", "d"), "1g.10gb")
    setting = Setting(
        tmp_path,
        devices=[split],
        jobs=[Job("55", "alice", uuids=(MIG,)), Job("56", "bob", uuids=(MIG.replace("c", "d"),))],
    )

    assert setting.info("device_slurm_job_info") == {
        given(0, A, "55", "alice", "7", "0"),
        given(0, A, "56", "bob", "8", "0"),
    }


def test_jobs_that_share_a_device_are_two_series(tmp_path):
    """The device's own series stay one."""
    setting = Setting(
        tmp_path, devices=[device(0, A)], jobs=[Job("55", "alice", uuids=(A,)), Job("56", "bob", uuids=(A,))]
    )

    assert setting.info("device_slurm_job_info") == {given(0, A, "55", "alice"), given(0, A, "56", "bob")}


def test_without_a_prolog_control_groups_tell(tmp_path):
    """From the processes on the device, and from ranks whose probe told the device; then the user is not known."""
    setting = Setting(
        tmp_path,
        ranks=[rank(0, 11, B)],
        devices=[device(0, A, 10), device(1, B)],
        groups={10: SLURM.format(55, 0), 11: SLURM.format(56, "batch")},
    )

    assert setting.info("device_slurm_job_info") == {given(0, A, "55"), given(1, B, "56")}
    assert setting.info("rank_slurm_job_info") == {
        'rank="0",run="big",slurm_job_id="56",slurm_step_id="batch",slurm_user=""'
    }


def test_prolog_and_control_group_agree_on_one_series(tmp_path):
    """A job that has the whole device is not shown again for an instance; the user comes from the prolog."""
    setting = Setting(
        tmp_path,
        ranks=[rank(0, 10, A)],
        devices=[device(0, A, 10, mig=("3", "0"))],
        jobs=[Job("55", "alice", uuids=(A,))],
        groups={10: SLURM.format(55, 3)},
    )

    assert setting.info("device_slurm_job_info") == {given(0, A, "55", "alice")}
    assert setting.info("rank_slurm_job_info") == {
        'rank="0",run="big",slurm_job_id="55",slurm_step_id="3",slurm_user="alice"'
    }


def test_a_job_that_its_group_calls_by_another_name_is_known_by_its_number(tmp_path):
    """Slurm 26.05 names groups by SLUID; without a prolog there is only that."""
    sluid = "s5K1KKYAYG5D00"
    group = {10: f"/system.slice/slurmstepd.scope/{sluid}/step_0/user/task_0"}
    known = Setting(
        tmp_path / "known",
        devices=[device(0, A, 10)],
        jobs=[Job("55", "alice", sluid, uuids=(A,))],
        groups=group,
    )
    unknown = Setting(tmp_path / "unknown", devices=[device(0, A, 10)], groups=group)

    assert known.info("device_slurm_job_info") == {given(0, A, "55", "alice")}
    assert unknown.info("device_slurm_job_info") == {given(0, A, sluid)}


def test_a_folder_that_is_not_trusted_costs_only_what_it_would_tell(tmp_path):
    """The rest is shown, and the collector does not look healthy."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs").chmod(0o777)
    jobs = JobFolder(str(tmp_path / "jobs"), boot_id="b", owner=os.getuid())
    made = AttributionCollector(
        lambda: [rank(0, 10, A)], lambda: [device(0, A, 10)], jobs, Minors(str(tmp_path)), Cgroups(str(tmp_path))
    )
    sink = Sink(Tally(), limit=100, collector="attribution")

    with pytest.raises(PermissionError, match="that only it may write"):
        made.collect(sink)

    assert any("rank_device_info" in name for name in Scrape(sink.families()))


# Containers ----------------------------------------------------------------------------------------------------------


def test_pods_and_containers_come_from_control_groups(tmp_path):
    """Of processes on devices and of ranks; a pod that is no training is shown too."""
    setting = Setting(
        tmp_path,
        ranks=[rank(0, 11, B)],
        devices=[device(0, A, 10), device(1, B)],
        groups={10: POD, 11: f"/docker/{ID}"},
    )

    assert setting.info("device_container_info") == {
        contained(0, A, pod=UID, runtime="containerd"),
        contained(1, B, pod="", runtime="docker"),
    }
    assert setting.info("rank_container_info") == {
        f'container_id="{ID}",pod_uid="",rank="0",run="big",runtime="docker"'
    }


def test_a_process_without_a_container_has_no_series(tmp_path):
    """Nor one that went away, or whose group cannot be read."""
    setting = Setting(tmp_path, ranks=[rank(0, 10, A)], devices=[device(0, A, 10, 99)], groups={10: "/user.slice"})

    assert setting.info("device_container_info") | setting.info("rank_container_info") == set()


# Bounds --------------------------------------------------------------------------------------------------------------


def test_without_anything_there_is_nothing(tmp_path):
    """Devices alone are not attributed to anybody."""
    with pytest.raises(NoData):
        Setting(tmp_path, devices=[device(0, A)]).scrape()


def test_many_processes_are_a_few_series(tmp_path):
    """A broken driver's list does not become thousands of series."""
    setting = Setting(tmp_path, devices=[device(0, A, *range(1, 5000), memory=1.0)])

    assert setting.scrape() == {f'device_process_memory_bytes{{device="0",rank="",run="",uuid="{A}"}}': 1024.0}


def test_devices_of_one_uuid_are_one(tmp_path):
    """Two readers of one device must not make a series twice."""
    setting = Setting(tmp_path, ranks=[rank(0, 10, A)], devices=[device(0, A, 10), device(5, A, 10), device(6, "", 10)])

    assert setting.info("rank_device_info") == {on(0, A, 0)}


def test_a_real_rank_is_mapped_to_its_device(spool, tmp_path):
    """Through its file and its lock, and by the driver's list where its probe told no device; nothing is left open."""
    node = Node(spool)
    script = """
        import sys, trainvitals

        trainvitals.init(run="mapped", rank=4)
        trainvitals.step(1, loss=2.0)
        print("ready", flush=True)
        sys.stdin.readline()
    """
    with trainer(script, spool) as process:
        node.scrape()
        setting = Setting(tmp_path, devices=[device(0, A, process.pid)])
        setting.ranks = list(node.collector.live)
        assert setting.info("rank_device_info") == {on(0, A, 4, run="mapped")}
        before = held()
        for _ in range(50):
            setting.scrape()
        assert new_since(before) == []


def test_the_settings_name_the_folder():
    """As the prolog's default does."""
    assert Settings().attribution.slurm_folder == "/run/trainvitals/slurm"
    made = AttributionCollector.from_settings(Settings().attribution, list, list)
    assert made.name == "attribution"


def test_this_machine_knows_whether_it_sees_all_processes(tmp_path):
    """By the number of its namespace; a folder without one sees nothing."""
    assert processes.sees_the_host() == (os.stat("/proc/self/ns/pid").st_ino == 4026531836)
    assert not processes.sees_the_host(str(tmp_path))
