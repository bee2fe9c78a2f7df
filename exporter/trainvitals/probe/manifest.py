"""What a saved checkpoint says of itself: a list of its files, in a file beside them, that is written last.

``trainvitals.json`` holds the step, the loss, the lineage, and of each file its size and a checksum (CRC-32) of its
first and its last MiB: enough to see that a file is cut short, empty, missing or another one, at a cost that does not
grow with the checkpoint.  It does not see a bit that was flipped in the middle: ``whole=True`` reads everything.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

NAME = "trainvitals.json"
VERSION = 1
_END = 1 << 20
#: A checkpoint of thousands of ranks has a file for each.
_MOST_FILES = 100_000
_LONGEST = 64 << 20
#: Seconds since the epoch.
_LATEST = 1e11


class NotWholeError(Exception):
    """A checkpoint that is not what it was when it was saved; the text says in a few words why."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint: where it is, its step, the loss that was given for it, when it was saved, and what else was known.

    ``is_sound`` says that nothing was wrong with the loss when it was saved.
    """

    path: str
    step: int
    loss: float | None = None
    time: float = 0.0
    is_sound: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, tuple[int, int]] = field(default_factory=dict)


def write(folder: str, saved: Saved, *, whole: bool = False) -> None:
    """Write the list of the files that are in a folder now, and see to it that all is on the disk.  Raises OSError."""
    files = {}
    for name in _names(folder):
        path = os.path.join(folder, name)
        flush(path)
        files[name] = [os.path.getsize(path), checksum(path, whole=whole)]
    document = {
        "version": VERSION,
        "step": saved.step,
        "loss": saved.loss,
        "time": saved.time,
        "sound": saved.is_sound,
        "whole": whole,
        "facts": saved.facts,
        "files": files,
    }
    path = os.path.join(folder, NAME)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    flush(folder)


def read(folder: str) -> Saved:
    """Return what a checkpoint says of itself.  Raises NotWholeError."""
    return _read(folder)[0]


def _read(folder: str) -> tuple[Saved, bool]:
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            document = json.loads(file.read(_LONGEST))
        if document["version"] != VERSION:
            raise NotWholeError(f"its {NAME} is of version {document['version']!r}")
        files = {str(name): (int(size), int(check)) for name, (size, check) in document["files"].items()}
        saved = Saved(
            path=folder,
            step=int(document["step"]),
            loss=None if document["loss"] is None else float(document["loss"]),
            time=_moment(document["time"]),
            is_sound=bool(document["sound"]),
            facts=dict(document["facts"]),
            files=files,
        )
    except FileNotFoundError:
        raise NotWholeError(f"it has no {NAME}: it was never finished") from None
    except (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NotWholeError(f"its {NAME} cannot be read: {error}") from None
    return saved, bool(document.get("whole"))


def _moment(value: Any) -> float:
    found = float(value)
    if not 0.0 <= found < _LATEST:
        raise ValueError(f"{value!r} is no time")
    return found


def verify(folder: str) -> Saved:
    """Return what a checkpoint says of itself, if all its files are what they were.  Raises NotWholeError."""
    saved, whole = _read(folder)
    for name, (size, check) in saved.files.items():
        path = os.path.join(folder, name)
        if os.path.isabs(name) or ".." in name.split("/"):
            raise NotWholeError(f"its {NAME} names a file outside")
        try:
            now = os.path.getsize(path)
            if now != size:
                raise NotWholeError(f"{name} has {now} bytes of {size}")
            if checksum(path, whole=whole) != check:
                raise NotWholeError(f"{name} was changed after it was saved")
        except FileNotFoundError:
            raise NotWholeError(f"{name} is missing") from None
        except OSError as error:
            raise NotWholeError(f"{name} cannot be read: {error.strerror}") from None
    return saved


def checksum(path: str, *, whole: bool = False) -> int:
    """Return the CRC-32 of the ends of a file, or of all of it.  Raises OSError."""
    with open(path, "rb") as file:
        if whole:
            found = 0
            while chunk := file.read(_END):
                found = zlib.crc32(chunk, found)
            return found
        found = zlib.crc32(file.read(_END))
        size = os.fstat(file.fileno()).st_size
        if size > _END:
            file.seek(max(_END, size - _END))
            found = zlib.crc32(file.read(_END), found)
        return found


def _names(folder: str) -> Iterator[str]:
    """Give the files below a folder, by their paths in it, but for the list itself."""
    count = 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.relpath(os.path.join(parent, name), folder)
            count += 1
            if count > _MOST_FILES:
                raise OSError(f"{folder} has more than {_MOST_FILES} files")
            # A link that leads nowhere holds nothing, and a pipe would be waited for.
            if path != NAME and os.path.isfile(os.path.join(folder, path)):
                yield path


def flush(path: str) -> None:
    """See to it that a file or folder is on the disk.  Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
