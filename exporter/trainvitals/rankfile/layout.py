"""What both sides agree on: offsets, formats, flags, and the types that stand for them."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

try:
    import fcntl
except ImportError:  # Windows, where the probe is inert; the import of the package must not fail there.
    fcntl = None  # type: ignore[assignment]

MAGIC = b"TVITALS\x02"
VERSION = 2

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
    "device",
    "paused",
)
MAX_PHASES = 16

MAX_NAMES = 64
MAX_NAME_LENGTH = 64
VALUES_PER_RECORD = 16
RING_RECORDS = 4096

FLAG_FINISHED = 1
FLAG_FAILED = 2
FLAG_DISABLED = 4

HEADER = struct.Struct("<8sIIQIIIIIIII36sdd")
STATE = struct.Struct(f"<QIIddQqQddQQQQ{MAX_PHASES}d")
TEXT = struct.Struct("<QII")
CRC = struct.Struct("<I")
RECORD = struct.Struct(f"<QQqdQ{VALUES_PER_RECORD}d")
#: Records up to their last value, by the number of values.
RECORDS = tuple(struct.Struct(f"<QQqdQ{count}d") for count in range(VALUES_PER_RECORD + 1))
#: A record and its check at once.
WHOLE_RECORD = struct.Struct(RECORD.format + "d")
#: A packed state and its checksum.
SEALED_STATE = struct.Struct(f"<{STATE.size}sI")

HEADER_AREA = 128
STATE_AREA = 384
TEXT_AREA = 8192
RECORD_AREA = 176
#: From so many values on, one call for all of them is cheaper than one operation for each.
WIDE = 7
#: Folds a mask for the check of its record: the largest prime of 16 bits.
MASK_MODULUS = 65521
#: In the header's area, behind its checksum.
WAIT_OFFSET = 112
#: Behind the states: samples and tokens.
AMOUNTS_OFFSET = 896
STATE_OFFSET = HEADER_AREA
TEXT_OFFSET = 1024
RING_OFFSET = TEXT_OFFSET + 2 * TEXT_AREA
FILE_SIZE = RING_OFFSET + RING_RECORDS * RECORD_AREA

#: What the header says of all this; a reader refuses a file that says otherwise.
LAYOUT = (
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

RANK_SUFFIX = ".rank"
EVENTS_SUFFIX = ".events"
#: A file that is still being built; never read, never matched by RANK_SUFFIX.
NEW_SUFFIX = ".new"
#: The events of one rank may take this many bytes of the spool, and each line this many.
EVENTS_LIMIT = 1 << 20
LONGEST_EVENT = 16 << 10


class RankFileError(Exception):
    """A rank file that cannot be used; ``reason`` is a short word that becomes a label value."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass(slots=True)
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
        return STATE.pack(
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


def check_of(sequence: int, count: int, step: int, now: float, mask: int, values: Collection[float]) -> float:  # noqa: PLR0917
    """Return the check of a record: from WIDE values on the CRC-32 of all of it, below that a sum.

    A training can compute a sum with what is at hand, where a CRC fetches code and tables from memory: that takes ten
    times as long after a step as in a loop of its own.  With many values the sum is no cheaper.
    The order of the additions counts; what would make the sum infinite, or no number, is left out.
    A reader takes 0 for a check that is still to be written: one record in some thousand millions is lost to that.
    """
    if len(values) >= WIDE:
        return float(zlib.crc32(RECORDS[len(values)].pack(sequence, count, step, now, mask, *values)))
    total = now + (sequence + count + step + mask % MASK_MODULUS)
    for value in values:
        added = total + value
        if added - added == 0.0:
            total = added
    return total


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


def lock(descriptor: int) -> None:
    """Take the writer's lock; raises OSError when somebody else holds it."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(descriptor: int) -> bool:
    """Whether the writer's lock is held."""
    return lock_holder(descriptor) is not None


def lock_holder(descriptor: int) -> int | None:
    """Return the process that holds the writer's lock, None without one.  Asks without taking the lock.

    The id is the one that this process knows the holder by, whatever the holder's own namespace of process ids calls
    it; 0 when the holder cannot be seen from here.
    The question is for a shared lock: only a lock of somebody who may write the file is in its way.
    """
    query = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, query)
    except OSError:
        return None
    kind, _, _, _, pid = struct.unpack("hhqqi", answer)
    # Locks of an open file description and those from another machine have no process: -1 or less.
    return None if kind == fcntl.F_UNLCK else max(pid, 0)
