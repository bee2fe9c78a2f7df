"""Which lines are worth a look: the quick first stage of the reader.

Healthy logs say the same again and again with other numbers.  So a block is reduced to the shapes of its lines,
letters without numbers: two quick passes of C and a set.  Shapes that were found harmless once are not looked at
again, and what is new is searched for words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from trainvitals.follow.recent import LONGEST, MOST, Recent
from trainvitals.follow.text import shape

#: A shape with such a word that was looked at so often and told nothing is harmless too.
_MOST_LOOKS = 64

#: A line must hold one of these to be looked at; the tests hold every row of the table against them.  Upper-case
#: letters are rare, which makes words that begin with one quick to search for, all together.
_UPPER_WORDS = (
    b"Error", b"ERROR", b"Exception", b"ECC", b"ERR0", b"EI00", b"EJ00", b"EL00", b"EZ00", b"EE00", b"EH00",
    b"Evicted", b"CANCELLED", b"FAIL", b"Fatal", b"HCCL", b"Invalid loss", b"Illegal", b"Interrupt", b"Kill",
    b"KILL", b"Kernel panic", b"LINK_", b"Loss is", b"Missing Ranks", b"Missing ranks", b"NCCL WARN", b"NCCL error",
    b"NCCL comm", b"NVRM", b"No space", b"NVSwitch", b"NodeLost", b"NaN", b"Out of mem", b"Out Of Mem", b"OOM",
    b"OVERFLOW", b"Overflow", b"PREEMPT", b"PytorchStream", b"Parquet", b"Permission", b"Read-only", b"Received",
    b"Root Cause", b"Rendezvous", b"SIG", b"Segm", b"Stale", b"SXid", b"Sending", b"Traceback", b"The node",
    b"The total", b"The actor", b"Task run", b"Timed", b"Timeout", b"Unexpected", b"UCE", b"Watchdog", b"Assert",
    b"Aborted", b"BUG", b"Broken", b"Connection", b"Deadline", b"Disk", b"Duplicate", b"Index file", b"Input/",
    b"Job step", b"REQUEUE", b"Minimum", b"Too many", b"Xid", b"Transport", b"Preempt", b"BadGzip", b"BadZip",
    b"Spot", b"Node fail", b"Remote I/O",
)  # fmt: skip
_LOWER_WORDS = (
    b"error", b"failed", b"fault ", b"egfault", b"illed", b"of memory", b"allocate memory", b"verflow", b"already",
    b"imed out", b"imeout", b"terminate", b"signal", b"preempt", b"collective", b"blocked for", b"shared mem",
    b"no space", b"return code", b"closed", b"device-side", b"truncated", b"corrupt", b"spot ", b"unconnected",
    b"low on", b"load tokenizer", b"backend tokenizer", b"mismatch", b"training process", b"oom ", b"oom-",
    b"node failure", b"stopping", b"terminating", b"non-finite", b"got stuck", b"DataLoader", b"exit unexpectedly",
    b"exit with", b"status failed",
)  # fmt: skip


def _any_of(words: Iterable[bytes]) -> re.Pattern[bytes]:
    """Return a pattern that finds any of the words; those with the same first letter share it, which is faster."""
    by_letter: dict[bytes, list[bytes]] = {}
    for word in words:
        by_letter.setdefault(word[:1], []).append(re.escape(word[1:]))
    return re.compile(b"|".join(re.escape(first) + b"(?:%b)" % b"|".join(rest) for first, rest in by_letter.items()))


_UPPER = _any_of(shape(word) for word in _UPPER_WORDS)
_LOWER = tuple(shape(word) for word in _LOWER_WORDS)


def with_words(text: bytes) -> set[bytes]:
    """Return those of several shapes, with line ends between, that hold a word that errors have."""
    found: set[bytes] = set()
    place = 0
    while (match := _UPPER.search(text, place)) is not None:
        place = _take(text, match.start(), found)
    for word in _LOWER:
        place = text.find(word)
        while place >= 0:
            place = text.find(word, _take(text, place, found))
    return found


def _take(text: bytes, place: int, found: set[bytes]) -> int:
    """Add the line at a place; return where it ends."""
    end = text.find(b"\n", place)
    end = len(text) if end < 0 else end
    found.add(text[text.rfind(b"\n", 0, place) + 1 : end])
    return end


class Harmless:
    """Keeps which shapes are harmless."""

    def __init__(self) -> None:
        self._harmless = Recent()
        self._looks: Counter[bytes] = Counter()

    def suspects(self, shapes: AbstractSet[bytes]) -> set[bytes]:
        """Return those of the shapes that must be looked at; remember the others."""
        new = self._harmless.new(shapes)
        if not new:
            return set()
        found = with_words(b"\n".join(new))
        self._harmless.add(new - found)
        return found

    def told_nothing(self, one: bytes) -> None:
        """Remember that a line of this shape was looked at in vain."""
        if len(self._looks) > MOST:
            self._looks.clear()
        if len(one) > LONGEST:
            return
        self._looks[one] += 1
        if self._looks[one] >= _MOST_LOOKS:
            del self._looks[one]
            self._harmless.add({one})
