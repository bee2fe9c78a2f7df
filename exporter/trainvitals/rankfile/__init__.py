"""The rank file: what one training process leaves in shared memory for the exporter to read.

One file per rank, of fixed size, allocated once and never grown or truncated.
All numbers are little-endian; every area that is written carries a CRC-32, a record with few values the sum of what it
holds instead (:func:`trainvitals.rankfile.layout.check_of`), and a reader drops what does not check.

::

    0        header   112 B  magic, version, the offsets and sizes below, boot id, start times, crc
    112      wait       8 B  since when the process waits for data, 0.0 while it does not
    128      state 0  384 B  sequence, flags, phase, heartbeat, cumulative counters, crc
    512      state 1         the writer alternates; a reader takes the valid one with the higher sequence
    896      amounts   16 B  samples and tokens
    1024     text 0  8192 B  sequence, length, crc, JSON {"identity": {...}, "names": [...]}
    9216     text 1          alternates like the state
    17408    ring     4096 records of 176 B: sequence, count, step, time, mask, 16 values, check

A wait is in the state once it has ended; until then the word stands for it, because it comes in every step.
So do samples and tokens, of which the greater number counts.
The rest of the state follows within a tenth of a second of a step or a wait, and at once when anything else happens.

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

from trainvitals.rankfile.layout import (
    AMOUNTS_OFFSET,
    EVENTS_LIMIT,
    EVENTS_SUFFIX,
    FLAG_DISABLED,
    FLAG_FAILED,
    FLAG_FINISHED,
    LONGEST_EVENT,
    MASK_MODULUS,
    MAX_NAME_LENGTH,
    MAX_NAMES,
    NEW_SUFFIX,
    PHASES,
    RANK_SUFFIX,
    RECORD,
    RECORD_AREA,
    RECORDS,
    RING_OFFSET,
    RING_RECORDS,
    VALUES_PER_RECORD,
    WAIT_OFFSET,
    WIDE,
    Header,
    RankFileError,
    Record,
    State,
    boot_id,
    is_locked,
    lock_holder,
)
from trainvitals.rankfile.reader import Reader
from trainvitals.rankfile.writer import Writer

__all__ = [
    "AMOUNTS_OFFSET",
    "EVENTS_LIMIT",
    "EVENTS_SUFFIX",
    "FLAG_DISABLED",
    "FLAG_FAILED",
    "FLAG_FINISHED",
    "LONGEST_EVENT",
    "MASK_MODULUS",
    "MAX_NAMES",
    "MAX_NAME_LENGTH",
    "NEW_SUFFIX",
    "PHASES",
    "RANK_SUFFIX",
    "RECORD",
    "RECORDS",
    "RECORD_AREA",
    "RING_OFFSET",
    "RING_RECORDS",
    "VALUES_PER_RECORD",
    "WAIT_OFFSET",
    "WIDE",
    "Header",
    "RankFileError",
    "Reader",
    "Record",
    "State",
    "Writer",
    "boot_id",
    "is_locked",
    "lock_holder",
]
