"""Which code a process runs: the commit, and whether its files differ from it, read without running git.

Only files of modules that are imported count, and only those in the folder of the program or in its repository.
What is asked is bounded; what cannot be told is absent.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_LARGEST_INDEX, _LARGEST_SOURCE, _LARGEST_REFS = 8 << 20, 1 << 20, 4 << 20
_MOST_SOURCES, _MOST_SOURCE_BYTES, _MOST_PARENTS = 400, 16 << 20, 24
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]")


def describe(main: str | None, modules: Iterable[object]) -> dict[str, str]:
    """Return ``commit``, ``branch``, ``dirty`` and ``source``, a hash of the imported files, as far as they are known.

    ``main`` is the file of the program, ``modules`` those that are imported.
    ``dirty`` is "True" when an imported file is not the one of git's index, or when something is staged.
    """
    if not main:
        return {}
    folder = os.path.dirname(os.path.abspath(main))
    if _INSTALLED.search(folder + os.sep):
        return {}
    top, git = _repository(folder)
    sources = dict(_sources(top or folder, main, modules))
    rows = {}
    if sources:
        whole = hashlib.sha256("\0".join(f"{name}\0{sources[name]}" for name in sorted(sources)).encode())
        rows["source"] = whole.hexdigest()[:12]
    if git:
        rows.update(_head(git))
        # A repository of SHA-256 has 64 digits, and another index.
        dirty = _dirty(os.path.join(git, "index"), sources) if len(rows.get("commit", "")) <= 40 else None
        if dirty is not None:
            rows["dirty"] = str(dirty)
    return rows


def _repository(folder: str) -> tuple[str, str]:
    """Return the top folder of the repository around a folder and the folder of its git files, or empty texts."""
    for _ in range(_MOST_PARENTS):
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return folder, git
        if os.path.isfile(git):  # A worktree or a submodule.
            line = (_read(git, 4096) or b"").decode("utf-8", "replace").strip()
            return (folder, os.path.join(folder, line[8:])) if line.startswith("gitdir: ") else ("", "")
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    return "", ""


def _head(git: str) -> dict[str, str]:
    """Return commit and branch of the HEAD of a repository (gitrepository-layout(5))."""
    head = (_read(os.path.join(git, "HEAD"), 4096) or b"").decode("utf-8", "replace").strip()
    if _COMMIT.fullmatch(head):
        return {"commit": head}
    if not head.startswith("ref: refs/") or ".." in head:
        return {}
    name = head[5:]
    rows = {"branch": name.removeprefix("refs/heads/")[:128]}
    common = (_read(os.path.join(git, "commondir"), 4096) or b".").decode("utf-8", "replace").strip()
    common = os.path.join(git, common)
    commit = (_read(os.path.join(common, name), 256) or b"").decode("ascii", "replace").strip()
    if not commit:
        packed = (_read(os.path.join(common, "packed-refs"), _LARGEST_REFS) or b"").decode("utf-8", "replace")
        commit = next((line[: -len(name) - 1] for line in packed.splitlines() if line.endswith(f" {name}")), "")
    if _COMMIT.fullmatch(commit):
        rows["commit"] = commit
    return rows


def _sources(top: str, main: str, modules: Iterable[object]) -> Iterator[tuple[str, str]]:
    """Yield the path below ``top`` of each imported file and its hash as git has it (of a blob, SHA-1)."""
    paths = {os.path.abspath(main)}
    for module in modules:
        path = own_attributes(module).get("__file__")
        if isinstance(path, str) and path.endswith(".py"):
            paths.add(os.path.abspath(path))
    inside = [path for path in paths if path.startswith(top.rstrip(os.sep) + os.sep) and not _INSTALLED.search(path)]
    room = _MOST_SOURCE_BYTES
    for path in sorted(inside)[:_MOST_SOURCES]:
        data = _read(path, _LARGEST_SOURCE)
        room -= len(data or b"")
        if data is not None and room >= 0:
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
            yield os.path.relpath(path, top), blob.hexdigest()


def own_attributes(module: object) -> Mapping[str, Any]:
    """Return what is in a module without asking it: some import more when they are asked, and some are no modules."""
    try:
        return module.__dict__
    except Exception:
        return {}


def _dirty(path: str, sources: dict[str, str]) -> bool | None:
    """Compare files with the index (gitformat-index(5)); None where it cannot be read or is in another format.

    A file that git does not know is no change of its own: it may be made by the program.
    """
    data = _read(path, _LARGEST_INDEX)
    if data is None or data[:4] != b"DIRC" or not sources:
        return None
    try:
        known, staged = _index(data, {name.encode("utf-8", "surrogateescape") for name in sources})
    except (IndexError, ValueError):
        return None
    return staged or any(
        known.get(name.encode("utf-8", "surrogateescape"), blob) != blob for name, blob in sources.items()
    )


def _index(data: bytes, wanted: set[bytes]) -> tuple[dict[bytes, str], bool]:
    """Return the hashes of the wanted files, and whether the cached tree of the last commit is out of date."""
    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:12], "big")
    if not 2 <= version <= 4:
        raise ValueError(version)
    found: dict[bytes, str] = {}
    position, name = 12, b""
    for _ in range(count):
        start = position + 62 + 2 * bool(data[position + 60] & 0x40)
        keep = 0
        if version == 4:  # The name goes on from the one before, less so many bytes.
            cut, start = _offset(data, start)
            keep = len(name) - cut
        end = data.index(b"\0", start)
        name = name[:keep] + data[start:end]
        if name in wanted:
            found[name] = data[position + 40 : position + 60].hex()
        position = end + 1 if version == 4 else position + (end - position + 8) // 8 * 8
    while position + 8 < len(data) - 20:
        kind, size = data[position : position + 4], int.from_bytes(data[position + 4 : position + 8], "big")
        if kind == b"TREE":
            return found, data[position + 8 :][:4].startswith(b"\0-1 ")
        if kind == b"link":  # A split index: the files are in another one.
            raise ValueError(kind)
        position += 8 + size
    return found, False


def _offset(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of variable length and where it ends."""
    byte = data[position]
    value = byte & 0x7F
    while byte & 0x80:
        position += 1
        byte = data[position]
        value = (value + 1) << 7 | byte & 0x7F
    return value, position + 1


def _read(path: str, limit: int) -> bytes | None:
    """Return the bytes of a regular file, or None where there is none or it is longer."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(limit + 1)
    except OSError:
        return None
    return data if len(data) <= limit else None


def main_file() -> str | None:
    """Return the file of the program, or None in a notebook and with ``-c``."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return path if isinstance(path, str) and os.path.isfile(path) else None
