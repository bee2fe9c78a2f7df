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
        #: May be taken away for a while.  Nobody writes an error into a table.
        self.scanner = scanner if line_format is None or line_format.prefixed else None
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

    def feed(self, data: bytes) -> list[Item]:
        """Return the items of the lines that end within ``data``."""
        if not self._half and data[:1] == b"\0":
            data = data.lstrip(b"\0")
        if self._skips:
            begin = min((at for end in _ENDS if (at := data.find(end)) >= 0), default=-1)
            if begin < 0:
                return []
            self._skips, data = False, data[begin:]
        last = max(map(data.rfind, _ENDS)) + 1
        block, half = (self._half + data[:last], data[last:]) if last else (b"", self._half + data)
        self._half = half
        if len(half) > LONGEST_LINE:
            self._half, self._skips = b"", True
            self.bad += 1
        return self._read(block) if block else []

    def flush(self) -> list[Item]:
        """Return the items of the half line at the end, because nobody goes on writing it; who does is too late."""
        if not self._half:
            return []
        block, self._half, self._skips = self._half, b"", True
        return self._read(block)

    def _read(self, block: bytes) -> list[Item]:
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
            return [event for _, event in found]
        if not found and not self._format.needles:
            return self._items(block.decode("utf-8", "replace").split("\n"), self._format)
        items: list[Item] = []
        lines = self._select(block, self._format.needles)
        for place, event in found:
            before = 0
            while before < len(lines) and lines[before][0] <= place:
                before += 1
            items += self._items(_decoded(block, lines[:before]), self._format)
            items.append(event)
            lines = lines[before:]
        return items + self._items(_decoded(block, lines), self._format)

    def _select(self, block: bytes, needles: tuple[bytes, ...]) -> list[tuple[int, int]]:
        """Return where the lines that may matter begin and end."""
        lines: dict[int, int] = {}
        find, rfind = block.find, block.rfind
        for needle in needles or (b"\n",):
            at = find(needle)
            while at >= 0:
                end = find(b"\n", at)
                lines[rfind(b"\n", 0, at) + 1] = end
                at = find(needle, end if needles else end + 1)
        return sorted(lines.items())

    def _items(self, lines: Iterable[str], line_format: LineFormat) -> list[Item]:
        items: list[Item] = []
        parsers, is_prefixed = self._parsers, line_format.prefixed
        rank: int | None = None
        for line in lines:
            if not line:
                continue
            if len(line) > LONGEST_LINE:
                self.bad += 1
                continue
            if is_prefixed and line[0] in text.FIRST:
                rank, line = text.unprefixed(line)  # noqa: PLW2901
            else:
                rank = None
            parser = parsers.get(rank)
            try:
                if parser is None:
                    if len(parsers) >= MAX_RANKS:
                        continue
                    parser = parsers[rank] = line_format.parser()
                if rank is None:
                    items += parser.feed(line)
                else:
                    items += [_of_rank(item, rank) for item in parser.feed(line)]
            except Exception:
                self.bad += 1
        return items


def _decoded(block: bytes, lines: Iterable[tuple[int, int]]) -> Iterator[str]:
    for start, end in lines:
        yield block[start:end].decode("utf-8", "replace")


def _of_rank(item: Item, rank: int) -> Item:
    return item._replace(rank=rank) if isinstance(item, Row) and item.rank is None else item
