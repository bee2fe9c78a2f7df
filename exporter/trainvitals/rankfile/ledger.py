"""The data file beside a rank file: what was in the last batches of a rank, and how many batches and errors there were.

Made only where a training watches its data (:mod:`trainvitals.probe.data`); of fixed size, allocated once.
All numbers are little-endian.

::

    0        header    64 B  magic, version, the sizes below, crc
    64       state 0   64 B  sequence, batches, samples, bytes, errors, crc
    128      state 1         alternates, as in the rank file
    512      workers   128 slots of 16 B: errors that were met in a worker process, crc
    4096     ring      512 entries of 1,056 B: sequence, count, total, length, kind, names, crc

An entry is one batch; *count* is the count of the step (see the rank file) that it was handed out for, *total* how many
names there were before they were cut.  Entry *s* lives in slot ``s % 512``.

Several processes write: the rank its states and its ring, and each of its data-loader workers one slot, which it
finds by its process id.  Nobody locks anything.
"""

from __future__ import annotations

import array
import contextlib
import errno
import mmap
import os
import stat
import struct
import sys
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from trainvitals.rankfile.layout import NEW_SUFFIX, RANK_SUFFIX, RankFileError

DATA_SUFFIX = ".data"

_MAGIC = b"TVDATA\0\1"
_VERSION = 1
_HEADER = struct.Struct("<8sIIIII")
_STATE = struct.Struct("<QQQQQ")
_ENTRY = struct.Struct("<QQIHBx")
_WORKER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_SEALED_STATE = struct.Struct(f"<{_STATE.size}sI")

_STATE_OFFSET, _STATE_AREA = 64, 64
_WORKERS_OFFSET, _WORKERS, _WORKER_AREA = 512, 128, 16
_RING_OFFSET = 4096
ENTRIES = 512
#: Bytes that the names of a batch may take: 256 indices of 32 bits.
NAMES_AREA = 1024
_ENTRY_AREA = _ENTRY.size + NAMES_AREA + _CRC.size + 4
SIZE = _RING_OFFSET + ENTRIES * _ENTRY_AREA
_LAYOUT = (_VERSION, SIZE, ENTRIES, _ENTRY_AREA, _WORKERS)

#: So many names of a batch are kept.
MAX_NAMES = 256
#: The common folder is looked for so many levels up: that of the file, of its class, of the data set.
_LEVELS = 4
#: How the names are written: texts behind their common folder, parted by NUL; unsigned 32 and signed 64 bits.
_TEXT, _SMALL, _LARGE = 0, 1, 2
_NUMBERS = ((_SMALL, "I", 4), (_LARGE, "q", 8))
#: Counters beyond are none of ours.
_LARGEST = 1 << 62

Name = str | int


@dataclass(frozen=True, slots=True)
class DataCounters:
    """Batches, samples and bytes that the watched loaders handed out, and errors in them and in their workers."""

    batches: int
    samples: int
    bytes: int
    errors: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The names in one batch, as many as there was room for; ``total`` is how many there were."""

    count: int
    names: tuple[Name, ...]
    total: int


def path_of_data(rank_file: str) -> str:
    """Return the name of the data file that belongs to a rank file."""
    return rank_file.removesuffix(RANK_SUFFIX) + DATA_SUFFIX


def make(path: str) -> None:
    """Make the file unless it is there: whoever comes first, the rank or a worker.  Raises OSError."""
    if os.path.lexists(path):
        return
    # A process that is killed in here leaves what the exporter sweeps away.
    temporary = f"{path}.{os.getpid()}{RANK_SUFFIX}{NEW_SUFFIX}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, SIZE)
        header = _HEADER.pack(_MAGIC, *_LAYOUT)
        os.pwrite(descriptor, header + _CRC.pack(zlib.crc32(header)), 0)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.close(descriptor)
        os.unlink(temporary)


class LedgerWriter:
    """The rank's side.  Counters are attributes, published by :meth:`write_state`.  Raises OSError at the start."""

    def __init__(self, path: str) -> None:
        make(path)
        descriptor = _open(path, os.O_RDWR)
        try:
            if not _is_ours(descriptor):
                raise OSError(errno.EINVAL, "not a data file of ours", path)
            self._map = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        self.batches = self.samples = self.bytes = self.errors = 0
        self._entries = 0
        self._states = 0
        self.write_state()

    def write_state(self) -> None:
        """Publish the counters: less than a microsecond."""
        self._states = sequence = self._states + 1
        body = _STATE.pack(sequence, self.batches, self.samples, self.bytes, self.errors)
        _SEALED_STATE.pack_into(self._map, _STATE_OFFSET + (sequence & 1) * _STATE_AREA, body, zlib.crc32(body))

    def add(self, count: int, names: Sequence[Name], total: int) -> None:
        """Write down the names of a batch that was handed out for the step ``count``; what does not fit is cut."""
        kind, data = _encoded(names)
        self._entries = sequence = self._entries + 1
        body = _ENTRY.pack(sequence, count, min(total, 0xFFFFFFFF), len(data), kind) + data
        offset = _RING_OFFSET + sequence % ENTRIES * _ENTRY_AREA
        self._map[offset : offset + len(body) + 4] = body + _CRC.pack(zlib.crc32(body))


def _encoded(names: Sequence[Name]) -> tuple[int, bytes]:
    # By calls that look at all names at once: a loop over them would cost ten times as much.
    if isinstance(names[0], int):
        numbers: Any = names
        for kind, code, width in _NUMBERS:
            try:
                packed = array.array(code, numbers[: NAMES_AREA // width])
            except (OverflowError, TypeError):  # Larger ones; or texts among them.
                continue
            if sys.byteorder == "big":
                packed.byteswap()
            return kind, packed.tobytes()
    texts: Sequence[Any] = names[: NAMES_AREA // 8]
    try:
        text = "\0".join(("", *texts))
    except TypeError:
        texts = [str(name) if isinstance(name, (str, int)) else type(name).__name__ for name in texts]
        text = "\0".join(("", *texts))
    folder = texts[0]
    for _ in range(_LEVELS):
        folder = folder[: folder.rfind("/", 0, -1) + 1]
        shorter = text.replace("\0" + folder, "\0")
        if len(text) - len(shorter) == len(folder) * len(texts):  # All of them are in it; in "" they are.
            break
    else:
        folder, shorter = "", text
    data = (folder + shorter).encode("utf-8", "replace")
    if len(data) > NAMES_AREA:
        # A name that was cut would be another file's.
        data = data[: max(0, data.rfind(b"\0", 0, NAMES_AREA + 1))]
    return _TEXT, data


def _decoded(kind: int, data: bytes) -> tuple[Name, ...]:
    if kind in (_SMALL, _LARGE):
        width, code = (4, "I") if kind == _SMALL else (8, "q")
        return struct.unpack(f"<{len(data) // width}{code}", data[: len(data) // width * width])
    folder, *texts = data.decode("utf-8", "replace").split("\0")
    return tuple(folder + text for text in texts[:NAMES_AREA])


def count_worker_error(path: str) -> None:
    """Count an error in this worker process; the file is made if need be.  Raises OSError."""
    make(path)
    descriptor = _open(path, os.O_RDWR)
    try:
        if not _is_ours(descriptor):
            return
        offset = _WORKERS_OFFSET + os.getpid() % _WORKERS * _WORKER_AREA
        before = _worker_errors(os.pread(descriptor, _WORKER.size, offset)) or 0
        body = (before + 1).to_bytes(8, "little")
        os.pwrite(descriptor, body + _CRC.pack(zlib.crc32(body)), offset)
    finally:
        os.close(descriptor)


def _worker_errors(data: bytes) -> int | None:
    """Return the errors in a worker's slot, or None when nobody wrote there or it does not check."""
    if len(data) < _WORKER.size:
        return None
    errors, checksum = _WORKER.unpack_from(data)
    return int(errors) if zlib.crc32(data[:8]) == checksum and errors < _LARGEST else None


def _open(path: str, mode: int) -> int:
    return os.open(path, mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _is_ours(descriptor: int) -> bool:
    """Whether this is a whole file of this user: another's could be cut under our feet."""
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and status.st_size == SIZE


class LedgerReader:
    """The exporter's side: the file is hostile, as a rank file is.  ``owner`` is the user who must own it.

    Raises RankFileError (``not_regular``, ``owner``, ``size``, ``header``) and OSError, FileNotFoundError included.
    """

    def __init__(self, path: str, owner: int) -> None:
        self._descriptor = _open(path, os.O_RDONLY)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise RankFileError("not_regular")
            if status.st_uid != owner:
                raise RankFileError("owner", f"uid {status.st_uid}")
            if status.st_size != SIZE:
                raise RankFileError("size", f"{status.st_size}, expected {SIZE}")
            self._head = os.pread(self._descriptor, _RING_OFFSET, 0)
            header = _HEADER.pack(_MAGIC, *_LAYOUT)
            if not self._head.startswith(header + _CRC.pack(zlib.crc32(header))):
                raise RankFileError("header")
        except BaseException:
            os.close(self._descriptor)
            raise

    def counters(self) -> DataCounters | None:
        """Return the counters, or None when none of them check (try again at the next poll)."""
        best: tuple[int, ...] | None = None
        for slot in (0, 1):
            offset = _STATE_OFFSET + slot * _STATE_AREA
            body = self._head[offset : offset + _STATE.size]
            checksum = self._head[offset + _STATE.size : offset + _STATE.size + 4]
            if len(body) == _STATE.size and _CRC.pack(zlib.crc32(body)) == checksum:
                fields = _STATE.unpack(body)
                if best is None or fields[0] > best[0]:
                    best = fields
        slots = range(_WORKERS_OFFSET, _WORKERS_OFFSET + _WORKERS * _WORKER_AREA, _WORKER_AREA)
        workers = sum(_worker_errors(self._head[slot : slot + _WORKER.size]) or 0 for slot in slots)
        if best is None:
            # Where only a guarded dataset's workers met errors, the rank itself has written nothing.
            return DataCounters(0, 0, 0, workers) if workers else None
        _, batches, samples, size, errors = best
        return DataCounters(*(min(value, _LARGEST) for value in (batches, samples, size, errors + workers)))

    def batches(self, counts: Collection[int]) -> list[Batch]:
        """Return what is still known of the batches that were handed out for these steps, in order."""
        data = os.pread(self._descriptor, ENTRIES * _ENTRY_AREA, _RING_OFFSET)
        found: list[tuple[int, Batch]] = []
        for offset in range(0, len(data) - _ENTRY_AREA + 1, _ENTRY_AREA):
            sequence, count, total, length, kind = _ENTRY.unpack_from(data, offset)
            if not sequence or count not in counts or length > NAMES_AREA:
                continue
            end = offset + _ENTRY.size + length
            if zlib.crc32(data[offset:end]) == _CRC.unpack_from(data, end)[0]:
                names = _decoded(kind, data[offset + _ENTRY.size : end])
                found.append((sequence, Batch(count, names, total)))
        return [batch for _, batch in sorted(found, key=lambda item: item[0])]

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)
