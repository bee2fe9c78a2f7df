"""The file of states: how the records of a keeper stand in it, and what is refused.

The file begins with eight bytes; a record follows for each rank, and for each run whose ranks are compared: length and
CRC32 (both 32 bits, little-endian) of the zlib stream behind them, which holds JSON.  A record that is damaged costs
its rank or its run alone.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trainvitals.follow.positions import replace_file

_MAGIC = b"TVSTATE1"
_HEAD = struct.Struct("<II")
#: A rank takes some 50 kB; what is larger is none of ours, and neither is a larger file.
_LARGEST, _LARGEST_FILE = 1 << 24, 1 << 28

Subject = Literal["rank", "run"]


@dataclass(frozen=True)
class Record:
    """The state of a rank or a run as it stands in the file, with the time of its saving and the sources behind it."""

    data: bytes
    saved: float
    sources: tuple[Hashable, ...]
    subject: Subject

    @property
    def document(self) -> dict[str, Any]:
        """What it holds.  Raises ValueError, TypeError, zlib.error, RecursionError."""
        return _document(self.data)


def make(document: dict[str, Any], sources: Iterable[Hashable]) -> Record | None:
    """Return a record, None for what is too large.  ``document`` has ``saved`` and ``sources``, and ``of`` for a run.

    Raises ValueError and TypeError for what JSON does not know.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    if len(text) > _LARGEST:
        return None
    # Level 1: a fifth of the time of the JSON, and a third of its size.
    packed = zlib.compress(text.encode(), 1)
    return Record(packed, document["saved"], tuple(sources), document.get("of", "rank"))


def load(path: str, complain: Callable[[str, str], None]) -> Iterator[Record]:
    """Return the records of a file; what is wrong is told with its reason: file, rank."""
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        return
    except OSError as error:
        complain("file", str(error))
        return
    if len(data) > _LARGEST_FILE or not data.startswith(_MAGIC):
        complain("file", "no file of states")
        return
    place = len(_MAGIC)
    while place < len(data):
        if place + _HEAD.size > len(data):
            complain("file", "cut off")
            return
        length, crc = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        packed = data[place : place + length]
        place += length
        try:
            yield _record(packed, length, crc)
        except (ValueError, LookupError, TypeError, zlib.error, RecursionError) as error:
            complain("rank", f"the state of a rank: {error}")


def store(path: str, records: Iterable[Record]) -> int:
    """Replace the file as a whole; return its size in bytes.  Raises OSError."""
    parts = [_MAGIC]
    for record in records:
        parts += (_HEAD.pack(len(record.data), zlib.crc32(record.data)), record.data)
    data = b"".join(parts)
    replace_file(path, data)
    return len(data)


def _record(packed: bytes, length: int, crc: int) -> Record:
    if len(packed) != length or zlib.crc32(packed) != crc:
        raise ValueError("damaged")
    document = _document(packed)
    saved, sources = float(document["saved"]), tuple(tuple(known) for known, *_ in document["sources"])
    hash(sources)
    return Record(packed, saved, sources, "run" if document.get("of") == "run" else "rank")


def _document(packed: bytes) -> dict[str, Any]:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(packed, _LARGEST)
    if not unpacker.eof:
        raise ValueError("too large or cut off")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise TypeError("no record")
    return document
