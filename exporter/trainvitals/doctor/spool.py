"""The way from a training to the exporter: the spool, the probe, and the ranks that are there now."""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from trainvitals.collect.spool import Spool
from trainvitals.doctor.base import Here, Result, absent, ok, problem
from trainvitals.doctor.container import inside
from trainvitals.probe.spool import filesystem
from trainvitals.rankfile.layout import FILE_SIZE

_MEMORY = "/dev/shm"
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_MIB = 2**20
#: What a container gets when nobody asks for more (Docker and Kubernetes); data loaders of a training need more.
_SMALL = 64 * _MIB
#: A node has seldom more ranks.
_RANKS = 16
_TRIAL = (
    "import trainvitals; started = trainvitals.init(run='doctor'); trainvitals.step(1, loss=1.0); "
    "trainvitals.finish(); raise SystemExit(not started)"
)
_HELLO = "import trainvitals; trainvitals.init(run='hello'); trainvitals.step(1, loss=1.0); input('a rank is here ')"


def folders(here: Here) -> Iterator[Result]:
    """Check each spool folder: is it there, in memory, and may every user write to it."""
    for pattern in here.settings.spool.folders:
        found = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        if not found:
            yield absent("no training has made one yet", subject=pattern)
        for path in found:
            yield _folder(path)


def _folder(path: str) -> Result:
    quoted = shlex.quote(path)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return _missing(path)
    except OSError as error:
        return problem(f"cannot be looked at: {error.strerror}", f"ls -ld {quoted}", path)
    trouble, action = _trouble(status.st_mode, os.access(path, os.R_OK | os.X_OK), quoted)
    if trouble:
        return problem(trouble, action, path)
    if status.st_mode & stat.S_IWOTH:
        users = "every user can write to it"
    else:
        users = f"only the user with id {status.st_uid} can write to it"
    kind = filesystem(os.path.realpath(path))
    if kind in _IN_MEMORY:
        return ok(f"on {kind}; {users}", subject=path)
    return ok(
        f"on {kind or 'an unknown file system'}, not in memory: a busy disk delays every step; {users}",
        f"mount -t tmpfs -o size=256m,mode=1777 tmpfs {quoted}",
        path,
    )


def _missing(path: str) -> Result:
    parent = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(parent):
        return absent("not there yet; a training makes it", subject=path)
    why = f"not there, and a training makes only the last part of it: {parent} is missing"
    return problem(why, f"install -d -m 1777 {shlex.quote(path)}", path)


def _trouble(mode: int, is_readable: bool, quoted: str) -> tuple[str, str]:
    """Return what is wrong with a folder and the command against it, both empty when nothing is."""
    if not stat.S_ISDIR(mode):
        return "it is no folder", f"ls -ld {quoted}"
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return "every user may remove the files of another", f"chmod +t {quoted}"
    if not is_readable:
        return "this user may not read it", f"chmod o+rx {quoted}"
    return "", ""


def shared_memory(here: Here) -> Iterator[Result]:
    """Check the size of /dev/shm, and whether a container shares it with the trainings."""
    try:
        space = os.statvfs(here.path(_MEMORY))
    except OSError as error:
        yield problem(f"{_MEMORY}: {error.strerror}", f"mount -t tmpfs -o mode=1777 tmpfs {_MEMORY}")
        return
    yield _size(space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)
    if inside(here):
        yield ok(
            f"in a container: trainings in other containers reach this {_MEMORY} only when it is shared",
            f"docker run --ipc=host --volume {_MEMORY}:{_MEMORY} ...",
            "shared",
        )


def _size(size: int, free: int) -> Result:
    words = f"{_MEMORY} has {size / _MIB:,.0f} MiB, {free / _MIB:,.0f} of them free"
    grow = f"mount -o remount,size=50% {_MEMORY}"
    if free < _RANKS * FILE_SIZE:
        return problem(f"{words}: a rank needs {FILE_SIZE / _MIB:.1f}, and its data loaders much more", grow)
    if size <= _SMALL:
        return ok(f"{words}: enough for rank files, too little for most data loaders", grow)
    return ok(words)


def probe(here: Here) -> Iterator[Result]:
    """Let a process of its own record a step, as a training would."""
    folder = here.path(_MEMORY)
    with tempfile.TemporaryDirectory(
        prefix="doctor-trainvitals-", dir=folder if os.path.isdir(folder) else None
    ) as own:
        environ = {name: value for name, value in here.environ.items() if not name.startswith("TRAINVITALS_")}
        done = subprocess.run(
            [sys.executable, "-c", _TRIAL],
            env={**environ, "TRAINVITALS_DIR": own, "RANK": "0", "WORLD_SIZE": "1"},
            cwd=own,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        line = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        action = f"{shlex.quote(sys.executable)} -m pip install trainvitals"
        yield problem(f"a training with {sys.executable} does not record: {line}", action)
    elif here.environ.get("TRAINVITALS_DISABLE", "") not in {"", "0"}:
        yield problem("TRAINVITALS_DISABLE is set: the probe records nothing", "unset TRAINVITALS_DISABLE")
    else:
        yield ok(f"a training with {shutil.which(sys.executable) or sys.executable} records its steps")


def ranks(here: Here) -> Iterator[Result]:
    """Count the ranks that the exporter would show now."""
    spool = Spool(here.settings.spool.folders, keep=here.settings.spool.keep, remove=False)
    files = spool.poll()
    alive = [file for file in files if file.alive]
    runs = sorted({file.run for file in alive})
    if alive:
        yield ok(f"{len(alive)} running, of {', '.join(runs[:5])}{' and others' if len(runs) > 5 else ''}")
    else:
        ended = f"; {len(files)} ended within the last hour or so" if files else ""
        yield absent(f"no rank is running on this node{ended}", f'{shlex.quote(sys.executable)} -c "{_HELLO}"')
    for reason, count in sorted(spool.rejected.items()):
        yield problem(
            f"{count} files in the spool cannot be used: {reason.replace('_', ' ')}",
            f"ls -l {' '.join(here.settings.spool.folders)}",
            f"rejected ({reason})",
        )
