"""Orders to a run: how all ranks of a node are told to do something at one and the same step.

Files in the spool, beside the rank files; ``NAME`` is made of the run's::

    NAME.orders         8 bytes: the number of the newest order.  Each rank maps it and looks at this word in each step
    NAME.orders.7       order 7: JSON, which appears whole and is never changed
    NAME.orders.7.go    what was decided on it, "do" or "leave"

An order names the step behind which it is obeyed.  Each rank that sees it before says so; when all have, whoever gave
the order decides "do".  A rank that comes to the step before that decides "leave".  The decision is a file that is
linked into its place: the first one stays, so all ranks of a node do the same, and none ever waits for another.

Who may: the user of the training and root.  Files of others are refused, and so is what is no regular file.
Standard library only: ranks read this, and ``trainvitals ctl`` and the supervisor write it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import stat
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Decision = Literal["do", "leave"]

SUFFIX = ".orders"
_SIZE = 8
#: An order is a few names and numbers.
_LONGEST = 4096
#: Orders and decisions that stay, for people to look at.
_KEPT = 16
_FILE = re.compile(r"(.*-[0-9a-f]{8}\.orders)(?:\.[0-9a-z.]+)?")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LARGEST = 2**53


class OrderError(Exception):
    """Orders cannot be given or read; the text says why, in one line."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to do (``what`` with ``values``), behind which step (``at``), given by whom (``by``), and when."""

    number: int
    run: str
    what: str
    at: int
    values: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    time: float = 0.0


def in_words(what: str, values: Mapping[str, Any]) -> str:
    """Write what is ordered as people type it: ``set lr=0.0001``."""
    return " ".join([what, *(f"{name}={value}" for name, value in values.items())])


def path_of(folder: str, run: str) -> str:
    """Return the path of the file with the number of the newest order."""
    name = _UNSAFE.sub("-", run)[:96]
    return os.path.join(folder, f"{name}-{zlib.crc32(run.encode()):08x}{SUFFIX}")


def left_alone(folder: str, since: float) -> dict[str, list[str]]:
    """Return the files of orders below a folder that nobody has touched since a time, by :func:`path_of` their run.

    A run may live for longer than that without an order: whoever removes them looks for its ranks.
    """
    found: dict[str, list[str]] = {}
    touched: set[str] = set()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if (match := _FILE.fullmatch(entry.name)) is not None:
                path = os.path.join(folder, match[1])
                found.setdefault(path, []).append(entry.path)
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime >= since:
                        touched.add(path)
    return {path: files for path, files in found.items() if path not in touched}


class Mail:
    """The number of the newest order of a run, mapped: ``word[0]``.

    ``owners`` are the users whose files are trusted.  Raises OSError, also for a file of another user.
    """

    def __init__(self, path: str, owners: Collection[int], *, create: bool = False, write: bool = False) -> None:
        self.path = path
        self._owners = owners
        if create:
            _make(path)
            with contextlib.suppress(OSError):
                os.utime(path, follow_symlinks=False)  # Nobody removes what was touched now.
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags)
        try:
            _check(descriptor, path, owners)
            if os.fstat(descriptor).st_size < _SIZE:
                raise OSError(f"{path} is cut short")
            access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
            self._map = mmap.mmap(descriptor, _SIZE, access=access)
        finally:
            os.close(descriptor)
        self.word = memoryview(self._map).cast("Q")

    def close(self) -> None:
        """Unmap it."""
        self.word.release()
        self._map.close()

    def give(self, order: Order) -> Order:
        """Put up an order under the next number that is free; return it with that.  Raises OSError."""
        number = self.word[0]
        while True:
            number += 1
            given = Order(**{**asdict(order), "number": number})
            data = json.dumps(asdict(given)).encode()
            if len(data) > _LONGEST:
                raise OrderError("the order is too long")
            if _link(f"{self.path}.{number}", data):
                break
        # Another may have given a later one meanwhile.
        self.word[0] = max(self.word[0], number)
        for old in range(max(1, number - 2 * _KEPT), number - _KEPT):
            for path in (f"{self.path}.{old}", f"{self.path}.{old}.go"):
                with contextlib.suppress(OSError):
                    os.unlink(path)
        return given

    def read(self, number: int) -> Order:
        """Return an order.  Raises OrderError for one that is gone, damaged or somebody else's."""
        try:
            document = json.loads(self._content(f"{self.path}.{number}"))
            given = {name: document[name] for name in ("number", "run", "what", "at", "values", "by", "time")}
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise OrderError(f"order {number} cannot be read: {error}") from None
        order = Order(**given)
        is_whole = type(order.at) is int and abs(order.at) < _LARGEST and order.number == number
        if not (is_whole and isinstance(order.what, str) and isinstance(order.values, dict)):
            raise OrderError(f"order {number} is none")
        return order

    def decide(self, number: int, wanted: Decision) -> Decision:
        """Decide on an order, unless that is done; return what was decided.  Raises OSError."""
        if _link(f"{self.path}.{number}.go", wanted.encode()):
            return wanted
        return self.decision(number) or "leave"

    def decision(self, number: int) -> Decision | None:
        """Return what was decided on an order; None as long as nothing was.  Raises OSError for others' files."""
        try:
            content = self._content(f"{self.path}.{number}.go")
        except FileNotFoundError:
            return None
        return "do" if content == b"do" else "leave"

    def _content(self, path: str) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _check(descriptor, path, self._owners)
            return os.read(descriptor, _LONGEST)
        finally:
            os.close(descriptor)


def _check(descriptor: int, path: str, owners: Collection[int]) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in owners:
        raise PermissionError(f"{path} belongs to uid {status.st_uid}, who may not give orders here")


def _make(path: str) -> None:
    """Make the file of the number, unless it is there."""
    with contextlib.suppress(FileExistsError):
        _link(path, bytes(_SIZE))


def _link(path: str, content: bytes) -> bool:
    """Let a file appear whole; return False if there is one already."""
    unfinished = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.new"
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o644)  # Ranks of a user read what root has written, whatever root's mask is.
        written = os.write(descriptor, content)
        if written < len(content):
            raise OSError(f"{path} cannot be written: no space left")
        os.link(unfinished, path)
    except FileExistsError:
        return False
    finally:
        os.close(descriptor)
        os.unlink(unfinished)
    return True
