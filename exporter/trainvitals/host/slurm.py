"""Which job of Slurm was given which GPUs: files that a prolog writes and an epilog removes.

``deploy/slurm/prolog.sh`` writes one file per job, a line ``name=value`` for each variable of Slurm that matters; what
they mean is decided here.  What is trusted, in this order:

1. UUIDs, of a GPU or of a MIG instance, in ``CUDA_VISIBLE_DEVICES``, ``SLURM_JOB_GPUS`` or ``GPU_DEVICE_ORDINAL``
   (Slurm 25.11 writes them into the first).
2. Numbers in ``SLURM_JOB_GPUS``: those of the device files, as Slurm reads them off their names: 3 is /dev/nvidia3.
   That is the minor number and not the index of nvidia-smi; the driver says which minor number is at which address.

Numbers in the other two variables may count from 0 in each job, and are never used.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainvitals.host import files
from trainvitals.host.cgroups import JOB, SLUID

_MOST_FILES = 1024
_LARGEST_FILE = 16384
_MOST_DEVICES = 256
#: A prolog runs before Slurm makes the groups of the job.
_GRACE = 600.0
#: Where groups do not tell that a job is gone, and its epilog never ran.
_LONGEST_JOB = 30 * 86400.0
_HEX = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_UUID = re.compile(f"(?:GPU|MIG)-{_HEX}", re.IGNORECASE)
#: Drivers before 470 name an instance by its GPU and two numbers.
_OLD_MIG = re.compile(f"MIG-(GPU-{_HEX})/[0-9]{{1,3}}/[0-9]{{1,3}}", re.IGNORECASE)
_NUMBERS = re.compile("([0-9]{1,4})(?:-([0-9]{1,4}))?")
#: Controllers below which version 1 has the groups of Slurm.
_CONTROLLERS = ("freezer", "memory", "cpuset", "devices", "cpu", "cpuacct")


@dataclass(frozen=True)
class Job:
    """A job with GPUs on this node: their UUIDs, or the numbers of their device files where it has no UUIDs."""

    job_id: str
    user: str = ""
    #: The other name of a job in Slurm 26.05 and newer; groups are called so.
    sluid: str = ""
    uuids: tuple[str, ...] = ()
    minors: tuple[int, ...] = ()


class JobFolder:
    """The files of all jobs.

    Only files of ``owner`` in a folder of ``owner`` that nobody else may write are read.  Files of an earlier boot
    (``boot_id``) and of jobs that are gone are ignored.  ``groups`` is where control groups are mounted, ``clock``
    gives wall time.
    """

    def __init__(
        self,
        folder: str,
        *,
        boot_id: str,
        owner: int = 0,
        groups: str = "/sys/fs/cgroup",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._owner = owner
        self._groups = groups
        self._clock = clock
        self._makes_groups = False

    def jobs(self) -> list[Job]:
        """Return the jobs that run here, in the order of their numbers.  Raises OSError when the folder is closed."""
        try:
            status = os.lstat(self._folder)
            names = sorted(os.listdir(self._folder))[:_MOST_FILES]
        except (FileNotFoundError, NotADirectoryError):
            return []
        if not self._is_trusted(status, stat.S_ISDIR):
            raise PermissionError(f"{self._folder}: must be a folder of user {self._owner} that only it may write")
        alive = self._alive()
        found = []
        for name in names:
            fields = self._read(os.path.join(self._folder, name)) if name.isascii() and name.isdigit() else {}
            job = _job(fields)
            if job is not None and fields.get("boot_id") == self._boot_id and self._is_here(job, fields, alive):
                found.append(job)
        return sorted(found, key=lambda job: int(job.job_id))

    def _is_trusted(self, status: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
        writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return is_kind(status.st_mode) and status.st_uid == self._owner and not writable

    def _read(self, path: str) -> dict[str, str]:
        """Return the fields of a file; empty for one that is not to be trusted or goes away."""
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if self._is_trusted(os.fstat(descriptor), stat.S_ISREG):
                    text = os.read(descriptor, _LARGEST_FILE).decode("utf-8", "replace")
                    pairs = [line.partition("=") for line in text.splitlines()]
                    return {name: value.strip() for name, _, value in pairs}
            finally:
                os.close(descriptor)
        return {}

    def _alive(self) -> set[str] | None:
        """Return the names of the groups of all jobs, or None where Slurm makes none."""
        root = glob.escape(self._groups)
        found: set[str] = set()
        scopes = [*glob.glob(f"{root}/*slurmstepd.scope"), *glob.glob(f"{root}/*.slice/*slurmstepd.scope")]
        for scope in scopes:
            with contextlib.suppress(OSError):
                found.update(name for name in os.listdir(scope) if JOB.fullmatch(name) or SLUID.fullmatch(name))
        for controller in _CONTROLLERS:
            found.update(os.path.basename(path) for path in glob.glob(f"{root}/{controller}/slurm*/uid_*/job_*"))
        # Without any group there may be no job, or a Slurm that tracks its processes in another way.
        self._makes_groups = self._makes_groups or bool(found)
        return found if self._makes_groups else None

    def _is_here(self, job: Job, fields: dict[str, str], alive: set[str] | None) -> bool:
        started = files.number(fields.get("time"))
        age = self._clock() - started if started is not None else _LONGEST_JOB
        if alive is None or age < _GRACE:
            return age < _LONGEST_JOB
        return f"job_{job.job_id}" in alive or (bool(job.sluid) and job.sluid in alive)


@dataclass(frozen=True)
class _Gpu:
    """What the driver says of one GPU; ``uuid`` is empty until the driver has looked."""

    uuid: str
    pci_address: str


class Minors:
    """Which GPU has which device file, as NVIDIA's driver tells below ``proc``.

    A file is read once: a driver that is stuck may not answer.
    """

    def __init__(self, proc: str = "/proc", opener: files.Opener = files.read_file) -> None:
        self._folder = os.path.join(proc, "driver/nvidia/gpus")
        self._opener = opener
        self._known: dict[str, tuple[int, _Gpu]] = {}

    def find(self, minor: int) -> tuple[str, str] | None:
        """Return the UUID and the PCI address of the GPU behind /dev/nvidiaN, either may be empty; None: not known."""
        if all(number != minor for number, _ in self._known.values()):
            self._look()
        for number, gpu in self._known.values():
            if number == minor:
                return gpu.uuid, gpu.pci_address
        return None

    def _look(self) -> None:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in names[:_MOST_DEVICES]:
            if name in self._known:
                continue
            with contextlib.suppress(OSError):
                text = self._opener(f"{self._folder}/{name}/information").decode("ascii", "replace")
                pairs = [line.partition(":") for line in text.splitlines()]
                fields = {key.strip(): value.strip() for key, _, value in pairs}
                minor = files.number(fields.get("Device Minor"))
                uuid = fields.get("GPU UUID", "")
                if minor is not None:
                    self._known[name] = (minor, _Gpu(uuid if _UUID.fullmatch(uuid) else "", name))


def _job(fields: dict[str, str]) -> Job | None:
    job_id = files.number(fields.get("job_id"))
    if fields.get("format") != "1" or job_id is None:
        return None
    lists = [fields.get(name, "") for name in ("cuda_visible_devices", "job_gpus", "gpu_device_ordinal")]
    for text in lists:
        uuids = _uuids(text)
        if uuids:
            return Job(str(job_id), fields.get("user", ""), fields.get("sluid", ""), uuids=uuids)
    return Job(str(job_id), fields.get("user", ""), fields.get("sluid", ""), minors=_minors(lists[1]))


def _uuids(text: str) -> tuple[str, ...]:
    found = []
    for item in text.split(",")[:_MOST_DEVICES]:
        old = _OLD_MIG.fullmatch(item.strip())
        if old or _UUID.fullmatch(item.strip()):
            found.append(old[1] if old else item.strip())
    return tuple(dict.fromkeys(found))


def _minors(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for item in text.split(",")[:_MOST_DEVICES]:
        numbers = _NUMBERS.fullmatch(item.strip())
        if numbers:
            first = int(numbers[1])
            found += range(first, min(int(numbers[2] or first), first + _MOST_DEVICES) + 1)
    return tuple(dict.fromkeys(found))
