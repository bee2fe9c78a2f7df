"""The folder of the rank files, as the training sees it: made, checked and kept small."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Mapping

from trainvitals import rankfile
from trainvitals.rankfile.ledger import DATA_SUFFIX

#: Memory-mapped files on these are not coherent between processes, or block when a server goes away.
_REMOTE_FILESYSTEMS = (
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse",
    "gfs",
    "gpfs",
    "lustre",
    "nfs",
    "ocfs",
    "orangefs",
    "panfs",
    "pvfs",
    "smb",
    "wekafs",
)
#: Rank files of ended processes that may stay when no exporter removes them: 24 MB, and a container often has 64.
_ENDED_FILES = 32
#: Orders to a run that ended stay for so many seconds, for people to look at.
_ORDERS_SECONDS = 3600.0


def folder(environ: Mapping[str, str]) -> str:
    """Return the folder of the rank files: ``TRAINVITALS_DIR``, or one per user on tmpfs."""
    return environ.get("TRAINVITALS_DIR") or f"/dev/shm/trainvitals-{os.getuid()}"


def prepare(path: str) -> None:
    """Make the spool and refuse one that is not ours to use; raises OSError with the reason."""
    # Resolving links asks every folder on the way, and one on a server that is gone would not answer.
    for place in (os.path.abspath, os.path.realpath):
        remote = filesystem(place(path))
        if remote.startswith(_REMOTE_FILESYSTEMS):
            raise OSError(f"{path} is on {remote}; TRAINVITALS_DIR must name a local folder, best on tmpfs")
    with contextlib.suppress(FileExistsError):
        # Only the last part: a spool that an administrator should have mounted must not appear on the root disk.
        os.mkdir(path, 0o755)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{path} is not a folder")
    shared = bool(status.st_mode & stat.S_ISVTX)
    if status.st_uid not in (os.getuid(), 0) and not shared:
        raise OSError(f"{path} belongs to another user (uid {status.st_uid})")


def filesystem(path: str, mounts: str = "/proc/self/mounts") -> str:
    """Return the type of the file system that an absolute path is on, or an empty string."""
    best = ("", "")
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                _, point, kind = line.split(" ", 3)[:3]
                point = point.replace("\\040", " ")
                inside = path == point or path.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best[0]):
                    best = (point, kind)
    except (OSError, ValueError):
        return ""
    return best[1]


def tidy(path: str) -> None:
    """Remove the oldest rank files of this user's ended processes: where no exporter runs, nobody else does.

    Whatever cannot be looked at or removed stays.
    """
    ended: list[tuple[float, str]] = []
    live: list[str] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(path):
            if entry.name.endswith(rankfile.RANK_SUFFIX):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_uid == os.getuid() and stat.S_ISREG(status.st_mode):
                        if _is_locked(entry.path):
                            live.append(entry.path)
                        else:
                            ended.append((status.st_ctime, entry.path))
    for _, name in sorted(ended)[:-_ENDED_FILES]:
        base = name.removesuffix(rankfile.RANK_SUFFIX)
        for old in (name, base + rankfile.EVENTS_SUFFIX, base + DATA_SUFFIX):
            with contextlib.suppress(OSError):
                os.unlink(old)

    _tidy_orders(path, live)


def _tidy_orders(path: str, live: Iterable[str]) -> None:
    """Remove the orders to runs of this user that live no more."""
    from trainvitals import orders  # noqa: PLC0415  A process that is not recorded needs none.

    left = orders.left_alone(path, time.time() - _ORDERS_SECONDS)
    for name in live if left else ():
        try:
            with contextlib.closing(rankfile.Reader(name)) as reader:
                left.pop(orders.path_of(path, str(reader.read_text()[0].get("run"))), None)
        except (OSError, rankfile.RankFileError):
            return  # It may be its orders.
    for mail, files in left.items():
        with contextlib.suppress(OSError):
            if os.lstat(mail).st_uid == os.getuid():
                for name in (*(one for one in files if one != mail), mail):
                    os.unlink(name)


def _is_locked(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return rankfile.is_locked(descriptor)
    finally:
        os.close(descriptor)
