"""JSON that a tool prints, perhaps among lines of text: tools warn on the same output."""

from __future__ import annotations

import json
import re
from typing import Any

#: So many places are tried where a document may begin.
_MOST = 16
_BEGIN = re.compile(r"^[ \t]{0,64}(?=[{\[])", re.MULTILINE)


def find(text: str) -> Any:
    """Return the first object or list that begins a line and is not empty; None where there is none."""
    decoder = json.JSONDecoder(parse_constant=str)
    for tried, match in enumerate(_BEGIN.finditer(text)):
        if tried >= _MOST:
            break
        try:
            document, _ = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        if document:
            return document
    return None


def word(value: Any) -> str | None:
    """Return a text or a number of a document as a text; None for anything else."""
    if isinstance(value, str):
        return value
    return repr(value) if type(value) in {int, float} else None
