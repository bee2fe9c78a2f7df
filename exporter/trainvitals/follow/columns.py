"""Many lines of numbers at once, column by column: what is a call for each cell otherwise is one for each column.

Lines that say the same words with other numbers between them are made one JSON list, and its parser reads all of them.
What remains of such lines without the characters of numbers, their skeleton, is the same for each: that is one
comparison for all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import orjson

#: What numbers are made of, as JSON writes them.
_NUMERIC = b"0123456789.+-eE"
_NUMBERS, _ONLY_FLOATS, _ONLY_INTS = frozenset((int, float)), frozenset((float,)), frozenset((int,))
#: A name of a JSON object up to its number; names that hold what stands between names are not for here.
_PAIR = re.compile(rb'([{,] ?"([^"\\,:{}\x00-\x1f]+)": ?)-?\d[\d.eE+-]*')
_MINUS_ZERO = re.compile(rb"-0[,\n]")
#: Names are looked for one by one in the whole of the text.
_MOST_NAMES = 32


def numbers(column: Sequence[object]) -> list[float] | None:
    """Return a column of int and float as float; None where anything else stands in it."""
    kinds = set(map(type, column))
    if kinds == _ONLY_FLOATS:
        return column if isinstance(column, list) else list(column)  # type: ignore[arg-type]
    return list(map(float, column)) if kinds <= _NUMBERS else None  # type: ignore[arg-type]


def wholes(column: Sequence[object]) -> list[int] | None:
    """Return a column of int; None where anything else stands in it."""
    return list(column) if set(map(type, column)) == _ONLY_INTS else None  # type: ignore[arg-type]


def floats(columns: Mapping[str, Sequence[object]]) -> dict[str, list[float]] | None:
    """Return columns of int and float as float; None where anything else stands in any of them."""
    found = {name: numbers(column) for name, column in columns.items()}
    return None if None in found.values() else found  # type: ignore[return-value]


def cells_of(lines: Sequence[str], delimiter: str, width: int) -> list[list[int | float]] | None:
    """Return the columns of a table of which each cell is a number as JSON writes it; None for any other.

    What Python's float() reads of these cells is what stands here; whole numbers stay whole.
    """
    text = _joined(lines)
    if text.translate(None, _NUMERIC) != (delimiter.encode() * (width - 1) + b"\n") * len(lines):
        return None
    if delimiter != ",":
        text = text.replace(delimiter.encode(), b",")
    if _MINUS_ZERO.search(text):
        # As a float it has a sign, as a whole number it has none.
        return None
    return _columns(text.replace(b"\n", b","), width)


def objects_of(lines: Sequence[str]) -> dict[str, list[int | float]] | None:
    """Return the columns of JSON objects with the same names in the same order, and nothing but numbers.

    None for any others.
    """
    first = lines[0].encode()
    names: list[str] = []
    pieces: list[bytes] = []
    end = 0
    for found in _PAIR.finditer(first):
        if found.start() != end or found[0].startswith(b"{") == bool(names):
            return None
        pieces.append(found[1])
        names.append(found[2].decode())
        end = found.end()
    if not 0 < len(names) <= _MOST_NAMES or first[end:] != b"}":
        return None
    text = _joined(lines)
    if text.translate(None, _NUMERIC) != (first + b"\n").translate(None, _NUMERIC) * len(lines):
        return None
    if len({piece.translate(None, _NUMERIC) for piece in pieces}) < len(pieces):
        # Their order cannot be told from the skeleton.
        return None
    # What stands between the last number of a line and the first of the next is one piece too.
    text = text[len(pieces[0]) :] + pieces[0]
    for piece in (*pieces[1:], b"}\n" + pieces[0]):
        shorter = text.replace(piece, b",")
        if len(text) - len(shorter) != (len(piece) - 1) * len(lines):
            return None
        text = shorter
    columns = _columns(text, len(names))
    return None if columns is None else dict(zip(names, columns, strict=True))


def _joined(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _columns(text: bytes, width: int) -> list[list[int | float]] | None:
    """Return the columns of numbers, with a comma behind each."""
    try:
        flat = orjson.loads(b"[" + text[:-1] + b"]")
    except ValueError:
        return None
    return [flat[place::width] for place in range(width)]
