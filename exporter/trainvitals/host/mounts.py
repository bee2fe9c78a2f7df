"""Which file systems there are, and which of them matter to a training run; read without touching any of them.

Source of the format: proc(5), ``/proc/[pid]/mountinfo``.  The kernel writes that file from its own tables, so a server
that is away does not delay it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

#: Types of file systems that ask another machine or a virtual machine's host.
_REMOTE = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
        "virtiofs",
        "wekafs",
    }
)
#: Programs that show a desktop, a container's /proc or an image as a file system; no storage.
_NO_STORAGE = frozenset(
    {
        "fuse.gvfsd-fuse",
        "fuse.lxcfs",
        "fuse.portal",
        "fuse.snapfuse",
        "fuse.squashfuse",
        "fuse.squashfuse_ll",
        "fuse.fuse-overlayfs",
    }
)
#: Images that are full by their nature.
_IMAGES = frozenset({"squashfs", "iso9660", "udf", "erofs", "cramfs"})
#: Looking into one of these makes the kernel mount something.
_TRIGGERS = frozenset({"autofs"})
#: Shown whatever they are on: data loaders, collective libraries and rank files fill the shared memory together.
_ALWAYS = ("/", "/dev/shm")
#: A node with many containers has some thousands of mounts of about 200 bytes.
_MOST_BYTES = 16 << 20
#: Longer ones would be cut in a label.
_LONGEST_MOUNTPOINT = 256
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2})")
#: User and password in an address, with a scheme before them or, as of sshfs, without; a password may hold an "@".
_CREDENTIALS = re.compile(r"://[^/\s]*@|^[^/@\s:]+:[^/\s]*@")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo.

    ``number`` is the id of the mount and ``device`` that of the file system ("8:1"); the kernel gives both to others
    once they are free.  ``root`` is the folder of the file system that is seen at ``mountpoint``.
    """

    number: int
    device: str
    root: str
    mountpoint: str
    fstype: str
    source: str
    read_only: bool

    @property
    def is_remote(self) -> bool:
        """Whether another machine or a user's program answers for it."""
        fuse = self.fstype == "fuse" or self.fstype.startswith("fuse.")
        return self.fstype in _REMOTE or (fuse and self.fstype not in _NO_STORAGE)


class Mounts:
    """Reads the mounts of this process below ``proc``."""

    def __init__(self, proc: str = "/proc") -> None:
        self._path = os.path.join(proc, "self", "mountinfo")
        self._text = b""
        self._mounts: tuple[Mount, ...] = ()

    def read(self) -> tuple[Mount, ...]:
        """Return the mounts, of those that lie over each other only the topmost.  Raises OSError.

        A line that cannot be understood costs itself.
        """
        with open(self._path, "rb") as file:
            text = file.read(_MOST_BYTES)
        if text != self._text:
            self._mounts = parse(text)
            self._text = text
        return self._mounts


def parse(text: bytes) -> tuple[Mount, ...]:
    """Return the mounts of a text in the format of mountinfo; the last of one place is the one that is seen."""
    top: dict[str, Mount] = {}
    # What follows the last line end was cut off.
    for line in text.split(b"\n")[:-1]:
        mount = _mount(line)
        if mount is not None:
            top.pop(mount.mountpoint, None)
            top[mount.mountpoint] = mount
    return tuple(top.values())


def _mount(line: bytes) -> Mount | None:
    before, dash, after = line.partition(b" - ")
    first, last = before.split(b" "), after.split(b" ")
    if not dash or len(first) < 6 or len(last) < 3 or not first[0].isdigit():
        return None
    mountpoint = unescape(first[4])
    if not mountpoint.startswith("/") or mountpoint.endswith("//deleted"):
        return None
    return Mount(
        number=int(first[0]),
        device=first[2].decode("ascii", "replace"),
        root=unescape(first[3]),
        mountpoint=mountpoint,
        fstype=unescape(last[0]),
        source=unescape(last[1]),
        # Of the mount, or of the file system, which the kernel makes read-only after errors.
        read_only=b"ro" in first[5].split(b",") or b"ro" in last[2].split(b","),
    )


def unescape(field: bytes) -> str:
    r"""Return a field of the kernel's tables of mounts; it writes blanks, tabs, line ends and backslashes as \040."""
    if b"\\" in field:
        field = _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field)
    return os.fsdecode(field)


def without_credentials(source: str) -> str:
    """Return what is mounted, without the user and password that an address may hold."""
    return _CREDENTIALS.sub(lambda match: "://" if match[0].startswith("://") else "", source)


class Choice:
    """Chooses the mounts that matter, each file system once.

    ``include`` and ``exclude`` are glob patterns of mount points (``*`` also crosses slashes); exclude wins.  A file
    system is shown where include names it, else where its root is mounted, else at the shortest path.  Of more than
    ``limit`` those stay that hurt most: root and shared memory, then what is remote, then the shortest paths.
    """

    def __init__(self, *, include: Sequence[str] = (), exclude: Sequence[str] = (), limit: int = 50) -> None:
        self._include = include
        self._exclude = exclude
        self._limit = limit
        self._seen: tuple[object, object] = ((), ())
        self._chosen: tuple[list[Mount], int] = ([], 0)

    def of(self, mounts: tuple[Mount, ...], avoid: Collection[Mount] = frozenset()) -> tuple[list[Mount], int]:
        """Return the chosen mounts, sorted by path, and how many were beyond the limit.

        One of ``avoid`` stands for its file system only when there is no other: it is a file (a container's
        /etc/hosts) or hidden below another mount.
        """
        # Thousands of mounts seldom change.
        if (mounts, avoid) != self._seen:
            self._chosen = self._choose(mounts, avoid)
            self._seen = (mounts, frozenset(avoid))
        return self._chosen

    def _choose(self, mounts: Iterable[Mount], avoid: Collection[Mount]) -> tuple[list[Mount], int]:
        best: dict[str, tuple[tuple[object, ...], Mount]] = {}
        for mount in mounts:
            if self._matters(mount):
                # Bind mounts and subvolumes show the same space again.
                wish = 0 if mount.mountpoint in _ALWAYS else 1 if matches(mount.mountpoint, self._include) else 2
                key = (mount in avoid, wish, mount.root != "/", *_by_length(mount))
                if mount.device not in best or key < best[mount.device][0]:
                    best[mount.device] = (key, mount)
        found = sorted(
            (mount for _, mount in best.values()),
            key=lambda mount: (mount.mountpoint not in _ALWAYS, not mount.is_remote, *_by_length(mount)),
        )
        kept = sorted(found[: self._limit], key=lambda mount: mount.mountpoint)
        return kept, len(found) - len(kept)

    def _matters(self, mount: Mount) -> bool:
        path = mount.mountpoint
        if mount.fstype in _TRIGGERS or len(path) > _LONGEST_MOUNTPOINT or matches(path, self._exclude):
            return False
        if path in _ALWAYS or matches(path, self._include):
            return True
        if mount.fstype in _IMAGES or mount.fstype in _NO_STORAGE:
            return False
        return mount.is_remote or mount.source.startswith("/dev/") or mount.fstype == "zfs"


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a mount point is one of those that glob patterns name."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _by_length(mount: Mount) -> tuple[int, str]:
    return len(mount.mountpoint), mount.mountpoint
