"""Text that every machine has: the sources of Python's own standard library.

It is cut into windows of :data:`CONTEXT` characters; a model learns to foretell the character that comes next.
"""

from __future__ import annotations

import pydoc
import random
import sysconfig
from dataclasses import dataclass
from pathlib import Path

CONTEXT = 16
#: Newline and the printable ASCII characters; everything else reads as a question mark.
ALPHABET = b"\n" + bytes(range(32, 127))
#: So much text is enough for some minutes.
MAX_CHARACTERS = 4_000_000
_VALIDATION_SHARE = 0.05

_INDEX = bytes(max(ALPHABET.find(byte), 0) for byte in range(256))


@dataclass(frozen=True)
class Batch:
    """Windows of text and the character behind each, as indices into :data:`ALPHABET`, one byte each.

    ``inputs`` has CONTEXT bytes for every byte of ``targets``.
    """

    inputs: bytes
    targets: bytes


@dataclass(frozen=True)
class Split:
    """A stretch of text to draw windows from."""

    tokens: bytes

    def batch(self, size: int, source: random.Random) -> Batch:
        """Return ``size`` windows from random places."""
        starts = [source.randrange(len(self.tokens) - CONTEXT) for _ in range(size)]
        return Batch(
            inputs=b"".join(self.tokens[start : start + CONTEXT] for start in starts),
            targets=bytes(self.tokens[start + CONTEXT] for start in starts),
        )


def load() -> tuple[Split, Split]:
    """Return the training split and the validation split, which is the end of the text."""
    tokens = encode(_read())
    cut = int(len(tokens) * (1 - _VALIDATION_SHARE))
    return Split(tokens[:cut]), Split(tokens[cut:])


def encode(text: str) -> bytes:
    """Return the index in :data:`ALPHABET` of each character."""
    return text.encode("ascii", errors="replace").translate(_INDEX)


def _read() -> str:
    """Return source files in the order of their names, or Python's built-in help where the sources are missing."""
    parts: list[str] = []
    size = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        parts.append(path.read_text(encoding="utf-8", errors="replace"))
        size += len(parts[-1])
        if size >= MAX_CHARACTERS:
            break
    if not parts:
        parts = [pydoc.plain(pydoc.render_doc(kind)) for kind in (str, bytes, int, float, dict, list, set)]
    return "".join(parts)[:MAX_CHARACTERS]
