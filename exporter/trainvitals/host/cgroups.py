"""Whose process is it?  Control groups carry the ids of Slurm jobs, Kubernetes pods and containers in their paths.

Paths that are understood, in either version of cgroups::

    /slurm[_NODE]/uid_1000/job_123/step_batch/task_0                                      Slurm, v1
    [/system.slice]/[NODE_]slurmstepd.scope/job_123/step_0/user/task_0                    Slurm, v2
    .../slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0                                Slurm 26.05: its SLUID
    /kubepods[/burstable]/podUID/ID                                                       Kubernetes, cgroupfs
    /kubepods.slice/kubepods-podUID.slice/cri-containerd-ID.scope                         Kubernetes, systemd
    /system.slice/containerd.service/kubepods-burstable-podUID.slice:cri-containerd:ID    containerd, mixed drivers
    /kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podUID.slice/crio-ID.scope     kind, and below /docker/ID
    /docker/ID, /system.slice/docker-ID.scope, .../libpod-ID.scope[/container]            Docker, Podman

The innermost container counts: that of a pod on a node that is a container itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from trainvitals.host import files

_MOST_PARTS = 64
JOB = re.compile(r"job_([0-9]{1,10})")
SLUID = re.compile(r"s[0-9A-Z]{13}")
_STEP = re.compile(r"step_([0-9]{1,10}(?:\+[0-9]{1,10})?|batch|extern|interactive)")
#: uid of a pod: dashes become underscores in the names of systemd; static pods have a hash.
_POD = re.compile(r"(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$")
_CONTAINER = re.compile(r"(?:(?P<prefix>[a-z][a-z-]*)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?")
_RUNTIMES = {
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
    "docker": "docker",
    "libpod": "podman",
}


@dataclass(frozen=True)
class Placement:
    """Where a process belongs; what is not known is empty.

    ``slurm_job`` is the number of a job, or the SLUID where Slurm names the groups so.
    """

    slurm_job: str = ""
    slurm_step: str = ""
    pod_uid: str = ""
    container_id: str = ""
    runtime: str = ""


def groups(text: str) -> dict[str, str]:
    """Return the paths of /proc/PID/cgroup by controller; that of version 2 has the name "".

    A line is ``number:controllers:path``.
    """
    paths: dict[str, str] = {}
    for line in text.splitlines()[:_MOST_PARTS]:
        fields = line.split(":", 2)
        if len(fields) == 3:
            for controller in fields[1].split(",")[:_MOST_PARTS]:
                paths.setdefault(controller, fields[2])
    return paths


def placement(paths: dict[str, str]) -> Placement:
    """Return what the paths of a process say; of several hierarchies the first that knows counts."""
    found = Placement()
    for path in dict.fromkeys(paths.values()):
        parts = [part for part in path.split("/") if part][:_MOST_PARTS]
        if not found.slurm_job:
            job, step = _slurm(parts)
            found = replace(found, slurm_job=job, slurm_step=step)
        if not found.pod_uid:
            found = replace(found, pod_uid=_pod(parts))
        if not found.container_id:
            container, runtime = _container(parts)
            found = replace(found, container_id=container, runtime=runtime)
    return found


class Cgroups:
    """Reads the control groups of processes below ``proc``."""

    def __init__(self, proc: str = "/proc", opener: files.Opener = files.read_file) -> None:
        self._proc = proc
        self._opener = opener

    def of(self, pid: int) -> dict[str, str] | None:
        """Return the paths of a process by controller, or None when it is gone or cannot be seen."""
        try:
            text = files.optional(f"{self._proc}/{pid}/cgroup", self._opener)
        except OSError:
            return None
        return None if text is None else groups(text)


def _slurm(parts: list[str]) -> tuple[str, str]:
    # Below user.slice the user makes the names.
    if parts[:1] == ["user.slice"]:
        return "", ""
    for index, part in enumerate(parts):
        named = JOB.fullmatch(part)
        is_v1 = index >= 2 and parts[index - 2].startswith("slurm") and parts[index - 1].startswith("uid_")
        is_v2 = index >= 1 and parts[index - 1].endswith("slurmstepd.scope")
        job = named[1] if named else part if is_v2 and SLUID.fullmatch(part) else ""
        if job and (is_v1 or is_v2):
            step = _STEP.fullmatch(parts[index + 1]) if index + 1 < len(parts) else None
            return job, step[1] if step else ""
    return "", ""


def _pod(parts: list[str]) -> str:
    uid = ""
    for part in parts:
        found = _POD.search(part.split(":")[0])
        uid = found[1].replace("_", "-") if found else uid
    return uid


def _container(parts: list[str]) -> tuple[str, str]:
    container, runtime = "", ""
    for index, part in enumerate(parts):
        # containerd under systemd names a group "kubepods-podUID.slice:cri-containerd:ID".
        found = _CONTAINER.fullmatch(part.split(":", 1)[1] if ".slice:" in part else part)
        if found is None or (found["prefix"] or "").endswith("conmon"):
            continue
        parent = parts[index - 1] if index else ""
        container, runtime = found["id"], _RUNTIMES.get(found["prefix"] or parent, "")
    return container, runtime
