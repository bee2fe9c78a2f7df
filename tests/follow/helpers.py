"""What tests of formats need: the items of a log, however it is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from trainvitals.follow.base import BlockFormat, FileFormat, Format, Item, LineFormat, Piece, Row, Rows
from trainvitals.follow.formats import FORMATS, choose
from trainvitals.follow.lines import LineReader

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"


def format_of(path: Path) -> Format | None:
    """Return the format that is found by the content of a file (or folder)."""
    if path.is_dir():
        found = [f for f in FORMATS if isinstance(f, FileFormat) and f.folder and f.sniff(b"", str(path))]
        return found[0] if found else None
    return choose(path.read_bytes()[: 1 << 20], str(path))[0]


def singly(pieces: Iterable[Piece]) -> list[Item]:
    """Return items with every row of its own."""
    return [item for piece in pieces for item in (piece if isinstance(piece, Rows) else (piece,))]


def items_of_pieces(log_format: Format, pieces: Iterable[bytes]) -> list[Item]:
    """Return what a format of lines or blocks says of bytes that come in pieces."""
    if isinstance(log_format, LineFormat):
        reader = LineReader(log_format)
        items = [item for piece in pieces for item in singly(reader.feed(piece))]
        return [*items, *singly(reader.flush())]
    assert isinstance(log_format, BlockFormat)
    parser = log_format.parser()
    return [item for piece in pieces for item in parser.feed(piece)]


def items_of(path: Path) -> list[Item]:
    """Return what the format of a file says of it as a whole."""
    log_format = format_of(path)
    assert log_format is not None, f"nobody knows {path}"
    if isinstance(log_format, FileFormat):
        return list(log_format.read(str(path)))
    return items_of_pieces(log_format, [path.read_bytes()])


def rows_of(path: Path, split: str = "") -> list[Row]:
    """Return the rows of one split."""
    return [item for item in items_of(path) if isinstance(item, Row) and item.split == split]


def curve(rows: Sequence[Row], name: str) -> dict[int | None, float]:
    """Return the values of one name by their steps."""
    return {row.step: row.values[name] for row in rows if name in row.values}
