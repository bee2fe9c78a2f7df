"""The files beside a log: where the rest of it is after it was renamed, or copied and emptied."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Callable, Iterable

from trainvitals.follow.opened import Left, Opened, Position

#: So many files beside a log are looked at when the rest of it is missing.
_MAX_SIBLINGS = 64
#: So often is looked again where a file was renamed or compressed between the list and its turn.
_LOOKS = 4
#: How logrotate and others call what they put away: train.log.1, train.log-20260302, train.log.2.gz.
_ROTATED = re.compile(r"[.\-_](?:\d{1,14}|\d{4}-\d\d-\d\d(?:[T_\-.][\d:\-]{1,15})?)(?:\.gz)?")

_Times = dict[str, int]


def find(path: str, gone: Position, *, copy: bool) -> Opened | None:
    """Return the file beside a path that goes on behind a position: by its inode, or as a copy of it."""

    def choose(times: _Times) -> Iterable[str]:
        if not copy or gone.left is None:
            return times
        # It was copied later than what was read before it, or in the same tick of the clock.  Of two that begin like
        # it, it is the older one.
        since = gone.left.changed_ns
        rows = [(name, changed) for name, changed in reversed(times.items()) if changed >= since]
        return [name for name, _ in sorted(rows, key=lambda row: row[1] == since)]

    def is_it(file: Opened) -> bool:
        if not copy:
            return file.is_at(gone)
        left = gone.left
        # Logs whose parts are of one size may begin and end alike: what was read before it is none of its copies.
        is_left = left is not None and (file.device, file.inode, file.changed_ns) == (
            left.device,
            left.inode,
            left.changed_ns,
        )
        return not is_left and file.copies(gone)

    if not gone.offset and copy:
        return None
    return next(iter(_search(path, choose, is_it, most=1)), None)


def between(path: str, left: Left, here: Opened) -> list[Opened]:
    """Return the files that came and went between the one that was read and the present one, oldest first."""
    known = {(left.device, left.inode), (here.device, here.inode)}

    def choose(times: _Times) -> Iterable[str]:
        return [name for name, changed in times.items() if changed > left.changed_ns and _is_rotated(path, name, times)]

    def is_one(file: Opened) -> bool:
        # What is empty is being copied just now, and is in the original.
        if not file.size or (file.device, file.inode) in known:
            return False
        return not (file.is_archive and left.offset and file.copies(left))

    found = _search(path, choose, is_one, most=_MAX_SIBLINGS)
    if not _leads_to(path, here):
        # It was renamed meanwhile: what is younger comes behind it.
        here.refresh()
        found = [file for file in found if file.changed_ns < here.changed_ns]
    return sorted(found, key=lambda file: file.changed_ns)


def _search(
    path: str, choose: Callable[[_Times], Iterable[str]], is_one: Callable[[Opened], bool], most: int
) -> list[Opened]:
    """Return the files beside a path of which something is true, of those that are chosen by their names and times."""
    found: list[Opened] = []
    for _ in range(_LOOKS):
        found, is_missed = [], False
        for name in choose(_siblings(path)):
            try:
                file = Opened(name)
                if is_one(file):
                    found.append(file)
            except FileNotFoundError:
                is_missed = True
            except (OSError, EOFError, zlib.error):
                continue
            if len(found) == most:
                return found
        if not is_missed:
            break
    return found


def _siblings(path: str) -> _Times:
    """Return the paths whose names begin with that of this one, the newest first, and when each was changed."""
    found: list[tuple[int, str]] = []
    for _ in range(_LOOKS):
        found, is_missed = [], False
        with contextlib.suppress(OSError), os.scandir(os.path.dirname(path) or ".") as entries:
            for entry in entries:
                try:
                    if _is_beside(path, entry.name):
                        found.append((entry.stat().st_mtime_ns, os.path.join(os.path.dirname(path), entry.name)))
                except FileNotFoundError:
                    is_missed = is_missed or not entry.is_symlink()
                except OSError:
                    continue
        if not is_missed:
            break
    return {path: changed for changed, path in sorted(found, reverse=True)[:_MAX_SIBLINGS]}


def _is_beside(path: str, name: str) -> bool:
    own = os.path.basename(path)
    return name.startswith(own.split(".")[0]) and name != own


def _is_rotated(path: str, other: str, listed: _Times) -> bool:
    """Whether a file is called as one that was put away; while it is compressed, it is there twice."""
    is_twice = other.endswith(".gz") and other.removesuffix(".gz") in listed
    return _ROTATED.fullmatch(other[len(path) :]) is not None and other.startswith(path) and not is_twice


def _leads_to(path: str, file: Opened) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (file.device, file.inode)
