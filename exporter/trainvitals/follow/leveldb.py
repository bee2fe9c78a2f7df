"""Records in blocks, as LevelDB writes its log, and as W&B and SwanLab write theirs.

Source: LevelDB's doc/log_format.md: blocks of 32 KiB, in which each piece has a checksum of 4 bytes, a length of 2
and a type (whole, first, middle, last); a rest of less than 7 bytes is filled with zeros.  W&B and SwanLab put a header
of 7 bytes before the first piece (4 letters, 2 bytes, a version), and their checksum is zlib's CRC-32 of type and data.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

HEADER = 7
_BLOCK = 1 << 15
_PIECE = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SEEDS = {kind: zlib.crc32(bytes([kind])) for kind in (_WHOLE, _FIRST, _MIDDLE, _LAST)}
#: A record that is larger is passed over: a picture or a table.
_LARGEST = 1 << 24


class Pieces:
    """Makes records out of bytes that are cut anywhere.  What is damaged costs the rest of its block."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        #: Place in the file of the begin of the buffer, and how many bytes are passed over from there.
        self._offset, self._skip = 0, HEADER
        self._parts: list[bytes] | None = None
        self._size = 0
        #: Damaged pieces so far.
        self.bad = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the records that became whole."""
        self._buffer += data
        at = 0
        try:
            while True:
                passed = min(self._skip, len(self._buffer) - at)
                at, self._skip = at + passed, self._skip - passed
                left = _BLOCK - (self._offset + at) % _BLOCK
                if self._skip or len(self._buffer) - at < min(left, HEADER):
                    return
                if left < HEADER:
                    self._skip = left
                    continue
                crc, length, kind = _PIECE.unpack_from(self._buffer, at)
                is_piece = length + HEADER <= left and kind in _SEEDS
                end = at + HEADER + length
                if is_piece and end > len(self._buffer):
                    return
                piece = bytes(self._buffer[at + HEADER : end])
                if not is_piece or zlib.crc32(piece, _SEEDS[kind]) != crc:
                    self.bad += 1
                    self._parts, self._skip = None, left
                    continue
                at = end
                record = self._join(kind, piece)
                if record is not None:
                    yield record
        finally:
            del self._buffer[:at]
            self._offset += at

    def _join(self, kind: int, piece: bytes) -> bytes | None:
        if kind == _WHOLE:
            self._parts = None
            return piece
        if kind == _FIRST:
            self._parts, self._size = [piece], len(piece)
        elif self._parts is not None:
            self._parts.append(piece)
            self._size += len(piece)
            if self._size > _LARGEST:
                self._parts = None
        if kind == _LAST and self._parts is not None:
            record, self._parts = b"".join(self._parts), None
            return record
        return None
