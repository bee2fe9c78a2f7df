"""Which lines are worth a look: the quick first stage of the reader.

Healthy logs say the same again and again with other numbers.  A line with a word that errors have is looked at, until
lines of its shape (:func:`trainvitals.follow.text.shape`) told nothing so often that others like it are passed over.
"""

from __future__ import annotations

from collections import Counter

from trainvitals.follow.recent import LONGEST, MOST, Recent
from trainvitals.follow.text import shape

#: A shape of which so many lines were looked at and told nothing is harmless.
_MOST_LOOKS = 64

_WORDS = (
    b"Error", b"ERROR", b"Exception", b"ECC", b"ERR0", b"Evicted", b"CANCELLED", b"FAIL", b"Fatal", b"HCCL",
    b"Invalid loss", b"Illegal", b"Interrupt", b"Kill", b"KILL", b"Kernel panic", b"LINK_", b"Loss is",
    b"Missing Ranks", b"Missing ranks", b"NCCL WARN", b"NCCL error", b"NCCL comm", b"NVRM", b"No space",
    b"NVSwitch", b"NodeLost", b"NaN", b"Out of mem", b"Out Of Mem", b"OOM", b"OVERFLOW", b"Overflow", b"PREEMPT",
    b"PytorchStream", b"Parquet", b"Permission", b"Read-only", b"Received", b"Root Cause", b"Rendezvous", b"SIG",
    b"Segm", b"Stale", b"SXid", b"Sending", b"Traceback", b"The node", b"The total", b"The actor", b"Task run",
    b"Timed", b"Timeout", b"Unexpected", b"UCE", b"Watchdog", b"Assert", b"Aborted", b"BUG:", b"kernel BUG",
    b"Broken", b"Connection", b"Deadline", b"Disk", b"Duplicate", b"Index file", b"Input/", b"Job step", b"REQUEUE",
    b"Minimum", b"Too many", b"Xid", b"Transport", b"Preempt", b"BadGzip", b"BadZip", b"Spot", b"Node fail",
    b"Remote I/O", b"error", b"failed", b"fault ", b"fault,", b"fault.", b"fault:", b"egfault", b"illed",
    b"of memory", b"allocate memory", b"verflow", b"already", b"imed out", b"imeout", b"terminate", b"signal",
    b"preempt", b"collective", b"blocked for", b"shared mem", b"no space", b"return code", b"closed",
    b"device-side", b"truncated", b"corrupt", b"spot ", b"unconnected", b"low on", b"load tokenizer",
    b"backend tokenizer", b"mismatch", b"training process", b"oom ", b"oom-", b"node failure", b"stopping",
    b"terminating", b"non-finite", b"got stuck", b"DataLoader", b"exit unexpectedly", b"exit with",
    b"status failed",
)  # fmt: skip
#: A line must hold one of these to be looked at; the tests hold every row of the table against them.  Of two words
#: between which some put a blank, others put a hyphen; Ascend's codes are EI0002, EZ9999 and the like.
WORDS = tuple(
    dict.fromkeys(
        [
            *_WORDS,
            *(word.replace(b" ", b"-") for word in _WORDS),
            *(word.replace(b"-", b" ") for word in _WORDS),
            *(b"E%c%d" % (letter, digit) for letter in b"IJLZEH" for digit in range(10)),
        ]
    )
)


class Harmless:
    """Keeps which shapes of lines are harmless, although there is such a word in them."""

    def __init__(self) -> None:
        self._harmless = Recent()
        self._looks: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._harmless) + len(self._looks)

    def __contains__(self, line: bytes) -> bool:
        return len(line) <= LONGEST and not self._harmless.new({shape(line)})

    def told_nothing(self, line: bytes) -> None:
        """Remember that this line was looked at in vain."""
        if len(line) > LONGEST:
            return
        if len(self._looks) >= MOST:
            self._looks.clear()
        one = shape(line)
        self._looks[one] += 1
        if self._looks[one] >= _MOST_LOOKS:
            del self._looks[one]
            self._harmless.add({one})
