"""Readings of the node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest

from trainvitals.host.system import Filesystem, Host


class Part(NamedTuple):
    """A mount, as psutil describes it."""

    device: str
    mountpoint: str
    fstype: str


class Times(NamedTuple):
    """CPU times, as psutil describes them on Linux."""

    user: float = 100.0
    nice: float = 2.0
    system: float = 30.0
    idle: float = 4000.0
    iowait: float = 5.0
    irq: float = 0.5
    softirq: float = 0.25
    steal: float = 1.0
    guest: float = 90.0
    guest_nice: float = 1.0


def space(size=1000, available=250, block=4096):
    """Return what statvfs says of a file system with so many blocks."""
    return SimpleNamespace(f_blocks=size, f_bavail=available, f_frsize=block)


def host(*parts, statvfs=lambda _: space(), **library):
    """Return a host with these mounts; all are folders, but for those that are called hosts."""
    return Host(
        SimpleNamespace(disk_partitions=lambda **_: parts, **library),
        statvfs=statvfs,
        isdir=lambda path: not path.endswith("hosts"),
    )


def test_cpu_time_counts_nothing_twice():
    """The time of guests is part of user and nice already."""
    assert host(cpu_times=Times).cpu_seconds() == {
        "user": 100.0,
        "nice": 2.0,
        "system": 30.0,
        "idle": 4000.0,
        "iowait": 5.0,
        "irq": 0.5,
        "softirq": 0.25,
        "steal": 1.0,
    }


def test_only_real_file_systems_are_shown():
    """Images, user-space and network file systems are left out; root and shared memory are always shown."""
    made = host(
        Part("overlay", "/", "overlay"),
        Part("proc", "/proc", "proc"),
        Part("tmpfs", "/run", "tmpfs"),
        Part("tmpfs", "/dev/shm", "tmpfs"),
        Part("/dev/nvme0n1p2", "/etc/hosts", "ext4"),
        Part("/dev/nvme1n1", "/data", "xfs"),
        Part("/dev/loop3", "/snap/core/1", "squashfs"),
        Part("/dev/sr0", "/media/cdrom", "iso9660"),
        Part("/dev/fuse", "/run/user/doc", "fuse.portal"),
        Part("/dev/sdb1", "/mnt/windows", "fuseblk"),
        Part("server:/export", "/home", "nfs4"),
        Part("//server/share", "/share", "cifs"),
        Part("/dev/mgs@tcp:/scratch", "/scratch", "lustre"),
        Part("tank/models", "/models", "zfs"),
    )

    assert [filesystem.mountpoint for filesystem in made.filesystems()] == ["/", "/data", "/dev/shm", "/models"]


def test_a_file_system_is_shown_once():
    """Bind mounts and subvolumes of a device appear at the shortest path."""
    made = host(
        Part("/dev/sda1", "/var/lib/kubelet/volumes/x", "ext4"),
        Part("/dev/sda1", "/", "ext4"),
        Part("/dev/sda1", "/srv", "ext4"),
        Part("/dev/sdb1", "/data", "btrfs"),
        Part("/dev/sdb1", "/data/home", "btrfs"),
    )

    assert [filesystem.mountpoint for filesystem in made.filesystems()] == ["/", "/data"]


def test_a_mount_that_fails_costs_itself():
    """An input/output error on one file system leaves the others."""

    def statvfs(path):
        if path == "/broken":
            raise OSError(5, "Input/output error")
        return space(size=0 if path == "/empty" else 1000)

    made = host(
        Part("/dev/a", "/", "ext4"),
        Part("/dev/b", "/broken", "xfs"),
        Part("/dev/c", "/empty", "ext4"),
        Part("/dev/d", "/good", "ext4"),
        statvfs=statvfs,
    )

    assert made.filesystems() == [Filesystem("/", 4_096_000, 1_024_000), Filesystem("/good", 4_096_000, 1_024_000)]


def test_the_network_is_what_leaves_the_machine():
    """The loopback and interfaces of containers would count the same bytes again."""
    names = ["lo", "eth0", "ib0", "enp1s0f0", "bond0", "veth12ab", "docker0", "br-1234", "cni0", "cali99"]
    counters = {
        name: SimpleNamespace(bytes_recv=10 + number, bytes_sent=100 + number) for number, name in enumerate(names)
    }

    made = host(net_io_counters=lambda **_: counters)

    assert made.network() == {"eth0": (11, 101), "ib0": (12, 102), "enp1s0f0": (13, 103), "bond0": (14, 104)}


def test_disks_are_counted_once(tmp_path):
    """Only disks with a device behind them count: no partition, RAID, volume or loop."""
    for name in ("nvme0n1/device", "sda/device", "dm-0", "md0", "loop0", "cciss!c0d0/device"):
        (tmp_path / "block" / name).mkdir(parents=True)
    names = ["nvme0n1", "nvme0n1p1", "sda", "sda1", "dm-0", "md0", "loop0", "cciss/c0d0"]
    counters = {name: SimpleNamespace(read_bytes=10**n, write_bytes=2 * 10**n) for n, name in enumerate(names)}
    library = SimpleNamespace(disk_io_counters=lambda **_: counters)

    assert Host(library, sysfs=str(tmp_path)).disks() == (10_000_101, 20_000_202)


@pytest.mark.parametrize("counters", [None, {}, {"loop0": SimpleNamespace(read_bytes=1, write_bytes=1)}])
def test_without_a_disk_there_is_no_number(tmp_path, counters):
    """No disk is not "zero bytes read"."""
    library = SimpleNamespace(disk_io_counters=lambda **_: counters)

    assert Host(library, sysfs=str(tmp_path)).disks() is None


def test_this_machine_can_be_read():
    """Against the real psutil everything has a plausible value."""
    real = Host()
    total, available = real.memory()

    assert set(real.cpu_seconds()) >= {"user", "system", "idle"}
    assert real.cpus() == psutil.cpu_count()
    assert 0.0 <= real.load1()
    assert 0 < available <= total
    assert real.swap_used() >= 0
    assert real.boot_timestamp() > 1e9
    assert all(0 <= filesystem.available <= filesystem.size for filesystem in real.filesystems())
    assert "lo" not in real.network()
    assert real.disks() is None or min(real.disks()) >= 0
