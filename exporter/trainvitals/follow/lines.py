"""From the bytes of a text to the items of its lines, whatever the cuts between the bytes are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

from trainvitals.follow import needles, text
from trainvitals.follow.base import LineFormat, LineParser, Piece, Row, Rows, Scanner
from trainvitals.telemetry import Event

#: Longer lines are passed over, and counted as bad.  The longest of a format that we know are a hundred times shorter.
LONGEST_LINE = 1 << 18
#: So many ranks of one file have a parser of their own; lines of others are passed over.
MAX_RANKS = 4096
#: Lines that a parser takes at once, at most; where one of them is unusual, they are halved down to so many, and those
#: around it are fed one by one.
BATCH = 512
_MANY, _FEW = 64, 4
_ENDS = (b"\n", b"\r", b"\x08")


class LineReader:
    """Reads one text.  Without a ``format``, only the ``scanner`` sees it.

    Lines of different ranks, as their prefixes say, go to parsers of their own: what one rank writes between two lines
    of another does not come between them.
    """

    def __init__(self, line_format: LineFormat | None, scanner: Scanner | None = None) -> None:
        self._format = line_format
        #: May be taken away for a while.  Nobody writes an error into a table.
        self.scanner = scanner if line_format is None or line_format.prefixed else None
        self._parsers: dict[int | None, LineParser] = {}
        self._half = b""
        self._skips = False
        self._is_whole = False
        #: Lines that were too long, or at which a parser or scanner failed.
        self.bad = 0

    @property
    def pending(self) -> int:
        """Bytes at the end that were not looked at, because their line has not ended."""
        return len(self._half)

    @property
    def in_line(self) -> bool:
        """Whether the rest of a line is passed over, of which the begin was told (or was too long)."""
        return self._skips

    def memory(self) -> dict[str, list[Any]] | None:
        """Return what the parsers count, by rank, as JSON knows it, if the last line ended with a line feed.

        None where it did not, and where no parser counts; see :class:`trainvitals.follow.base.LineParser`.
        """
        if not self._is_whole:
            return None
        found = {}
        for rank, parser in self._parsers.items():
            if names := getattr(parser, "memory", ()):
                found["" if rank is None else str(rank)] = [getattr(parser, name) for name in names]
        return found or None

    def recall(self, memory: Mapping[str, Sequence[Any]]) -> None:
        """Go on counting where :meth:`memory` was asked.  What makes no sense is as good as nothing."""
        for rank, values in memory.items():
            parser = self._parser(int(rank) if rank else None)
            for name, value in zip(getattr(parser, "memory", ()), values, strict=False):
                if value is None or isinstance(value, (int, str)):
                    setattr(parser, name, value)

    def skip_line(self) -> None:
        """Pass over everything up to the next line end, and what there is of its line."""
        self._half, self._skips = b"", True

    def change(self, line_format: LineFormat) -> None:
        """Read what follows as another format."""
        self._format = line_format
        self._parsers.clear()

    def feed(self, data: bytes) -> list[Piece]:
        """Return the items of the lines that end within ``data``."""
        if not self._half and data[:1] == b"\0":
            data = data.lstrip(b"\0")
        if self._skips:
            begin = min((at for end in _ENDS if (at := data.find(end)) >= 0), default=-1)
            if begin < 0:
                return []
            self._skips, data = False, data[begin:]
        last = max(map(data.rfind, _ENDS)) + 1
        # A view saves a copy of nearly all.
        block, half = (self._half + memoryview(data)[:last], data[last:]) if last else (b"", self._half + data)
        self._half, self._is_whole = half, data[last - 1 : last] == b"\n"
        if len(half) > LONGEST_LINE:
            self._half, self._skips = b"", True
            self.bad += 1
        return self._read(block) if block else []

    def flush(self) -> list[Piece]:
        """Return the items of the half line at the end, because nobody goes on writing it; who does is too late."""
        if not self._half:
            return []
        block, self._half, self._skips = self._half, b"", True
        return self._read(block)

    def _read(self, block: bytes) -> list[Piece]:
        block = text.clean(block)
        if not block.endswith(b"\n"):
            block += b"\n"
        known, scanner = self._format, self.scanner
        wanted, suspects = needles.search(
            block, () if known is None else known.needles, () if scanner is None else scanner.words
        )
        events: list[tuple[int, Event]] = []
        if scanner is not None:
            try:
                events += scanner.scan(block, suspects)
            except Exception:
                self.bad += 1
        if known is None:
            return [event for _, event in events]
        if known.needles:
            lines = needles.lines(block, wanted)
        elif events:
            every = block.split(b"\n")
            lines = [(end - len(one), one) for one, end in zip(every, accumulate(map(_step_over, every)), strict=True)]
        else:
            return self._pieces(block.decode("utf-8", "replace").split("\n"), known)
        pieces: list[Piece] = []
        for place, event in events:
            before = bisect_right(lines, place, key=itemgetter(0))
            pieces += self._pieces(_decoded(lines[:before]), known)
            pieces.append(event)
            lines = lines[before:]
        return pieces + self._pieces(_decoded(lines), known)

    def _pieces(self, lines: list[str], line_format: LineFormat) -> list[Piece]:
        """Return what lines say, some at a time."""
        pieces: list[Piece] = []
        for start in range(0, len(lines), BATCH):
            some = list(filter(None, lines[start : start + BATCH]))
            if line_format.prefixed and text.have_prefixes(some):
                for rank, group in groupby(map(text.unprefixed, some), itemgetter(0)):
                    pieces += [_of_rank(piece, rank) for piece in self._batch(rank, [line for _, line in group])]
            elif some:
                pieces += self._batch(None, some)
        return pieces

    def _batch(self, rank: int | None, lines: list[str]) -> Sequence[Piece]:
        """Return what several lines of one rank say."""
        parser = self._parser(rank)
        if parser is None:
            return ()
        batch = getattr(parser, "batch", None)
        if batch is not None and len(lines) >= _FEW and max(map(len, lines)) <= LONGEST_LINE:
            try:
                pieces: Sequence[Piece] | None = batch(lines)
            except Exception:
                pieces = None
            if pieces is not None:
                return pieces
            if len(lines) > _MANY:
                half = len(lines) // 2
                return [*self._batch(rank, lines[:half]), *self._batch(rank, lines[half:])]
        items: list[Piece] = []
        for line in lines:
            if len(line) > LONGEST_LINE:
                self.bad += 1
                continue
            try:
                items += parser.feed(line)
            except Exception:
                self.bad += 1
        return items

    def _parser(self, rank: int | None) -> LineParser | None:
        """Return the parser of a rank, if there is room for one."""
        parser = self._parsers.get(rank)
        if parser is None and self._format is not None and len(self._parsers) < MAX_RANKS:
            parser = self._parsers[rank] = self._format.parser()
        return parser


def _step_over(line: bytes) -> int:
    return len(line) + 1


def _decoded(lines: list[tuple[int, bytes]]) -> list[str]:
    return b"\n".join([line for _, line in lines]).decode("utf-8", "replace").split("\n")


def _of_rank(piece: Piece, rank: int | None) -> Piece:
    if rank is not None and isinstance(piece, Row) and piece.rank is None:
        return piece._replace(rank=rank)
    if isinstance(piece, Rows) and piece.rank is None:
        piece.rank = rank
    return piece
