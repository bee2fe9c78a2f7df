"""Which mounts there are and which matter."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from trainvitals.host.mounts import Choice, Mount, Mounts, parse, without_credentials

FIXTURES = Path(__file__).parents[1] / "fixtures" / "mounts"
NODE = parse((FIXTURES / "mountinfo_node.txt").read_bytes())
ODD = parse((FIXTURES / "mountinfo_odd.txt").read_bytes())


def mount(path, *, device="0:99", number=9, fstype="nfs", source="nas:/x", root="/"):
    """Return a mount."""
    return Mount(number, device, root, path, fstype, source, read_only=False)


def chosen(mounts, **settings):
    """Return the mount points of what is chosen."""
    return [one.mountpoint for one in Choice(**settings).of(tuple(mounts))[0]]


def test_a_line_is_read_whole():
    """Number, file system, place, type, source and whether it can be written."""
    assert Mount(33, "0:40", "/", "/home", "nfs4", "nas.example:/home", read_only=False) in NODE
    assert Mount(48, "0:51", "/", "/weka", "wekafs", "default", read_only=True) in NODE
    assert Mount(70, "0:70", "/", "/many", "nfs4", "nas:/j", read_only=False) in ODD


def test_of_mounts_over_each_other_the_last_is_seen():
    """The lower one cannot be reached."""
    assert [one.source for one in NODE if one.mountpoint == "/stacked"] == ["new.example:/b"]


def test_odd_lines_cost_themselves():
    """Escapes are undone; lines that are cut, deleted, relative or of other columns are left out."""
    assert [one.mountpoint for one in ODD] == [
        "/with blank",
        "/tab\tand\\slash",
        "/octal\\999stays",
        "/no source",
        "/remounted",
        "/many",
        "/dav",
        "/latin-\udce9",
    ]
    assert [one.source for one in ODD[:4]] == ["nas:/a b", "nas:/c", "nas:/d", ""]


def test_a_file_system_that_the_kernel_made_read_only_is_read_only():
    """After errors the mount is still rw, but its file system is ro."""
    assert [one.mountpoint for one in ODD if one.read_only] == ["/remounted"]


def test_storage_is_chosen_and_the_rest_is_not():
    """Root, shared memory, block devices, network and FUSE; no overlays, images, portals, secrets or triggers."""
    assert chosen(NODE) == [
        "/",
        "/boot/efi",
        "/btrfs",
        "/bucket",
        "/data",
        "/dev/shm",
        "/home",
        "/host",
        "/mnt/windows",
        "/models",
        "/scratch",
        "/share",
        "/stacked",
        "/weka",
    ]


@pytest.mark.parametrize(
    ("fstype", "remote"),
    [
        ("nfs", True),
        ("nfs4", True),
        ("lustre", True),
        ("ceph", True),
        ("gpfs", True),
        ("beegfs", True),
        ("wekafs", True),
        ("cifs", True),
        ("virtiofs", True),
        ("9p", True),
        ("fuse", True),
        ("fuse.juicefs", True),
        ("fuse.gcsfuse", True),
        ("fuse.gvfsd-fuse", False),
        ("fuseblk", False),
        ("ext4", False),
        ("tmpfs", False),
    ],
)
def test_types_that_others_answer_for(fstype, remote):
    """Network and parallel file systems and programs."""
    assert remote is mount("/x", fstype=fstype).is_remote


def test_a_file_system_is_shown_once():
    """Where its root is mounted, then at the shortest path; bind mounts of parts of it stay behind."""
    mounts = [
        mount("/f", root="/hosts", device="8:1", fstype="ext4", source="/dev/sda1", number=1),
        mount("/srv/long", device="8:1", fstype="ext4", source="/dev/sda1", number=2),
        mount("/srv", device="8:1", fstype="ext4", source="/dev/sda1", number=3),
        mount("/other", device="8:2", fstype="ext4", source="/dev/sda2", number=4),
    ]

    assert chosen(mounts) == ["/other", "/srv"]
    assert chosen(mounts, include=("/srv/l*",)) == ["/other", "/srv/long"]


def test_a_mount_that_is_a_file_makes_room_for_one_that_is_not():
    """In a container /etc/hosts and /checkpoints may lie on one file system."""
    hosts = mount("/etc/hosts", device="8:1", fstype="ext4", source="/dev/sda1", number=1)
    folder = mount("/checkpoints", device="8:1", fstype="ext4", source="/dev/sda1", number=2)
    choice = Choice()

    assert choice.of((hosts, folder))[0] == [hosts]
    assert choice.of((hosts, folder), {hosts})[0] == [folder]
    assert choice.of((hosts, folder), {hosts, folder})[0] == [hosts]


def test_patterns_add_and_remove():
    """Include brings in what is no storage by itself; exclude wins; what triggers a mount never comes."""
    assert chosen(NODE, include=("/run", "/net"), exclude=("/var/*", "/h*")) == [
        "/",
        "/boot/efi",
        "/btrfs",
        "/bucket",
        "/data",
        "/dev/shm",
        "/mnt/windows",
        "/models",
        "/run",
        "/scratch",
        "/share",
        "/stacked",
        "/weka",
    ]
    assert "/home" not in chosen(NODE, include=("/home",), exclude=("/home",))
    assert "/" not in chosen(NODE, exclude=("/",))


def test_beyond_the_limit_the_remote_ones_stay():
    """Root and shared memory first, then what can get stuck, and the rest is counted."""
    kept, left_out = Choice(limit=4).of(NODE)

    assert ([one.mountpoint for one in kept], left_out) == (["/", "/dev/shm", "/home", "/host"], 10)


def test_a_mount_point_longer_than_a_label_is_left_out():
    """Two of them could become one series."""
    assert chosen([mount("/" + 256 * "a"), mount("/" + 255 * "a", device="0:98")]) == ["/" + 255 * "a"]


def test_passwords_in_an_address_are_not_shown():
    """As WebDAV and some S3 clients have them."""
    assert without_credentials("https://reader:secret@dav.example/data") == "https://dav.example/data"
    assert without_credentials("redis://:p@ss@meta.example:6379/1") == "redis://meta.example:6379/1"
    assert without_credentials("reader:s@cret@store.example:/data") == "store.example:/data"
    assert without_credentials("reader@store.example:/data") == "reader@store.example:/data"
    assert without_credentials("10.0.0.1@tcp:10.0.0.2@tcp:/scratch") == "10.0.0.1@tcp:10.0.0.2@tcp:/scratch"
    assert without_credentials("nas.example:/home@night") == "nas.example:/home@night"
    assert without_credentials("//winserver/share") == "//winserver/share"


def test_a_mount_that_comes_or_goes_is_seen(tmp_path):
    """The file is read anew each time."""
    (tmp_path / "self").mkdir()
    file = tmp_path / "self" / "mountinfo"
    mounts = Mounts(str(tmp_path))

    file.write_text("1 0 0:1 / /a rw - nfs nas:/a rw\n")
    assert [one.mountpoint for one in mounts.read()] == ["/a"]
    file.write_text("1 0 0:1 / /a rw - nfs nas:/a rw\n2 0 0:2 / /b rw - nfs nas:/b rw\n")
    assert [one.mountpoint for one in mounts.read()] == ["/a", "/b"]
    file.write_text("2 0 0:2 / /b rw - nfs nas:/b rw\n")
    assert [one.mountpoint for one in mounts.read()] == ["/b"]
    file.write_text("")
    assert mounts.read() == ()


def test_without_the_file_there_is_an_error(tmp_path):
    """A missing /proc is no empty list of mounts."""
    with pytest.raises(FileNotFoundError):
        Mounts(str(tmp_path)).read()


def test_thousands_of_mounts_are_no_burden(tmp_path):
    """5,000 mounts of containers cost little while they stay, and none of them is shown."""
    (tmp_path / "self").mkdir()
    lines = [f"{n} 1 0:{n} / /var/lib/kubelet/pods/{n}/secret rw - tmpfs tmpfs rw\n" for n in range(100, 2600)]
    lines += [f"{n} 1 0:{n} / /run/containerd/{n}/rootfs rw - overlay overlay rw\n" for n in range(2600, 5100)]
    (tmp_path / "self" / "mountinfo").write_text("".join(lines) + "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    mounts, choice = Mounts(str(tmp_path)), Choice(exclude=("/nowhere/*",))

    assert (len(mounts.read()), [one.mountpoint for one in choice.of(mounts.read())[0]]) == (5001, ["/"])
    begun = time.process_time()
    for _ in range(10):
        choice.of(mounts.read())
    assert time.process_time() - begun < 1.0


def test_this_machine_can_be_read():
    """There is a root, and it is chosen."""
    kept, _ = Choice().of(Mounts().read())

    assert "/" in {one.mountpoint for one in kept}
    assert all(os.path.isabs(one.mountpoint) for one in kept)
