"""The exporter's side: the file is hostile."""

from __future__ import annotations

import errno
import functools
import json
import math
import os
import stat
import struct
import zlib
from typing import Any

from trainvitals.rankfile.layout import (
    AMOUNTS_OFFSET,
    CRC,
    FILE_SIZE,
    HEADER,
    HEADER_AREA,
    LAYOUT,
    MAGIC,
    MAX_NAMES,
    MAX_PHASES,
    PHASES,
    RECORD_AREA,
    RING_OFFSET,
    RING_RECORDS,
    STATE,
    STATE_AREA,
    STATE_OFFSET,
    TEXT,
    TEXT_AREA,
    TEXT_OFFSET,
    VERSION,
    WAIT_OFFSET,
    WHOLE_RECORD,
    Header,
    RankFileError,
    Record,
    State,
    check_of,
    lock_holder,
)

#: How many slots a poll reads at a time: at 1 Hz, most runs write fewer.
_CHUNK = 64
#: How often what does not check is read: its writer needs a microsecond to finish.
_TRIES = 4
#: No writer gets so far ahead between two polls; a record that claims it is damaged.
_LONGEST_JUMP = 1 << 32
_WORD = struct.Struct("<d")
_AMOUNTS = struct.Struct("<dd")
_DATA = PHASES.index("data")
_SEQUENCES = struct.Struct(f"<Q{RECORD_AREA - 8}x")


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
        fields = HEADER.unpack_from(data)
        if fields[1] != VERSION or data[7] != MAGIC[7]:
            raise RankFileError("version", f"{fields[1]}, expected {VERSION}")
        if CRC.unpack_from(data, HEADER.size)[0] != zlib.crc32(data[: HEADER.size]):
            raise RankFileError("header", "checksum")
        if fields[2:12] != LAYOUT:
            raise RankFileError("header", "layout")
        if os.fstat(self._descriptor).st_size != FILE_SIZE:
            raise RankFileError("size", f"{os.fstat(self._descriptor).st_size}, expected {FILE_SIZE}")
        return Header(fields[12].rstrip(b"\0").decode("ascii", "replace"), fields[13], fields[14])

    def read_text(self) -> tuple[dict[str, Any], list[str]]:
        """Return identity and value names.  Keys and types are checked; contents are still to be cleaned."""
        best: tuple[int, bytes] | None = None
        for slot in (0, 1):
            data = self._read(TEXT_OFFSET + slot * TEXT_AREA, TEXT_AREA)
            if len(data) < TEXT.size:
                continue
            sequence, length, checksum = TEXT.unpack_from(data)
            text = data[TEXT.size : TEXT.size + min(length, TEXT_AREA)]
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
                data = self._read(STATE_OFFSET + slot * STATE_AREA, STATE.size + 4)
                if len(data) == STATE.size + 4 and zlib.crc32(data[:-4]) == CRC.unpack(data[-4:])[0]:
                    fields = STATE.unpack_from(data)
                    if best is None or fields[0] > best[0]:
                        best = fields
            if best is not None:
                return self._waiting(self._with_amounts(State.unpack(best)))
            # A writer at full speed was in one slot and then in the other.
        return None

    def _with_amounts(self, state: State) -> State:
        """Return the state with what was added since it was written."""
        data = self._read(AMOUNTS_OFFSET, _AMOUNTS.size)
        if len(data) == _AMOUNTS.size:
            samples, tokens = _AMOUNTS.unpack(data)
            # What is no number, or infinite, is not greater in a way that counts.
            state.samples = samples if state.samples < samples < math.inf else state.samples
            state.tokens = tokens if state.tokens < tokens < math.inf else state.tokens
        return state

    def _waiting(self, state: State) -> State:
        """Return the state with the wait for data that has begun since it was written."""
        data = self._read(WAIT_OFFSET, _WORD.size)
        since = _WORD.unpack(data)[0] if len(data) == _WORD.size else 0.0
        if since > 0.0 and since >= state.phase_since and state.phase < MAX_PHASES:
            state.phase_seconds[state.phase] += since - state.phase_since
            state.phase, state.phase_since = _DATA, since
        return state

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
        return self.writer() is not None

    def writer(self) -> int | None:
        """Return the process id of the writer, None when it is gone and 0 when it cannot be seen from here."""
        return lock_holder(self._descriptor)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def _checked(data: bytes, offset: int) -> Record | None:
    """Return the record at ``offset``, or None when its checksum is wrong."""
    sequence, count, step, now, mask, *numbers, check = WHOLE_RECORD.unpack_from(data, offset)
    # To pack is to clear first: with words that are still 0, the sum of a record may be the 0 that awaits its check.
    if not check:
        return None
    values = dict(zip(_indexes(mask), numbers, strict=False))
    if check_of(sequence, count, step, now, mask, values.values()) != check:
        return None
    return Record(sequence, count, step, now, values)


@functools.lru_cache(maxsize=256)
def _indexes(mask: int) -> tuple[int, ...]:
    """Return the numbers of the bits that are set, lowest first; a step repeats the mask of the step before."""
    return tuple(index for index in range(MAX_NAMES) if mask >> index & 1)
