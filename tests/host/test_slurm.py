"""Files that a prolog of Slurm leaves, and the driver's list of device files."""

from __future__ import annotations

import errno
import os

import pytest
from tests.held import held, new_since
from tests.host.trees import failing, plant

from trainvitals.host.slurm import Job, JobFolder, Minors

GPU = "GPU-0f8a4c1e-93b7-4d52-8f60-7a1d2c3b4e5f"
OTHER = "GPU-1b2c3d4e-0001-0002-0003-000000000004"
MIG = "MIG-77777777-0001-0002-0003-000000000004"
BOOT = "b007"
NOW = 1_000_000.0


def content(**fields):
    """Return what a prolog writes for job 5, with other fields."""
    known = {"format": "1", "boot_id": BOOT, "time": "999990", "job_id": "5", "user": "alice", "job_gpus": "3"}
    return "".join(f"{name}={value}\n" for name, value in {**known, **fields}.items())


def folder(tmp_path, files, *, groups=None, now=NOW, owner=None):
    """Return a folder of jobs with these files, below control groups with these folders."""
    path = tmp_path / "jobs"
    path.mkdir(mode=0o755, exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(text)
        (path / name).chmod(0o644)
    for name in groups or ():
        (tmp_path / "groups" / name).mkdir(parents=True, exist_ok=True)
    return JobFolder(
        str(path),
        boot_id=BOOT,
        owner=os.getuid() if owner is None else owner,
        groups=str(tmp_path / "groups"),
        clock=lambda: now,
    )


@pytest.mark.parametrize(
    ("fields", "uuids", "minors"),
    [
        ({"job_gpus": "0,1"}, (), (0, 1)),
        ({"job_gpus": "2-4,7"}, (), (2, 3, 4, 7)),
        ({"job_gpus": "1,1, 2"}, (), (1, 2)),
        # The other two count from 0 in each job.
        ({"job_gpus": "6", "cuda_visible_devices": "0", "gpu_device_ordinal": "0"}, (), (6,)),
        ({"job_gpus": "", "cuda_visible_devices": "0,1", "gpu_device_ordinal": "0,1"}, (), ()),
        # UUIDs are trusted before numbers, wherever they stand.
        ({"job_gpus": "6", "cuda_visible_devices": f"{GPU},{OTHER}"}, (GPU, OTHER), ()),
        ({"job_gpus": f"{GPU}"}, (GPU,), ()),
        ({"job_gpus": "6", "gpu_device_ordinal": f"{OTHER}"}, (OTHER,), ()),
        ({"job_gpus": "0,1", "cuda_visible_devices": MIG}, (MIG,), ()),
        # Drivers before 470 name an instance by its GPU.
        ({"cuda_visible_devices": f"MIG-{GPU}/7/0,MIG-{GPU}/8/0"}, (GPU,), ()),
        # None of these is a device.
        ({"job_gpus": "NoDevFiles", "cuda_visible_devices": "NoDevFiles"}, (), ()),
        ({"job_gpus": "none,-1,1.5,99999,\u0661,0x1"}, (), ()),
        ({"job_gpus": "5-3"}, (), ()),
        ({"job_gpus": "0-9999"}, (), tuple(range(257))),
        ({"cuda_visible_devices": f"{GPU}x,{GPU[:-1]}", "job_gpus": "1"}, (), (1,)),
    ],
)
def test_every_spelling_of_a_gpu(tmp_path, fields, uuids, minors):
    """UUIDs of GPUs and MIG instances, and numbers of device files."""
    assert folder(tmp_path, {"5": content(**fields)}).jobs() == [Job("5", "alice", "", uuids, minors)]


def test_jobs_come_in_the_order_of_their_numbers(tmp_path):
    """With their users; names that are no number are no files of ours."""
    files = {
        "12": content(job_id=12, user="bob", sluid="s5K1KKYAYG5D00"),
        "9": content(job_id=9),
        ".9.77": content(job_id=77),
        "README": content(job_id=78),
        "\u0665": content(job_id=79),
    }

    assert folder(tmp_path, files).jobs() == [
        Job("9", "alice", minors=(3,)),
        Job("12", "bob", "s5K1KKYAYG5D00", minors=(3,)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 100,
        "job_id=5\n",
        content(format="2"),
        content(job_id="x"),
        content(job_id="-5"),
        content(job_id=""),
        content(boot_id="another"),
        content(boot_id=""),
        content(time="x"),
        "x" * 100_000 + "\n" + content(),
    ],
)
def test_a_file_that_makes_no_sense_costs_itself(tmp_path, text):
    """One of an earlier boot too; the other job stays."""
    made = folder(tmp_path, {"5": text, "6": content(job_id=6)})

    assert [job.job_id for job in made.jobs()] == ["6"]


def test_without_a_folder_there_is_no_job(tmp_path):
    """Nothing was set up, or a file is in its place."""
    (tmp_path / "file").write_text("")

    assert JobFolder(str(tmp_path / "none"), boot_id=BOOT).jobs() == []
    assert JobFolder(str(tmp_path / "file" / "x"), boot_id=BOOT).jobs() == []


def test_a_folder_that_others_may_write_is_refused(tmp_path):
    """Anybody could give any device to any job there."""
    made = folder(tmp_path, {"5": content()})
    assert len(made.jobs()) == 1
    for mode in (0o775, 0o757, 0o1777):
        (tmp_path / "jobs").chmod(mode)
        with pytest.raises(PermissionError, match="that only it may write"):
            made.jobs()


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    """Only root's counts, as a rule."""
    with pytest.raises(PermissionError, match=f"of user {os.getuid() + 1}"):
        folder(tmp_path, {"5": content()}, owner=os.getuid() + 1).jobs()


def test_a_link_to_a_folder_is_refused(tmp_path):
    """Whoever set it could set it to anything."""
    folder(tmp_path, {"5": content()})
    (tmp_path / "link").symlink_to(tmp_path / "jobs")

    with pytest.raises(PermissionError):
        JobFolder(str(tmp_path / "link"), boot_id=BOOT, owner=os.getuid()).jobs()


def test_files_that_are_not_to_be_trusted_cost_themselves(tmp_path):
    """Links, pipes, folders, and files that others may write or nobody may read; no descriptor is left open."""
    made = folder(tmp_path, {"5": content(), "6": content(job_id=6), "10": content(job_id=10)})
    path = tmp_path / "jobs"
    (path / "7").symlink_to(path / "5")
    os.mkfifo(path / "8", 0o644)
    (path / "9").mkdir()
    (path / "6").chmod(0o666)
    (path / "10").chmod(0o664)
    before = held()

    assert [job.job_id for job in made.jobs()] == ["5"]
    assert new_since(before) == []


GROUPS = {
    "v2": ("system.slice/slurmstepd.scope/job_5/step_0", "system.slice/slurmstepd.scope/system"),
    "v2 of several daemons": ("system.slice/node7_slurmstepd.scope/job_5",),
    "v2 in a container": ("slurmstepd.scope/job_5",),
    "v2 of Slurm 26.05": ("system.slice/slurmstepd.scope/s5K1KKYAYG5D00",),
    "v1": ("memory/slurm/uid_1000/job_5", "cpuset/slurm/uid_1000/job_5"),
    "v1 of several daemons": ("freezer/slurm_node7/uid_1000/job_5/step_batch",),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_a_job_without_its_group_is_gone(tmp_path, kind):
    """Its epilog did not run; the job whose group is there stays."""
    old = {"time": "990000", "sluid": "s5K1KKYAYG5D00"}
    files = {"5": content(**old), "6": content(**{**old, "job_id": 6, "sluid": "s5K1KKYAYG5D01"})}

    assert [job.job_id for job in folder(tmp_path, files, groups=GROUPS[kind]).jobs()] == ["5"]


def test_a_job_that_has_just_begun_needs_no_group(tmp_path):
    """The prolog runs before Slurm makes it."""
    made = folder(tmp_path, {"6": content(job_id=6, time="999500")}, groups=GROUPS["v2"])

    assert [job.job_id for job in made.jobs()] == ["6"]


def test_where_slurm_makes_no_groups_a_job_may_be_old(tmp_path):
    """A day is no reason to forget it, a month is; the scope alone says nothing."""
    made = folder(
        tmp_path,
        {"5": content(time=str(int(NOW) - 86400)), "6": content(job_id=6, time=str(int(NOW) - 31 * 86400))},
        groups=("system.slice/slurmstepd.scope/system",),
    )

    assert [job.job_id for job in made.jobs()] == ["5"]


def test_once_groups_were_seen_their_absence_counts(tmp_path):
    """The last job ended without an epilog: no group is left, and its file says nothing any more."""
    made = folder(tmp_path, {"5": content(time="990000")}, groups=GROUPS["v2"])
    assert len(made.jobs()) == 1

    (tmp_path / "groups" / GROUPS["v2"][0]).rmdir()
    (tmp_path / "groups" / GROUPS["v2"][0]).parent.rmdir()

    assert made.jobs() == []


def test_too_many_files_are_not_all_read(tmp_path):
    """A folder that filled up stays bounded."""
    made = folder(tmp_path, {str(number): content(job_id=number) for number in range(1, 1201)})

    assert len(made.jobs()) == 1024


# The driver's list ---------------------------------------------------------------------------------------------------


def information(uuid, minor):
    """Return what NVIDIA's driver says of a GPU."""
    return (
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 253\n"
        f"GPU UUID: \t {uuid}\nVideo BIOS: \t 96.00.74.00.01\nBus Type: \t PCIe\n"
        f"Bus Location: \t 0000:07:00.0\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
    )


def test_a_device_file_is_found_by_its_number(tmp_path):
    """/dev/nvidia0 may be at the highest address, and so the last of nvidia-smi."""
    proc = plant(
        tmp_path,
        {
            "driver/nvidia/gpus/0000:07:00.0/information": information(GPU, 3),
            "driver/nvidia/gpus/0000:c7:00.0/information": information(OTHER, 0),
        },
    )
    minors = Minors(proc)

    assert minors.find(0) == (OTHER, "0000:c7:00.0")
    assert minors.find(3) == (GPU, "0000:07:00.0")
    assert minors.find(1) is None


def test_a_gpu_that_the_driver_has_not_opened_has_an_address(tmp_path):
    """Its UUID is question marks then."""
    text = information("GPU-????????-????-????-????-????????????", 2)
    minors = Minors(plant(tmp_path, {"driver/nvidia/gpus/0000:07:00.0/information": text}))

    assert minors.find(2) == ("", "0000:07:00.0")


def test_the_driver_is_asked_once(tmp_path):
    """One that is stuck might not answer: what is known is kept, also when the GPU falls off the bus."""
    proc = plant(tmp_path, {"driver/nvidia/gpus/0000:07:00.0/information": information(GPU, 0)})
    asked = []

    def opener(path):
        asked.append(path)
        with open(path, "rb") as file:
            return file.read()

    minors = Minors(proc, opener)
    for _ in range(3):
        assert minors.find(0) == (GPU, "0000:07:00.0")
        assert minors.find(9) is None
    (tmp_path / "driver/nvidia/gpus/0000:07:00.0/information").unlink()

    assert minors.find(0) == (GPU, "0000:07:00.0")
    assert len(asked) == 1


def test_a_gpu_that_came_later_is_found(tmp_path):
    """Plugged in, or rescanned after it was lost."""
    minors = Minors(str(tmp_path))
    assert minors.find(0) is None

    plant(tmp_path, {"driver/nvidia/gpus/0000:07:00.0/information": information(GPU, 0)})

    assert minors.find(0) == (GPU, "0000:07:00.0")


@pytest.mark.parametrize("text", ["", "N/A", "Device Minor: x\n", "Device Minor:\n", b"\xff\xff"])
def test_what_the_driver_does_not_say_is_not_known(tmp_path, text):
    """No minor number, no mapping; a file that fails costs itself."""
    proc = plant(
        tmp_path,
        {
            "driver/nvidia/gpus/0000:07:00.0/information": text,
            "driver/nvidia/gpus/0000:08:00.0/information": information(OTHER, 1),
        },
    )

    assert Minors(proc).find(0) is None
    assert Minors(proc).find(1) == (OTHER, "0000:08:00.0")
    assert Minors(proc, failing(errno.EIO)).find(1) is None
