"""Counters of disks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainvitals.host.disks import Disk, Disks

FIXTURE = Path(__file__).parents[1] / "fixtures" / "disks" / "diskstats.txt"
PHYSICAL = ("nvme2n1", "nvme10n1", "sda", "sdb", "sdc", "sdd", "cciss!c0d0", "sr0")


@pytest.fixture
def roots(tmp_path):
    """A /proc and a /sys with these disks."""
    (tmp_path / "proc").mkdir()
    shutil.copy(FIXTURE, tmp_path / "proc" / "diskstats")
    for name in PHYSICAL:
        (tmp_path / "sys" / "block" / name / "device").mkdir(parents=True)
    for name in ("loop0", "dm-0", "md0"):
        (tmp_path / "sys" / "block" / name).mkdir()
    return {"proc": str(tmp_path / "proc"), "sysfs": str(tmp_path / "sys")}


def test_only_physical_disks_count(roots):
    """No partition, RAID, volume, loop or CD; a line that is short, negative or cut costs itself."""
    assert [disk.name for disk in Disks(**roots).read()] == ["cciss/c0d0", "nvme2n1", "nvme10n1", "sda"]


def test_counters_are_in_base_units(roots):
    """Sectors are 512 bytes whatever the disk says, times are milliseconds."""
    assert Disks(**roots).read()[1] == Disk(
        name="nvme2n1",
        reads=31782,
        read_bytes=1_116_681_216,
        read_seconds=10.426,
        writes=5777,
        written_bytes=1_895_075_840,
        write_seconds=11.418,
        busy_seconds=7.056,
    )


@pytest.mark.parametrize(
    ("own", "expected"), [("9 0 88 3", ["nvme0n1"]), ("0 0 0 0", ["nvme0c0n1", "nvme0c1n1"])], ids=["new", "old"]
)
def test_an_nvme_disk_with_several_ways_counts_once(tmp_path, own, expected):
    """Newer kernels count at the disk and again at each way to it, older ones at the ways alone."""
    for name in ("nvme0n1", "nvme0c0n1", "nvme0c1n1"):
        (tmp_path / "block" / name / "device").mkdir(parents=True)
    (tmp_path / "diskstats").write_text(
        f" 259 0 nvme0n1 {own} 0 0 0 0 0 0 0\n"
        " 259 1 nvme0c0n1 7 0 56 2 0 0 0 0 0 0 0\n"
        " 259 2 nvme0c1n1 2 0 32 1 0 0 0 0 0 0 0\n"
    )

    assert [disk.name for disk in Disks(proc=str(tmp_path), sysfs=str(tmp_path)).read()] == expected


def test_the_number_of_disks_is_bounded(roots):
    """The first by name stay."""
    assert [disk.name for disk in Disks(**roots, limit=2).read()] == ["cciss/c0d0", "nvme2n1"]


def test_without_a_disk_there_is_none(tmp_path):
    """A container without /sys, and an empty file."""
    (tmp_path / "diskstats").write_text("   8       0 sda 1 2 3 4 5 6 7 8 9 10 11\n")
    assert Disks(proc=str(tmp_path), sysfs=str(tmp_path)).read() == []
    (tmp_path / "diskstats").write_bytes(b"\xff\xfe\n\n \n")
    assert Disks(proc=str(tmp_path), sysfs=str(tmp_path)).read() == []


def test_a_missing_file_is_an_error(tmp_path):
    """No /proc/diskstats is no "no disk"."""
    with pytest.raises(FileNotFoundError):
        Disks(proc=str(tmp_path)).read()


def test_this_machine_can_be_read():
    """Against the real kernel nothing is negative."""
    assert all(disk.busy_seconds >= 0 and disk.read_bytes >= 0 for disk in Disks().read())
