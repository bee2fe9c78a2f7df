"""From the bytes of a text to the items of its lines, whatever the cuts between the bytes are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainvitals.follow import text
from trainvitals.follow.base import Item, LineFormat, LineParser, Row, Scanner

#: Longer lines are passed over, and counted as bad.  The longest of a format that we know are a hundred times shorter.
LONGEST_LINE = 1 << 18
#: So many ranks of one file have a parser of their own; lines of others are passed over.
MAX_RANKS = 4096
_ENDS = (b"\n", b"\r", b"\x08")


class LineReader:
    """Reads one text.  Without a ``format``, only the ``scanner`` sees it.

    Lines of different ranks, as their prefixes say, go to parsers of their own: what one rank writes between two lines
    of another does not come between them.
    """

    def __init__(self, line_format: LineFormat | None, scanner: Scanner | None = None) -> None:
        self._format = line_format
        #: May be taken away for a while.
        self.scanner = scanner
        self._parsers: dict[int | None, LineParser] = {}
        self._half = b""
        self._skips = False
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

    def skip_line(self) -> None:
        """Pass over everything up to the next line end, and what there is of its line."""
        self._half, self._skips = b"", True

    def change(self, line_format: LineFormat) -> None:
        """Read what follows as another format."""
        self._format = line_format
        self._parsers.clear()

    def feed(self, data: bytes) -> Iterator[Item]:
        """Yield the items of the lines that end within ``data``."""
        if not self._half and data[:1] == b"\0":
            data = data.lstrip(b"\0")
        if self._skips:
            begin = min((at for end in _ENDS if (at := data.find(end)) >= 0), default=-1)
            if begin < 0:
                return
            self._skips, data = False, data[begin:]
        last = max(map(data.rfind, _ENDS)) + 1
        if not last:
            self._half += data
            if len(self._half) > LONGEST_LINE:
                self._half, self._skips = b"", True
                self.bad += 1
            return
        block, self._half = self._half + data[:last], data[last:]
        yield from self._read(block)
        if len(self._half) > LONGEST_LINE:
            self._half, self._skips = b"", True
            self.bad += 1

    def flush(self) -> Iterator[Item]:
        """Yield the items of the half line at the end: nobody goes on writing it.  If somebody does, it is too late."""
        if self._half:
            block, self._half, self._skips = self._half, b"", True
            yield from self._read(block)

    def _read(self, block: bytes) -> Iterator[Item]:
        block = text.clean(block)
        if not block.endswith(b"\n"):
            block += b"\n"
        found: list[tuple[int, Item]] = []
        if self.scanner is not None:
            try:
                found += self.scanner.scan(block)
            except Exception:
                self.bad += 1
        if self._format is None:
            yield from (event for _, event in found)
            return
        if not found:
            for start, end in self._select(block, self._format.needles):
                yield from self._items(block[start:end], self._format)
            return
        found.reverse()
        for start, end in self._select(block, self._format.needles):
            while found and found[-1][0] < start:
                yield found.pop()[1]
            yield from self._items(block[start:end], self._format)
        yield from (event for _, event in reversed(found))

    def _select(self, block: bytes, needles: tuple[bytes, ...]) -> Iterable[tuple[int, int]]:
        """Return where the lines that may matter begin and end."""
        if not needles:
            return _all_lines(block)
        lines: dict[int, int] = {}
        for needle in needles:
            at = block.find(needle)
            while at >= 0:
                end = block.find(b"\n", at)
                lines[block.rfind(b"\n", 0, at) + 1] = end
                at = block.find(needle, end)
        return sorted(lines.items())

    def _items(self, raw: bytes, line_format: LineFormat) -> Iterable[Item]:
        if len(raw) > LONGEST_LINE:
            self.bad += 1
            return ()
        line = raw.decode("utf-8", "replace")
        rank = None
        if line_format.prefixed:
            rank, line = text.unprefixed(line)
        parser = self._parsers.get(rank)
        try:
            if parser is None:
                if len(self._parsers) >= MAX_RANKS:
                    return ()
                parser = self._parsers[rank] = line_format.parser()
            items = parser.feed(line)
            if rank is None:
                return items if isinstance(items, tuple) else tuple(items)
            return [item._replace(rank=rank) if isinstance(item, Row) and item.rank is None else item for item in items]
        except Exception:
            self.bad += 1
            return ()


def _all_lines(block: bytes) -> Iterator[tuple[int, int]]:
    start, find = 0, block.find
    while (end := find(b"\n", start)) >= 0:
        if end > start:
            yield start, end
        start = end + 1
