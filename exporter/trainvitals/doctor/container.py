"""Where this process runs: a container, a namespace of process ids, Kubernetes, Slurm, and what it may use there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from trainvitals.doctor.base import Here, Result, absent, ok, problem
from trainvitals.host.cgroups import Cgroups, placement
from trainvitals.host.limits import Limits, Usage
from trainvitals.host.processes import sees_the_host
from trainvitals.host.slurm import JobFolder
from trainvitals.rankfile import boot_id

#: Left by the programs that make containers.
_MARKS = ("/.dockerenv", "/run/.containerenv")
#: What the exporter needs at least: 50 MiB for itself, 20 for the process that reads devices.
_LEAST_MEMORY = 128 * 2**20
_LEAST_CPUS = 0.1
#: What a node of Slurm has.
_SLURM = ("/usr/sbin/slurmd", "/etc/slurm/slurm.conf", "/run/slurm")
_PROLOG = "/etc/slurm/prolog.d/trainvitals.sh"


def inside(here: Here) -> str:
    """Return in what kind of container we are, empty on a node."""
    if here.environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    mark = next((mark for mark in _MARKS if here.exists(mark)), "")
    if mark:
        return "Podman" if "containerenv" in mark else "Docker"
    where = placement(Cgroups(here.path("/proc")).of(os.getpid()) or {})
    return "a container" if where.container_id or where.pod_uid else ""


def namespace(here: Here, sees_host: Callable[[str], bool] = sees_the_host) -> Iterator[Result]:
    """Check that process ids here are those of the node: drivers and the kernel's log speak of no others."""
    if sees_host(here.path("/proc")):
        yield ok("process ids are those of the node")
        return
    where = inside(here)
    if where == "Kubernetes":
        action = """kubectl patch daemonset trainvitals -p '{"spec":{"template":{"spec":{"hostPID":true}}}}'"""
    else:
        action = "docker run --pid=host ..."
    why = "a namespace of its own: processes on devices cannot be told from others, nor matched with ranks"
    if here.exists("/dev/nvidiactl"):
        yield problem(why, action)
    else:
        yield absent(why, action)


def kubernetes(here: Here) -> Iterator[Result]:
    """Say whether this is a pod, or a node with pods."""
    if here.environ.get("KUBERNETES_SERVICE_HOST"):
        yield ok("this is a pod; the pods of ranks are found by their control groups")
    elif here.exists("/var/lib/kubelet"):
        yield ok("this node runs a kubelet; the pods of ranks are found by their control groups")
    else:
        yield absent("no pod, and no kubelet on this node")


def limits(here: Here) -> Iterator[Result]:
    """Check what the control groups leave to the exporter."""
    paths = Cgroups(here.path("/proc")).of(os.getpid()) or {}
    usage = Limits(here.path("/sys/fs/cgroup")).of(paths)
    if usage.memory_limit is not None and usage.memory_limit < _LEAST_MEMORY:
        yield problem(
            f"{usage.memory_limit / 2**20:.0f} MiB of memory at most; the exporter needs {_LEAST_MEMORY >> 20}",
            "systemctl set-property trainvitals-exporter MemoryMax=256M",
        )
    elif usage.cpus is not None and usage.cpus < _LEAST_CPUS:
        yield problem(
            f"{usage.cpus:g} CPUs at most; a round of the collectors would take seconds",
            "systemctl set-property trainvitals-exporter CPUQuota=50%",
        )
    else:
        yield ok(_words(usage))


def _words(usage: Usage) -> str:
    memory = "memory without a limit" if usage.memory_limit is None else f"{usage.memory_limit / 2**20:,.0f} MiB"
    cpus = "CPUs without a quota" if usage.cpus is None else f"{usage.cpus:g} CPUs"
    return f"{memory}, {cpus}"


def cgroups(here: Here) -> Iterator[Result]:
    """Say which version of control groups this node has."""
    if here.exists("/sys/fs/cgroup/cgroup.controllers"):
        yield ok("version 2")
    elif here.exists("/sys/fs/cgroup/memory") or here.exists("/sys/fs/cgroup/cpu"):
        yield ok("version 1: limits and kills of a job are read, its pressure is not")
    else:
        yield absent("/sys/fs/cgroup shows no control group", "mount -t cgroup2 cgroup2 /sys/fs/cgroup")


def slurm(here: Here, owner: int = 0) -> Iterator[Result]:
    """Check that jobs of Slurm are known, and that the prolog's files, where there are some, can be trusted."""
    folder = here.settings.attribution.slurm_folder
    place = here.path(folder)
    if not os.path.lexists(place):
        if any(here.exists(path) for path in _SLURM):
            why = f"no {folder}: jobs are known by their control groups alone, not the GPUs that they do not use"
            yield ok(why, f"install -m 755 deploy/slurm/prolog.sh {_PROLOG}")
        else:
            yield absent("no Slurm on this node")
        return
    try:
        jobs = JobFolder(place, boot_id=boot_id(), owner=owner, groups=here.path("/sys/fs/cgroup")).jobs()
    except OSError as error:
        yield problem(f"{error.strerror or error}", f"chown root:root {folder} && chmod 755 {folder}")
        return
    yield ok(f"the prolog writes to {folder}; {len(jobs)} jobs with GPUs run here")
