"""What takes several lines: tracebacks of Python, the table of torchelastic, the table of ranks that are missing.

Every block ends after a bounded number of lines, whether its end is seen or not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_TRACEBACK = "Traceback (most recent call last)"
#: A header of glog or of torch's logging (which writes one, and goes on) before a line: "E0416 03:53:55.2 99 x.py:1] ",
#: and of torch before 2.3 "[W socket.cpp:464] ".
LOGGED = re.compile(r"\[?[IWEF](?:\d{3,4} \d\d:\d\d:\d\d\.\d{1,9} .{0,160}?| [\w./]{1,100}):\d{1,6}\] ")
#: What Python writes before a traceback that ends nothing.
_IGNORED = ("Exception ignored in", "Error in atexit._run_exitfuncs", "--- Logging error ---")
_FRAME = re.compile(
    r'\s+File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9})|│ (?P<rich_file>\S{1,400}\.py):(?P<rich_line>\d{1,9}) '
)
#: Lines of a frame around a traceback, as rich draws it.
_FRAMED = ("│", "╭", "╰")
_LAST = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,120})(?:\(\w{1,60}\))?(?:: |:?$)")
#: An error that stands behind something else, where prefixes differ within one traceback.
_BEHIND = re.compile(r"(?:\S{1,100} ){1,3}(?P<name>[A-Za-z_][\w.]{0,80}(?:Error|Exception)): ")
#: Ray puts it before the traceback of the task, whose last line is what counts.
_WRAPPER = "RayTaskError("
_LONGEST_TRACEBACK = 500
_MOST_STRANGERS = 20
_MOST_STREAMS = 64


class Ended(NamedTuple):
    """The last line of a traceback: of which rank, in which place of which file."""

    line: str
    at: str


@dataclass(slots=True)
class _Open:
    rank: int | None
    #: What stands before every line of it, such as the name of a node; a bar before the first line is none.
    prefix: str
    ignored: bool
    lines: int = 0
    strangers: int = 0
    at: str = ""


class Tracebacks:
    """The tracebacks that are being written, several at a time where ranks or nodes share a stream."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._ignored = False

    def __bool__(self) -> bool:
        """Whether one of them is open."""
        return bool(self._open) or self._ignored

    def feed(self, rank: int | None, line: str) -> Ended | bool:
        """Return the end of a traceback, or whether the line is only a part of one."""
        begin = line.find(_TRACEBACK)
        if begin >= 0:
            if LOGGED.match(line) is None:
                self._begin(rank, line[:begin])
            self._ignored = False
            return True
        if line.startswith(_IGNORED):
            self._ignored = True
            return True
        self._ignored = False
        state = self._of(rank, line)
        if state is None:
            return self._behind(line)
        line = line[len(state.prefix) :]
        state.lines += 1
        if state.lines > _LONGEST_TRACEBACK:
            self._open.remove(state)
        elif line[:2].strip() == "" or line[0] in _FRAMED:
            found = _FRAME.match(line)
            if found is not None:
                file, number = found["file"] or found["rich_file"], found["line"] or found["rich_line"]
                state.at = f"{file.rpartition('/')[2]}:{number}"
        elif _LAST.match(line) is None:
            return self._behind(line)
        elif _WRAPPER not in line:
            self._open.remove(state)
            return state.ignored or Ended(line, state.at)
        return True

    def _begin(self, rank: int | None, prefix: str) -> None:
        """Open one; what was open of the same rank and prefix is over, as it has no end."""
        self._open = [state for state in self._open if (state.rank, state.prefix) != (rank, prefix)]
        if len(self._open) < _MOST_STREAMS:
            self._open.append(_Open(rank, prefix, self._ignored))

    def _of(self, rank: int | None, line: str) -> _Open | None:
        """Return the one that a line belongs to: the latest with its prefix, or the latest that has none."""
        same = [state for state in reversed(self._open) if state.rank == rank]
        for state in same:
            if state.prefix and line.startswith(state.prefix):
                return state
        for state in same:
            if not state.prefix or not state.lines:
                state.prefix = ""
                return state
        return None

    def _behind(self, line: str) -> Ended | bool:
        """Take a line that belongs to no traceback of its rank: another process wrote it, or its prefix is another."""
        for state in list(self._open):
            state.strangers += 1
            found = _BEHIND.match(line) or (_LAST.match(line) if "Error: " in line else None)
            if found is not None and found["name"].endswith(("Error", "Exception")):
                self._open.remove(state)
                return Ended(line[found.start("name") :], state.at)
            if state.strangers > _MOST_STRANGERS * len(self._open):
                self._open.remove(state)
        return False


@dataclass(slots=True)
class Child:
    """A process as the table of torchelastic describes it; ``error`` is the last line of its traceback, if known."""

    root: bool
    rank: int | None = None
    fields: dict[str, str] = field(default_factory=dict)
    error: str = ""


_KEY = re.compile(r"\s{0,8}(time|host|rank|exitcode|error_file|traceback|msg)\s{0,8}: ?(.{0,2000})")
_RULE = re.compile(r"\s{0,8}[=*]{20,}\s*$")
_LONGEST_TABLE = 600


class ElasticTable:
    """The table that follows ``ChildFailedError``: which processes failed, and which of them first.

    Layout of ``torch/distributed/elastic/multiprocessing/errors/__init__.py`` (1.9: between rules of ``*``, the root
    cause first; since 1.10: ``Failures:``, then ``Root Cause (first observed failure):``).
    """

    def __init__(self) -> None:
        self._left = 0
        self._root = False
        self._first: Child | None = None
        self._now: Child | None = None

    def __bool__(self) -> bool:
        """Whether it is open."""
        return self._left > 0

    def open(self) -> None:
        """Begin: the error was read that stands before the table."""
        self._left, self._root, self._first, self._now = _LONGEST_TABLE, False, None, None

    def feed(self, line: str) -> Child | bool:
        """Return the child that failed first when the table ends, else whether the line belongs to the table."""
        self._left -= 1
        if "Root Cause" in line:
            self._root = True
        elif re.match(r"\s*\[\d{1,6}\]:\s*$", line):
            self._now = Child(self._root)
            if self._root and self._first is None:
                self._first = self._now
        elif _RULE.match(line):
            if self._first is not None and "exitcode" in self._first.fields:
                self._left = 0
                return self._first
        elif self._now is not None:
            found = _KEY.match(line)
            if found is not None and found[1] not in self._now.fields:
                self._now.fields[found[1]] = found[2].strip()
                if found[1] == "rank" and (number := re.match(r"\d{1,6}", found[2])):
                    self._now.rank = int(number[0])
            elif "traceback" in self._now.fields and re.match(r"\s{0,6}[A-Za-z_][\w.]*(?:Error|Exception): ", line):
                self._now.error = line.strip()
            else:
                return False
        return True


_HEADER = re.compile(r".{0,400}\|\s*Missing [Rr]anks\s*$")
_MISSING = re.compile(
    r"\s*\S{1,20}\s*\|.{1,400}?\|?\s*(?P<collective>[\w:]{1,40}) {0,40}\|.{0,200}\|\s*(?P<ranks>\d[\d, -]{0,400})$"
)


class MissingRanks:
    """The table that an analysis of flight recorders writes: a row for each collective, its last column who misses."""

    def __init__(self) -> None:
        self._left = 0

    def __bool__(self) -> bool:
        """Whether it is open."""
        return self._left > 0

    def feed(self, line: str) -> dict[str, str] | None:
        """Return the collective and the ranks of a row."""
        if _HEADER.match(line) is not None:
            self._left = 32
            return None
        if self._left:
            self._left -= 1
            found = _MISSING.match(line)
            if found is not None:
                return found.groupdict()
            self._left = min(self._left, 2)
        return None
