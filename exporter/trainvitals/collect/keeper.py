"""What the detectors of each rank know, over restarts of the exporter: one file, replaced as a whole every minute.

A rank is known again by its sources: the identity of its rank file, or the name of its log.  Beside its state stands
how far each source was judged, so that what is read again after a restart is not judged twice, and what came since is
judged.  How far logs were read is remembered after the states: a log is never remembered further than it was judged.

The file begins with eight bytes; a record for each rank follows: length and CRC32 (both 32 bits, little-endian) of the
zlib stream behind them, which holds JSON.  A record that is damaged costs its rank alone.
"""

from __future__ import annotations

import json
import logging
import struct
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainvitals.collect.logs import LogsCollector
from trainvitals.collect.rank import Kept, Rank
from trainvitals.collect.source import Mark, Source
from trainvitals.detect import Detector
from trainvitals.follow.positions import replace_file

log = logging.getLogger(__name__)

_MAGIC = b"TVSTATE1"
_HEAD = struct.Struct("<II")
#: Seconds between two saves, and the share of a core that they may take: with many ranks they are further apart.
INTERVAL, SHARE = 60.0, 0.01
#: CPU seconds that a poll may spend on it; what is left waits for the next one.
SLICE = 0.2
#: A rank takes some 50 kB; what is larger is none of ours, and neither is a larger file.
_LARGEST_RANK, _LARGEST_FILE = 1 << 24, 1 << 28
#: Seconds for which the state of a rank is kept that nobody has seen since the restart, and how many of them.
_UNCLAIMED, _MOST_UNCLAIMED = 86400.0, 256


@dataclass(frozen=True)
class _Record:
    """The state of a rank as it stands in the file, with the time of its saving and its sources."""

    data: bytes
    saved: float
    sources: tuple[Hashable, ...]


class Keeper:
    """Keeps the states of ranks at ``path``, or nowhere when it is empty.

    ``clock`` gives wall time, ``monotonic`` the time by which it is saved every ``interval`` seconds.
    """

    def __init__(
        self,
        path: str,
        *,
        logs: LogsCollector | None = None,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._logs = logs
        self._interval = interval
        self._clock = clock
        self._monotonic = monotonic
        self._due = monotonic() + interval
        self._round: deque[Rank] | None = None
        self._snapshot: Any = None
        self._cost = 0.0
        #: By run and rank; with the version of the rank that it is the state of.
        self._records: dict[tuple[str, int], tuple[tuple[Rank, int], _Record]] = {}
        #: What could not be kept or restored, by reason.
        self.errors: Counter[str] = Counter()
        #: Wall time of the last save, and its bytes.
        self.saved: float | None = None
        self.size = 0
        self._complained: set[str] = set()
        self._unclaimed = list(self._load())
        if logs is not None and path:
            logs.waits_to_remember = True

    # After a restart --------------------------------------------------------------------------------------------------

    def resume(self, rank: Rank, sources: Sequence[Source], make: Callable[[], list[Detector]]) -> bool:
        """Give a new rank what was kept of it; return False where that went wrong, and the rank is of no use.

        ``make`` makes fresh detectors for those that cannot be restored.
        """
        if not self._unclaimed:
            return True
        known = {source.incarnation for source in sources if source.resumed}
        for record in [record for record in self._unclaimed if not known.isdisjoint(record.sources)]:
            self._unclaimed.remove(record)
            try:
                failed = rank.resume(_kept(_document(record.data)), make)
            except Exception as error:
                self._complain("rank", f"the state of a rank makes no sense: {error!r}")
                return False
            # It stays in the file until the rank is saved again.
            self._records[sources[-1].run, sources[-1].identity.rank] = (rank, -1), record
            if failed:
                self._complain("detector", f"detectors that begin afresh: {', '.join(failed)}", len(failed))
        return True

    def _load(self) -> Iterator[_Record]:
        if not self._path:
            return
        try:
            with open(self._path, "rb") as file:
                data = file.read(_LARGEST_FILE + 1)
        except FileNotFoundError:
            return
        except OSError as error:
            self._complain("file", str(error))
            return
        if len(data) > _LARGEST_FILE or not data.startswith(_MAGIC):
            self._complain("file", "no file of states")
            return
        place = len(_MAGIC)
        while place < len(data):
            if place + _HEAD.size > len(data):
                self._complain("file", "cut off")
                return
            length, crc = _HEAD.unpack_from(data, place)
            place += _HEAD.size
            packed = data[place : place + length]
            place += length
            try:
                if len(packed) != length or zlib.crc32(packed) != crc:
                    raise ValueError("damaged")
                document = _document(packed)
                saved, sources = float(document["saved"]), tuple(tuple(known) for known, *_ in document["sources"])
                hash(sources)
            except (ValueError, LookupError, TypeError, zlib.error, RecursionError) as error:
                self._complain("rank", f"the state of a rank: {error}")
                continue
            yield _Record(packed, saved, sources)

    # While it runs ----------------------------------------------------------------------------------------------------

    def keep(self, ranks: Sequence[Rank]) -> None:
        """Save when it is time to; all that was handed on is judged by these ranks."""
        if not self._path:
            return
        if self._round is None:
            if self._monotonic() < self._due:
                return
            self._begin(ranks)
        self._go_on(ranks, SLICE)

    def close(self, ranks: Sequence[Rank]) -> None:
        """Save now."""
        if self._path:
            self._begin(ranks)
            self._go_on(ranks, float("inf"))

    def _begin(self, ranks: Sequence[Rank]) -> None:
        self._round = deque(ranks)
        self._cost = 0.0
        # Taken before the states: these may know more than it, and never less.
        self._snapshot = None if self._logs is None else self._logs.latest(self._logs.handed)

    def _go_on(self, ranks: Sequence[Rank], seconds: float) -> None:
        begun = time.thread_time()
        waiting = self._round or deque()
        while waiting and time.thread_time() - begun < seconds:
            self._encode(waiting.popleft())
        if not waiting:
            self._round = None
            self._write(ranks)
        self._cost += time.thread_time() - begun
        if self._round is None:
            self._due = self._monotonic() + max(self._interval, self._cost / SHARE)

    def _encode(self, rank: Rank) -> None:
        key = (rank.identity.run, rank.identity.rank)
        known = self._records.get(key)
        if known is not None and known[0] == (rank, rank.version):
            return
        now = self._clock()
        sources = [[list(source), *mark] for source, mark in rank.marks.items() if isinstance(source, tuple)]
        try:
            document, failed = rank.kept()
            found = {"saved": now, "sources": sources, "state": document}
            text = json.dumps(found, separators=(",", ":"), allow_nan=False)
        except Exception as error:
            # Its state of before is as good as it was.
            self._complain("rank", f"the state of a rank cannot be saved: {error!r}")
            return
        if failed:
            self._complain("detector", f"detectors whose state cannot be saved: {', '.join(failed)}", len(failed))
        if len(text) > _LARGEST_RANK:
            self._complain("rank", "the state of a rank is too large")
            self._records.pop(key, None)
            return
        # Level 1: a fifth of the time of the JSON, and a third of its size.
        packed = zlib.compress(text.encode(), 1)
        self._records[key] = (rank, rank.version), _Record(packed, now, tuple(rank.marks))

    def _write(self, ranks: Sequence[Rank]) -> None:
        present = {(rank.identity.run, rank.identity.rank) for rank in ranks}
        self._records = {key: record for key, record in self._records.items() if key in present}
        oldest = self._clock() - _UNCLAIMED
        self._unclaimed = [record for record in self._unclaimed if record.saved >= oldest][-_MOST_UNCLAIMED:]
        records = [*self._unclaimed, *(record for _, record in self._records.values())]
        if not records and self.saved is None:
            return
        parts = [_MAGIC]
        for record in records:
            parts += (_HEAD.pack(len(record.data), zlib.crc32(record.data)), record.data)
        data = b"".join(parts)
        try:
            replace_file(self._path, data)
        except OSError as error:
            self._complain("save", str(error))
            return
        self.saved, self.size = self._clock(), len(data)
        if self._snapshot is not None and self._logs is not None:
            self._logs.remember(self._snapshot)

    def _complain(self, reason: str, message: str, count: int = 1) -> None:
        """Count what went wrong; the first of each reason is logged."""
        self.errors[reason] += count
        if reason not in self._complained:
            self._complained.add(reason)
            log.warning("%s: %s", self._path, message)


def _document(packed: bytes) -> dict[str, Any]:
    """Return what a record holds.  Raises ValueError, TypeError, zlib.error, RecursionError."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(packed, _LARGEST_RANK)
    if not unpacker.eof:
        raise ValueError("too large or cut off")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise TypeError("no record")
    return document


def _kept(document: dict[str, Any]) -> Kept:
    marks: dict[Hashable, Mark] = {
        tuple(known): Mark(int(step), int(event)) for known, step, event in document["sources"]
    }
    return Kept(marks, document["state"])
