"""Readings of the node through psutil, for what a training run competes for: CPU, memory, disks, network.

File systems over a network are left out for now: a server that is away blocks `statvfs` for ever, and a bounded probe
per mount is not there yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

#: Types of file systems that ask another machine or a user's process.
_REMOTE = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ceph",
        "glusterfs",
        "lustre",
        "gpfs",
        "beegfs",
        "afs",
        "9p",
        "virtiofs",
        "wekafs",
    }
)
#: Images that are full by their nature.
_IMAGES = frozenset({"squashfs", "iso9660", "udf", "erofs", "cramfs"})
#: Shown whatever they are on: data loaders, collective libraries and rank files fill the shared memory together.
_ALWAYS = ("/", "/dev/shm")
#: Interfaces inside this machine, whose bytes pass a physical one or none at all.
_VIRTUAL = ("veth", "docker", "br-", "virbr", "cni", "cali", "flannel", "cilium", "lxc", "tap", "dummy", "ifb")


@dataclass(frozen=True)
class Filesystem:
    """Space of one mounted file system in bytes; ``available`` is what users other than root can still fill."""

    mountpoint: str
    size: int
    available: int


class Host:
    """Reads this node.  Each method is one source and raises OSError or psutil.Error when it cannot be read.

    ``library`` is psutil, ``sysfs`` where the kernel's device tree is mounted.
    """

    def __init__(
        self,
        library: Any = psutil,
        *,
        sysfs: str = "/sys",
        statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
        isdir: Callable[[str], bool] = os.path.isdir,
    ) -> None:
        self._psutil = library
        self._sysfs = sysfs
        self._statvfs = statvfs
        self._isdir = isdir

    def cpu_seconds(self) -> dict[str, float]:
        """Return CPU time by mode, summed over all CPUs."""
        times: dict[str, float] = self._psutil.cpu_times()._asdict()
        # The kernel counts the time of guests in user and nice already.
        return {mode: seconds for mode, seconds in times.items() if not mode.startswith("guest")}

    def cpus(self) -> int | None:
        """Return the number of logical CPUs."""
        count: int | None = self._psutil.cpu_count(logical=True)
        return count

    def load1(self) -> float:
        """Return the load average over one minute."""
        return float(self._psutil.getloadavg()[0])

    def memory(self) -> tuple[int, int]:
        """Return total and available memory in bytes."""
        memory = self._psutil.virtual_memory()
        return memory.total, memory.available

    def swap_used(self) -> int:
        """Return the bytes of swap in use."""
        used: int = self._psutil.swap_memory().used
        return used

    def boot_timestamp(self) -> float:
        """Return when the node booted, in seconds since the epoch."""
        return float(self._psutil.boot_time())

    def filesystems(self) -> list[Filesystem]:
        """Return the file systems on block devices of this node, each once, the root and shared memory.

        One that cannot be read, or is no folder (a container's /etc/hosts), costs only itself.
        """
        found = []
        for mountpoint in self._mountpoints():
            try:
                space = self._statvfs(mountpoint)
            except OSError:
                continue
            if space.f_blocks:
                size, available = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
                found.append(Filesystem(mountpoint, size, available))
        return found

    def _mountpoints(self) -> list[str]:
        shortest: dict[str, str] = {}
        for part in self._psutil.disk_partitions(all=True):
            if part.fstype in _REMOTE or part.fstype in _IMAGES or part.fstype.startswith("fuse"):
                continue
            if part.mountpoint not in _ALWAYS and not part.device.startswith("/dev/") and part.fstype != "zfs":
                continue
            # Bind mounts and subvolumes show the same space again.
            known = shortest.get(part.device)
            if known is None or len(part.mountpoint) < len(known):
                shortest[part.device] = part.mountpoint
        return sorted(path for path in shortest.values() if self._isdir(path))

    def network(self) -> dict[str, tuple[int, int]]:
        """Return received and sent bytes by interface, without the loopback and interfaces of containers."""
        counters = self._psutil.net_io_counters(pernic=True, nowrap=False)
        return {
            name: (counter.bytes_recv, counter.bytes_sent)
            for name, counter in counters.items()
            if name != "lo" and not name.startswith(_VIRTUAL)
        }

    def disks(self) -> tuple[int, int] | None:
        """Return read and written bytes, summed over physical disks; None without any."""
        counters = self._psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        # Partitions, RAID and volumes of LVM would count the same bytes again; only a disk has a device behind it.
        physical = [
            counter
            for name, counter in counters.items()
            if os.path.exists(os.path.join(self._sysfs, "block", name.replace("/", "!"), "device"))
        ]
        if not physical:
            return None
        return sum(disk.read_bytes for disk in physical), sum(disk.write_bytes for disk in physical)
