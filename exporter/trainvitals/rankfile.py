"""The rank file: what one training process leaves in shared memory for the exporter to read.

One file per rank, of fixed size, allocated once and never grown or truncated.
All numbers are little-endian; every area that is written carries a CRC-32, and a reader drops what does not check.

::

    0        header   128 B  magic, version, the offsets and sizes below, boot id, start times, crc
    128      state 0  384 B  sequence, flags, phase, heartbeat, cumulative counters, crc
    512      state 1         the writer alternates; a reader takes the valid one with the higher sequence
    1024     text 0  8192 B  sequence, length, crc, JSON {"identity": {...}, "names": [...]}
    9216     text 1          alternates like the state
    17408    ring     4096 records of 176 B: sequence, count, step, time, mask, 16 values, crc

A record holds up to 16 values; bit *i* of its mask says that the next value belongs to name *i* of the table.
A step with more values spans several records with the same count.
Values that became known late (copied from a device) come in a record of their own with the count of their step.
Record *s* lives in slot ``s % 4096``.
So 4,096 steps of at most 16 values fit between two polls: almost 7 minutes at 10 steps a second.

The writer holds a POSIX record lock on the file for as long as it lives.
The kernel drops it when the process dies, however it dies, even while a forked child lives on (``flock`` would not).
A process must therefore never open its own rank file a second time: closing any descriptor of it drops the lock.

Times are ``CLOCK_MONOTONIC`` seconds, comparable between processes of one boot; the header has one wall-clock anchor.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import mmap
import os
import stat
import struct
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

try:
    import fcntl
except ImportError:  # Windows, where the probe is inert; the import of the package must not fail there.
    fcntl = None  # type: ignore[assignment]

MAGIC = b"TVITALS\x01"
VERSION = 1

#: Where time can go.  The index is what the file stores; append only.
PHASES = (
    "other",
    "init",
    "train",
    "data",
    "forward",
    "backward",
    "optimizer",
    "communication",
    "checkpoint",
    "evaluation",
)
MAX_PHASES = 16

MAX_NAMES = 64
MAX_NAME_LENGTH = 64
VALUES_PER_RECORD = 16
RING_RECORDS = 4096

FLAG_FINISHED = 1
FLAG_FAILED = 2
FLAG_DISABLED = 4

_HEADER = struct.Struct("<8sIIQIIIIIIII36sdd")
_STATE = struct.Struct(f"<QIIddQqQddQQQQ{MAX_PHASES}d")
_TEXT = struct.Struct("<QII")
_CRC = struct.Struct("<I")
RECORD = struct.Struct(f"<QQqdQ{VALUES_PER_RECORD}d")
#: The same bytes by the number of values: what is missing is zero without being passed.
RECORDS = tuple(
    struct.Struct(f"<QQqdQ{count}d{8 * (VALUES_PER_RECORD - count)}x") for count in range(VALUES_PER_RECORD + 1)
)
#: A packed record and its checksum; the state likewise.
SEALED = struct.Struct(f"<{RECORD.size}sI")
_SEALED_STATE = struct.Struct(f"<{_STATE.size}sI")
#: A record and its checksum at once.
_WHOLE_RECORD = struct.Struct(RECORD.format + "I")

HEADER_AREA = 128
STATE_AREA = 384
TEXT_AREA = 8192
RECORD_AREA = 176
STATE_OFFSET = HEADER_AREA
TEXT_OFFSET = 1024
RING_OFFSET = TEXT_OFFSET + 2 * TEXT_AREA
FILE_SIZE = RING_OFFSET + RING_RECORDS * RECORD_AREA

RANK_SUFFIX = ".rank"
EVENTS_SUFFIX = ".events"
#: A file that is still being built; never read, never matched by RANK_SUFFIX.
NEW_SUFFIX = ".new"
#: The events of one rank may take this many bytes of the spool, and each line this many.
EVENTS_LIMIT = 1 << 20
LONGEST_EVENT = 4096

#: What is kept of an identity that does not fit; the rest of the text area is for names.
_ESSENTIAL = ("run", "attempt", "rank", "local_rank", "world_size", "framework", "target_steps", "device_uuid", "pid")
_LONGEST_IDENTITY = 3072

#: How many slots a poll reads at a time: at 1 Hz, most runs write fewer.
_CHUNK = 64
#: How often what does not check is read: its writer needs a microsecond to finish.
_TRIES = 4
#: No writer gets so far ahead between two polls; a record that claims it is damaged.
_LONGEST_JUMP = 1 << 32
_SEQUENCES = struct.Struct(f"<Q{RECORD_AREA - 8}x")


class RankFileError(Exception):
    """A rank file that cannot be used; ``reason`` is a short word that becomes a label value."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass
class State:
    """The mutable part of a rank file: flags, the current phase and counters since the start of the process."""

    flags: int = 0
    phase: int = 1
    phase_since: float = 0.0
    heartbeat: float = 0.0
    count: int = 0
    step: int = -1
    records: int = 0
    samples: float = 0.0
    tokens: float = 0.0
    skipped: int = 0
    nonfinite: int = 0
    errors: int = 0
    dropped: int = 0
    phase_seconds: list[float] = field(default_factory=lambda: [0.0] * MAX_PHASES)

    def pack(self, sequence: int) -> bytes:
        """Return the bytes of one state slot, without the checksum."""
        return _STATE.pack(
            sequence,
            self.flags,
            self.phase,
            self.phase_since,
            self.heartbeat,
            self.count,
            self.step,
            self.records,
            self.samples,
            self.tokens,
            self.skipped,
            self.nonfinite,
            self.errors,
            self.dropped,
            *self.phase_seconds,
        )

    @classmethod
    def unpack(cls, fields: tuple[Any, ...]) -> State:
        """Return the state that :meth:`pack` wrote, without its sequence."""
        state = cls(*fields[1:14])
        state.phase_seconds = list(fields[14:])
        return state


@dataclass(frozen=True)
class Header:
    """The fixed part of a rank file: when and in which boot it was made."""

    boot_id: str
    started_monotonic: float
    started_wall: float


@dataclass(slots=True)
class Record:
    """Some values of one step: ``values`` maps an index of the name table to a number."""

    sequence: int
    count: int
    step: int
    time: float
    values: dict[int, float]


def boot_id() -> str:
    """Return the kernel's id of this boot, or an empty string where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def is_locked(descriptor: int) -> bool:
    """Whether the writer's lock is held.  Asks without taking it, so it can never be in the writer's way.

    The question is for a shared lock: only a lock of somebody who may write the file is in its way.
    """
    query = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, query)
    except OSError:
        return False
    return bool(struct.unpack("hhqqi", answer)[0] != fcntl.F_UNLCK)


class Writer:
    """The trainer's side: creates the file under a temporary name, locks it, then renames it into place.

    Raises OSError when the folder is missing, read-only or full; nothing is left behind then.
    """

    def __init__(self, path: str, identity: dict[str, Any]) -> None:
        self.path = path
        self.identity = _shortened(identity)
        self.names: list[str] = []
        self.state = State()
        self._state_sequence = 0
        self._text_sequence = 0
        temporary = path + NEW_SUFFIX
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(temporary, flags, 0o644)
        try:
            # ftruncate would leave a sparse file, and a later write to a full tmpfs is a SIGBUS.
            os.posix_fallocate(self._descriptor, 0, FILE_SIZE)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.map = mmap.mmap(self._descriptor, FILE_SIZE)
            self._write_header()
            self.write_text()
            self.write_state()
            os.rename(temporary, path)
        except BaseException:
            if hasattr(self, "map"):
                self.map.close()
            os.close(self._descriptor)
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _write_header(self) -> None:
        now, wall = time.monotonic(), time.time()
        body = _HEADER.pack(
            MAGIC,
            VERSION,
            HEADER_AREA,
            FILE_SIZE,
            STATE_OFFSET,
            STATE_AREA,
            TEXT_OFFSET,
            TEXT_AREA,
            RING_OFFSET,
            RING_RECORDS,
            RECORD_AREA,
            VALUES_PER_RECORD,
            boot_id().encode("ascii", "replace")[:36],
            now,
            wall,
        )
        self.map[: len(body) + 4] = body + _CRC.pack(zlib.crc32(body))
        self.state.phase_since = self.state.heartbeat = now

    def write_state(self) -> None:
        """Publish ``self.state``: about a microsecond."""
        self._state_sequence = sequence = self._state_sequence + 1
        body = self.state.pack(sequence)
        _SEALED_STATE.pack_into(self.map, STATE_OFFSET + (sequence & 1) * STATE_AREA, body, zlib.crc32(body))

    def write_text(self) -> bool:
        """Publish ``self.identity`` and ``self.names``; return False, and publish nothing, when they do not fit."""
        text = json.dumps({"identity": self.identity, "names": self.names}, default=str).encode()
        if len(text) > TEXT_AREA - _TEXT.size:
            return False
        self._text_sequence += 1
        offset = TEXT_OFFSET + (self._text_sequence & 1) * TEXT_AREA
        head = _TEXT.pack(self._text_sequence, len(text), zlib.crc32(text))
        self.map[offset : offset + len(head) + len(text)] = head + text
        return True

    def write_record(self, sequence: int, count: int, step: int, now: float, values: dict[int, float]) -> None:
        """Write one record; ``values`` has at most :data:`VALUES_PER_RECORD` entries."""
        mask = 0
        for index in values:
            mask |= 1 << index
        body = RECORDS[len(values)].pack(sequence, count, step, now, mask, *map(values.__getitem__, sorted(values)))
        SEALED.pack_into(self.map, RING_OFFSET + sequence % RING_RECORDS * RECORD_AREA, body, zlib.crc32(body))

    def close(self) -> None:
        """Unmap and unlock.  A clean end sets a flag first; see :data:`FLAG_FINISHED`."""
        self.map.close()
        os.close(self._descriptor)


def _shortened(identity: dict[str, Any]) -> dict[str, Any]:
    """Return an identity that leaves room for the names: a rank must never lose its number to a long text."""
    if len(json.dumps(identity, default=str)) <= _LONGEST_IDENTITY:
        return identity
    known = {name: identity[name] for name in _ESSENTIAL if name in identity}
    return {name: value if isinstance(value, int) else str(value)[:64] for name, value in known.items()}


class Reader:
    """The exporter's side.  The file is hostile: sizes are bounded, checks come first, nothing in it is trusted.

    Raises RankFileError, whose ``reason`` is one of ``unreadable``, ``not_regular``, ``owner``, ``empty``, ``size``,
    ``magic``, ``version``, ``header``, ``identity``.
    """

    def __init__(self, path: str, *, owners: frozenset[int] | None = None) -> None:
        self.path = path
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            reason = "not_regular" if error.errno in (errno.ELOOP, errno.ENXIO) else "unreadable"
            raise RankFileError(reason, str(error)) from error
        self._descriptor = descriptor
        try:
            self._check_file(owners)
            self.header = self._read_header()
        except BaseException:
            os.close(descriptor)
            raise

    def _check_file(self, owners: frozenset[int] | None) -> None:
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RankFileError("not_regular")
        if owners is not None and status.st_uid not in owners:
            raise RankFileError("owner", f"uid {status.st_uid}")
        if status.st_size == 0:
            raise RankFileError("empty")
        self.inode = (status.st_dev, status.st_ino)
        self.owner = status.st_uid

    def _read(self, offset: int, size: int) -> bytes:
        # pread and not mmap: a file that somebody truncates must give a short read, not a SIGBUS.
        try:
            data = os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise RankFileError("unreadable", str(error)) from error
        return data

    def _read_header(self) -> Header:
        data = self._read(0, HEADER_AREA)
        if data[:7] != MAGIC[:7]:
            raise RankFileError("magic")
        if len(data) < HEADER_AREA:
            raise RankFileError("size", f"{len(data)} bytes")
        fields = _HEADER.unpack_from(data)
        if fields[1] != VERSION or data[7] != MAGIC[7]:
            raise RankFileError("version", f"{fields[1]}, expected {VERSION}")
        if _CRC.unpack_from(data, _HEADER.size)[0] != zlib.crc32(data[: _HEADER.size]):
            raise RankFileError("header", "checksum")
        layout = (
            HEADER_AREA,
            FILE_SIZE,
            STATE_OFFSET,
            STATE_AREA,
            TEXT_OFFSET,
            TEXT_AREA,
            RING_OFFSET,
            RING_RECORDS,
            RECORD_AREA,
            VALUES_PER_RECORD,
        )
        if fields[2:12] != layout:
            raise RankFileError("header", "layout")
        if os.fstat(self._descriptor).st_size != FILE_SIZE:
            raise RankFileError("size", f"{os.fstat(self._descriptor).st_size}, expected {FILE_SIZE}")
        return Header(fields[12].rstrip(b"\0").decode("ascii", "replace"), fields[13], fields[14])

    def read_text(self) -> tuple[dict[str, Any], list[str]]:
        """Return identity and value names.  Keys and types are checked; contents are still to be cleaned."""
        best: tuple[int, bytes] | None = None
        for slot in (0, 1):
            data = self._read(TEXT_OFFSET + slot * TEXT_AREA, TEXT_AREA)
            if len(data) < _TEXT.size:
                continue
            sequence, length, checksum = _TEXT.unpack_from(data)
            text = data[_TEXT.size : _TEXT.size + min(length, TEXT_AREA)]
            if sequence and len(text) == length and zlib.crc32(text) == checksum and (not best or sequence > best[0]):
                best = (sequence, text)
        if best is None:
            raise RankFileError("identity", "checksum")
        try:
            document = json.loads(best[1])
            identity, names = dict(document["identity"]), list(document["names"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RankFileError("identity", type(error).__name__) from error
        if len(names) > MAX_NAMES or not all(isinstance(name, str) for name in names):
            raise RankFileError("identity", "names")
        return identity, names

    def read_state(self) -> State | None:
        """Return the newest valid state, or None when neither slot checks (try again at the next poll)."""
        best: tuple[Any, ...] | None = None
        for _ in range(_TRIES):
            for slot in (0, 1):
                data = self._read(STATE_OFFSET + slot * STATE_AREA, _STATE.size + 4)
                if len(data) == _STATE.size + 4 and zlib.crc32(data[:-4]) == _CRC.unpack(data[-4:])[0]:
                    fields = _STATE.unpack_from(data)
                    if best is None or fields[0] > best[0]:
                        best = fields
            if best is not None:
                return State.unpack(best)
            # A writer at full speed was in one slot and then in the other.
        return None

    def read_records(self, after: int) -> tuple[list[Record], int]:
        """Return the valid records with a sequence above ``after``, in order, and how many slots did not check.

        Records that were overwritten are in neither.  The newest may just be written: it is found at the next poll.
        The usual poll reads on from ``after`` in chunks; the first one, and one that was overrun, scans the ring.
        """
        records: list[Record] = []
        position = after
        while position > 0:
            found, more = self._read_on(position)
            records += found
            position += len(found)
            if not more or len(records) >= RING_RECORDS:
                return records, 0
            if not found:
                break
        rest, invalid = self._scan(position)
        return records + rest, invalid

    def _read_on(self, after: int) -> tuple[list[Record], bool]:
        """Return the next records without a gap, and whether there may be more."""
        data = self._read_slots(after + 1, _CHUNK)
        records: list[Record] = []
        for offset in range(0, len(data) - RECORD_AREA + 1, RECORD_AREA):
            expected = after + 1 + len(records)
            (sequence,) = _SEQUENCES.unpack_from(data, offset)
            if sequence in (0, expected - RING_RECORDS):
                # Not written yet; unless the next slot is, and this one is damaged.
                ahead = data[offset + RECORD_AREA : offset + RECORD_AREA + 8]
                return records, int.from_bytes(ahead, "little") == expected + 1
            record = _checked(data, offset) if sequence == expected else None
            if record is None:
                return records, True
            records.append(record)
        return records, bool(records)

    def _read_slots(self, first: int, count: int) -> bytes:
        slot = first % RING_RECORDS
        head = min(count, RING_RECORDS - slot)
        data = self._read(RING_OFFSET + slot * RECORD_AREA, head * RECORD_AREA)
        if head < count:
            data += self._read(RING_OFFSET, (count - head) * RECORD_AREA)
        return data

    def _scan(self, after: int) -> tuple[list[Record], int]:
        """Return all valid records above ``after``, and how many slots between them did not check."""
        found: dict[int, Record] = {}
        missing: list[int] = []
        for _ in range(_TRIES):
            data = self._read(RING_OFFSET, RING_RECORDS * RECORD_AREA)
            whole = len(data) - len(data) % RECORD_AREA
            for slot, (sequence,) in enumerate(_SEQUENCES.iter_unpack(data[:whole])):
                if after < sequence < after + _LONGEST_JUMP and sequence % RING_RECORDS == slot:
                    record = found.get(sequence) or _checked(data, slot * RECORD_AREA)
                    if record is not None:
                        found[sequence] = record
            last = max(found, default=after)
            missing = [s for s in range(max(after + 1, last - RING_RECORDS + 1), last) if s not in found]
            if not missing:
                break
            # The ring was written on while it was read: what is missing may be there by now.
        return [found[sequence] for sequence in sorted(found)], len(missing)

    def alive(self) -> bool:
        """Whether the writer lives."""
        return is_locked(self._descriptor)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def _checked(data: bytes, offset: int) -> Record | None:
    """Return the record at ``offset``, or None when its checksum is wrong."""
    sequence, count, step, now, mask, *numbers, checksum = _WHOLE_RECORD.unpack_from(data, offset)
    if zlib.crc32(data[offset : offset + RECORD.size]) != checksum:
        return None
    return Record(sequence, count, step, now, dict(zip(_indexes(mask), numbers, strict=False)))


@functools.lru_cache(maxsize=256)
def _indexes(mask: int) -> tuple[int, ...]:
    """Return the numbers of the bits that are set, lowest first; a step repeats the mask of the step before."""
    return tuple(index for index in range(MAX_NAMES) if mask >> index & 1)
