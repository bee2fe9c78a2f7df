"""Answers of ``key : value`` lines: ``npu-smi info -t ...`` and ``hccn_tool``.

A block belongs to one chip, whose number stands in its first line or in its last.  Errors are printed as text with the
status 0 ("Invalid card id." and the usage): they have none of the keys that are looked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_LINE = re.compile(r"\s*([A-Za-z][^:\n]{0,80}?)\s*:\s?(.*)")
#: These are of the card, not of a chip.
_OF_THE_CARD = frozenset({"NPU ID", "Chip Count"})
CHIP = "Chip ID"
_MOST_BLOCKS, _MOST_KEYS = 64, 256

Block = Mapping[str, str]


def parse(text: str) -> list[Block]:
    """Return the blocks; an empty line, or a key for the second time, begins another one."""
    blocks: list[dict[str, str]] = [{}]
    for line in text.splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            # A line that goes on has no key: "          : node type=..."
            if not line.strip() and blocks[-1]:
                blocks.append({})
            continue
        key, value = match[1], match[2].strip()
        if key in _OF_THE_CARD:
            continue
        if key in blocks[-1]:
            blocks.append({})
        if len(blocks) > _MOST_BLOCKS:
            break
        if len(blocks[-1]) < _MOST_KEYS:
            blocks[-1][key] = value
    return [block for block in blocks if block]


def of_chip(blocks: Sequence[Block], chip: int) -> Block:
    """Return the block of a chip: the one with its number, or the only one where none has a number; empty if none."""
    numbered = [block for block in blocks if CHIP in block]
    if not numbered:
        return blocks[0] if len(blocks) == 1 else {}
    return next((block for block in numbered if block[CHIP] == str(chip)), {})
