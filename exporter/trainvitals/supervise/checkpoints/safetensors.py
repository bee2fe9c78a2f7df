"""Safetensors: eight bytes with the length of a JSON header, the header, and the tensors behind each other.

The header says where each tensor begins and ends, so that the length of the file is known.  There are no checksums: a
flipped bit is not found.
"""

from __future__ import annotations

import json
import os

from trainvitals.supervise.checkpoints.base import DamagedError

#: The format's own limit.
_LONGEST_HEADER = 100_000_000
_LENGTH = 8


class Safetensors:
    """Single files; the shards of a model are verified by the format of their folder."""

    name = "safetensors"

    def claims(self, path: str) -> bool:
        """Whether it is a file with this ending."""
        return path.endswith(".safetensors") and os.path.isfile(path)

    def verify(self, path: str) -> None:
        """Check header and length."""
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            if size < _LENGTH or not 2 <= length <= _LONGEST_HEADER:
                raise DamagedError("it has no header")
            if size < _LENGTH + length:
                raise DamagedError("it is cut short within its header")
            end = _end(file.read(length))
        if size != _LENGTH + length + end:
            word = "cut short" if size < _LENGTH + length + end else "too long"
            raise DamagedError(f"it is {word}: {size} bytes, expected {_LENGTH + length + end}")

    def step(self, path: str) -> int | None:
        """Return None: there is no usual place for it."""
        del path
        return None


def _end(header: bytes) -> int:
    """Return where the last tensor ends, counted from the end of the header."""
    try:
        entries = json.loads(header)
        ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"]
        return max((int(end) for end in ends), default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise DamagedError("its header makes no sense") from None
