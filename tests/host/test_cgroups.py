"""From the control groups of a process to jobs, pods and containers."""

from __future__ import annotations

import errno

import pytest
from tests.host.trees import failing, plant

from trainvitals.host.cgroups import Cgroups, Placement, groups, placement

ID = "4f" * 32
OTHER = "a0" * 32
UID = "0f8a4c1e-93b7-4d52-8f60-7a1d2c3b4e5f"
UNDERSCORED = UID.replace("-", "_")
HASH = "c1" * 16

PATHS = {
    # Slurm
    "/slurm/uid_1000/job_123/step_0/task_3": Placement("123", "0"),
    "/slurm/uid_1000/job_123/step_batch/task_0": Placement("123", "batch"),
    "/slurm_node7/uid_1000/job_88/step_extern": Placement("88", "extern"),
    "/slurm/uid_1000/job_123": Placement("123", ""),
    "/system.slice/slurmstepd.scope/job_4321/step_0/user/task_0": Placement("4321", "0"),
    "/system.slice/node7_slurmstepd.scope/job_4321/step_interactive/slurm": Placement("4321", "interactive"),
    "/slurmstepd.scope/job_7/step_1+0/user/task_2": Placement("7", "1+0"),
    "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_2/user/task_0": Placement("s5K1KKYAYG5D00", "2"),
    "/system.slice/slurmstepd.scope/system": Placement(),
    "/system.slice/slurmd.service": Placement(),
    # Kubernetes
    f"/kubepods/burstable/pod{UID}/{ID}": Placement(pod_uid=UID, container_id=ID),
    f"/kubepods/pod{UID}/{ID}": Placement(pod_uid=UID, container_id=ID),
    f"/kubepods/besteffort/pod{HASH}/{ID}": Placement(pod_uid=HASH, container_id=ID),
    f"/kubepods/pod{UID}/crio-{ID}": Placement(pod_uid=UID, container_id=ID, runtime="cri-o"),
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope": (
        Placement(pod_uid=UID, container_id=ID, runtime="containerd")
    ),
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope/init.scope": (
        Placement(pod_uid=UID, container_id=ID, runtime="containerd")
    ),
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope/container": (
        Placement(pod_uid=UID, container_id=ID, runtime="cri-o")
    ),
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-conmon-{ID}.scope": Placement(pod_uid=UID),
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/docker-{ID}.scope": (
        Placement(pod_uid=UID, container_id=ID, runtime="docker")
    ),
    f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{ID}": (
        Placement(pod_uid=UID, container_id=ID, runtime="containerd")
    ),
    # A node of kind is a container.
    f"/docker/{OTHER}/kubelet/kubepods/besteffort/pod{UID}/{ID}": Placement(pod_uid=UID, container_id=ID),
    f"/system.slice/docker-{OTHER}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
    f"kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope": (
        Placement(pod_uid=UID, container_id=ID, runtime="containerd")
    ),
    # A container whose namespace of groups is not ours.
    f"/../../kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope": (
        Placement(pod_uid=UID, container_id=ID, runtime="containerd")
    ),
    # A Slurm node that is a pod.
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope/system.slice/slurmstepd.scope/job_9/"
    "step_0/user/task_0": Placement("9", "0", UID, ID, "containerd"),
    # Docker, Podman, nerdctl
    f"/docker/{ID}": Placement(container_id=ID, runtime="docker"),
    f"/system.slice/docker-{ID}.scope": Placement(container_id=ID, runtime="docker"),
    f"/machine.slice/libpod-{ID}.scope/container": Placement(container_id=ID, runtime="podman"),
    f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope": (
        Placement(container_id=ID, runtime="podman")
    ),
    f"/machine.slice/libpod-conmon-{ID}.scope": Placement(),
    f"/system.slice/nerdctl-{ID}.scope": Placement(container_id=ID, runtime="containerd"),
    f"/default/{ID}": Placement(container_id=ID),
    # Neither
    "/": Placement(),
    "": Placement(),
    "/user.slice/user-1000.slice/session-3.scope": Placement(),
    "/system.slice/kubelet.service": Placement(),
    "/kubepods.slice/kubepods-pod_broken.slice": Placement(),
    f"/docker/{ID[:-1]}": Placement(),
    f"/docker/{ID}0": Placement(),
    # A user names the groups below user.slice: no job of Slurm is there.
    "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_1/step_0": Placement(),
    "/user.slice/slurm/uid_0/job_1/step_0": Placement(),
    "/slurm/job_1/step_0": Placement(),
    "/job_1/step_0": Placement(),
    "/system.slice/slurmstepd.scope/job_12345678901/step_0": Placement(),
    "/system.slice/slurmstepd.scope/job_\u0661/step_0": Placement(),
    "/" * 5000 + "x/" * 5000: Placement(),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_tells_job_pod_and_container(path):
    """In version 2 there is one line."""
    assert placement(groups(f"0::{path}\n")) == PATHS[path]


def test_in_version_1_the_hierarchy_that_knows_counts():
    """Slurm makes groups only for the controllers that it uses."""
    text = (
        "12:pids:/system.slice/slurmd.service\n"
        "11:cpu,cpuacct:/system.slice/slurmd.service\n"
        "5:memory:/slurm/uid_1000/job_55/step_1/task_0\n"
        "4:freezer:/slurm/uid_1000/job_55/step_1\n"
        "1:name=systemd:/system.slice/slurmd.service\n"
        "0::/system.slice/slurmd.service\n"
    )

    assert placement(groups(text)) == Placement("55", "1")
    assert groups(text) == {
        "pids": "/system.slice/slurmd.service",
        "cpu": "/system.slice/slurmd.service",
        "cpuacct": "/system.slice/slurmd.service",
        "memory": "/slurm/uid_1000/job_55/step_1/task_0",
        "freezer": "/slurm/uid_1000/job_55/step_1",
        "name=systemd": "/system.slice/slurmd.service",
        "": "/system.slice/slurmd.service",
    }


def test_a_path_may_hold_a_colon():
    """Only the first two part the fields."""
    assert groups("0::/a:b:c\nbroken\n1:\n") == {"": "/a:b:c"}


def test_a_process_that_is_gone_or_hidden_has_no_groups(tmp_path):
    """None, also when the kernel fails in the middle."""
    proc = plant(tmp_path, {"10/cgroup": f"0::/docker/{ID}\n"})

    assert Cgroups(proc).of(10) == {"": f"/docker/{ID}"}
    assert Cgroups(proc).of(11) is None
    for number in (errno.ESRCH, errno.EACCES, errno.EIO):
        assert Cgroups(proc, failing(number)).of(10) is None


def test_this_process_has_groups():
    """Whatever they are called here."""
    import os

    assert Cgroups().of(os.getpid())
