"""Text as programs write it for a terminal: colours, bars that are drawn anew, prefixes of ranks, times.

Whole blocks are cleaned at once: what is not in a block costs one search of C for it.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from operator import add, itemgetter
from typing import NamedTuple

import orjson

#: Escape sequences: CSI (colours, cursor), OSC (titles, links; ended by BEL or ST), and those of two characters.
#: Source: ECMA-48, 5th edition, 5.3, 5.4 and 8.3.89.
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
#: A colour that changes between two digits parts two numbers: that is how differences of words are shown.
_BETWEEN = re.compile(rb"(?<=\d)(?:\x1b\[[0-9;]*m)+(?=\d)")
_BACKSPACES = re.compile(rb"\x08+")
_FIRST = itemgetter(slice(1))
_DIGITS = str.maketrans("123456789", "000000000")
#: What marks of byte order (UTF-8, UTF-16) begin with.
_MARKS = frozenset((b"\xef", b"\xff", b"\xfe"))

#: Prefixes of the launchers that write all ranks into one stream, and how they number them:
#: torchrun ("[rank3]:", of torch.distributed's own lines and --tee: "[default3]:" or the name of a role, with a local
#: rank), srun --label ("3: "), metaseq under Slurm ("slurm_procid 3 : "), Ray ("(TaskRunner pid=71, ip=10.0.0.4) "),
#: Open MPI's --tag-output ("[1,3]<stdout>:").
_PREFIX_SOURCE = (
    r"\s{0,8}(?:\[(?:rank|default|Rank ?)(\d{1,6})\]:? ?|slurm_procid (\d{1,6}) ?: |(\d{1,6}): "
    r"|\([A-Za-z_][\w.]{0,63}(?: rank=(\d{1,6}),)? pid=\d{1,10}(?:, ip=[\da-fA-F.:]{2,45})?\) "
    r"|\[[a-z][a-z_]{0,30}(\d{1,6})\]: ?|\[\d{1,6},(\d{1,6})\]<std(?:out|err)>: ?)"
)
_PREFIX = re.compile(_PREFIX_SOURCE)
_PREFIXES = re.compile(f"^(?:{_PREFIX_SOURCE})+".encode(), re.MULTILINE)
#: What a line with a prefix can begin with.
FIRST = frozenset("[(s0123456789 ")
#: Numbers, and what stands between and around them, are one character in a shape.
_SHAPE = bytes(48 if chr(code) in "0123456789 .,+-" else code for code in range(256))

#: Times as they stand in logs: "2024-04-06 02:59:36", "2024-04-06T02:59:36.123Z", "2024/04/06 02:59:36,123".
_STAMP = re.compile(r"(\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?![\d:])")


class Prefixed(NamedTuple):
    """A line without its prefix, and the rank that the prefix names, if any."""

    rank: int | None
    line: str


def clean(block: bytes) -> bytes:
    """Return the text of a block of complete lines: no ANSI codes, no NUL, every drawing of a bar a line of its own.

    Carriage returns and runs of backspaces become line ends.  A hole of NULs is what copying and truncating leaves in
    the log of a program that does not append; in every other place they are UTF-16, as PowerShell writes it, of which
    ASCII is left.  Lines that Docker keeps as JSON objects become what was printed, behind its time.
    """
    if b"\0" in block:
        block = block.translate(None, b"\0")
    if block[:1] in _MARKS:
        block = block.removeprefix(b"\xef\xbb\xbf").removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff")
    if block.startswith(b'{"log":"'):
        block = _unwrapped(block)
    if b"\r" in block:
        drawings = block.split(b"\r")
        if b"\n" in map(_FIRST, drawings[1:]):
            drawings = block.replace(b"\r\n", b"\n").split(b"\r")
        block = b"\n".join(drawings)
    if b"\x1b" in block:
        block = _ESCAPES.sub(b"", _BETWEEN.sub(b" ", block))
    if b"\x08" in block:
        block = _BACKSPACES.sub(b"\n", block)
    return block


def _unwrapped(block: bytes) -> bytes:
    """Return the text in lines of Docker's log driver "json-file"; long lines come in parts, without line ends."""
    parts: list[str] = []
    is_begin = True
    for line in block.split(b"\n"):
        try:
            record = orjson.loads(line)
            text, moment = record["log"], record.get("time", "")
        except (ValueError, TypeError, KeyError, AttributeError):
            parts.append(line.decode("utf-8", "replace") + "\n" if line else "")
            is_begin = True
            continue
        if is_begin and text.strip():
            parts.append(f"{moment} ")
        parts.append(text)
        is_begin = text.endswith("\n")
    return "".join(parts).encode("utf-8", "replace")


def bare(block: bytes) -> bytes:
    """Return a block of clean lines without the prefixes of launchers."""
    return _PREFIXES.sub(b"", block)


def shape(text: bytes) -> bytes:
    """Return text with one character in place of all that numbers are made of; it stays as long as it is."""
    return text.translate(_SHAPE)


def have_prefixes(lines: list[str]) -> bool:
    """Whether the prefix of a launcher stands before any of these lines, of which none is empty."""
    return not FIRST.isdisjoint(map(itemgetter(0), lines)) and any(map(_PREFIX.match, lines))


def unprefixed(line: str) -> Prefixed:
    """Cut off the prefixes of launchers.

    >>> unprefixed("[rank3]: step: 7")
    Prefixed(rank=3, line='step: 7')
    """
    rank = None
    while line and line[0] in FIRST:
        found = _PREFIX.match(line)
        if found is None:
            break
        number = found[found.lastindex] if found.lastindex else None
        if number is not None:
            rank = int(number)
        line = line[found.end() :]
    return Prefixed(rank, line)


def timestamp(text: str, start: int = 0, end: int = 120) -> float | None:
    """Return the wall time of the first stamp that begins between these places of a text, or None.

    A stamp without an offset is in the local time of this machine, as that of the trainer on it.

    >>> timestamp("[2024-04-06T02:59:36.250Z] iteration 43")
    1712372376.25
    """
    found = _STAMP.search(text, start, end)
    return None if found is None else _seconds(*found.groups(""))


def timestamps(texts: Sequence[str]) -> list[float | None]:
    """Return :func:`timestamp` of each of several texts, quickly where they differ in digits only."""
    first = texts[0]
    found = _STAMP.search(first, 0, 120)
    if found is None or not "".join(texts).isascii():
        return list(map(timestamp, texts))
    if "\n".join(texts).translate(_DIGITS) != "\n".join([first.translate(_DIGITS)] * len(texts)):
        return list(map(timestamp, texts))
    # What is a digit there is one in all, and everything else is the same.
    minute, rest = slice(*found.span(1)), slice(found.start(2), max(found.end(2), found.end(3)))
    offset = found[4] or ""
    if offset and offset != "Z":
        return list(map(timestamp, texts))
    minutes = [one[minute] for one in texts]
    begins = {one: _minute(one, offset) for one in set(minutes)}
    if None in begins.values():
        return list(map(timestamp, texts))
    seconds = [one[rest] for one in texts]
    if "," in seconds[0]:
        seconds = [one.replace(",", ".") for one in seconds]
    return list(map(add, map(begins.__getitem__, minutes), map(float, seconds)))


def _seconds(minute: str, seconds: str, fraction: str, offset: str) -> float | None:
    whole = _minute(minute, offset)
    return None if whole is None else whole + float(f"{seconds}.{fraction}")


@functools.lru_cache(maxsize=64)
def _minute(text: str, offset: str) -> float | None:
    """Return the wall time of a minute; there are many lines in one, and the time zone's rules are slow."""
    year, month, day, hour, minute = int(text[:4]), int(text[5:7]), int(text[8:10]), int(text[11:13]), int(text[14:16])
    try:
        if not offset:
            datetime(year, month, day, hour, minute)  # noqa: DTZ001  mktime takes any numbers; this one does not.
            return time.mktime((year, month, day, hour, minute, 0, 0, 0, -1))
        moment = datetime(year, month, day, hour, minute, tzinfo=timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return None
    if offset == "Z":
        return moment
    sign = -1 if offset[0] == "-" else 1
    return moment - sign * (int(offset[1:3]) * 3600 + int(offset[-2:]) * 60)
