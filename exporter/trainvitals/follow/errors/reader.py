"""Finds errors in blocks of lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import AnyStr, TypeAlias

from trainvitals.follow.errors.base import Cause, Level
from trainvitals.follow.errors.blocks import LOGGED, Child, ElasticTable, Ended, MissingRanks, Tracebacks
from trainvitals.follow.errors.details import details_of, place_of
from trainvitals.follow.errors.scales import LossScales
from trainvitals.follow.errors.suspects import WORDS, Harmless
from trainvitals.follow.errors.table import CAUSE, cause_of
from trainvitals.follow.needles import search
from trainvitals.follow.text import timestamp, unprefixed
from trainvitals.telemetry import Event

#: Of a longer line, begin and end are read: a launcher's line holds the whole command, and the exit code behind it.
_LONGEST_LINE, _ITS_END = 2048, 256
_LONGEST_TEXT = 300
#: So many events of one cause are told, and each once for a rank, until so many lines came without it; all are counted.
_EVENTS_PER_CAUSE, _QUIET_LINES = 16, 500
_MOST_KEYS = 2048
#: Ends by a signal tell more than that a child failed.
_SIGNALS = {
    2: ("SIGINT", "interrupted"),
    4: ("SIGILL", "segfault"),
    6: ("SIGABRT", "aborted"),
    7: ("SIGBUS", "shared_memory_full"),
    9: ("SIGKILL", "process_killed"),
    11: ("SIGSEGV", "segfault"),
    15: ("SIGTERM", "terminated"),
}
#: A program that was printed into the log (its source), not what it says; `set -x` of a shell.
_SOURCE = re.compile(
    r"\s{4}(?!\s*(?:-? ?\[\d|what\(\)|Reason:))"
    r"|\s*(?:#|raise |print\(|assert |except |if |elif |return |def |class |import |from |with |@|\"\"\"|f?['\"]"
    r"|log0?\(|logger\.|logging\.|warnings?\.)|\+{1,9} |.{0,200}\{\w[\w.]{0,40}(?:\(\w{0,40}\))?[}:!]"
)
#: A rank in the middle of a line: what grep writes before it, say.
_RANK = re.compile(r"\[rank(\d{1,6})\]: ?")
#: A time before a line, as tools that collect logs write it.
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? ")
#: A warning of Python, or a record of a level below an error; NCCL calls its errors warnings.
_WARNING = re.compile(r".{0,300}?\b\w{0,40}Warning: |.{0,80}?(?<!NCCL )\bWARN(?:ING)?\b")

#: A cause, its details, and the words that told it.
Found: TypeAlias = "tuple[Cause, dict[str, str], str]"


class ErrorReader:
    """Reads one file, or one stream of lines; a :class:`trainvitals.follow.base.Scanner`.

    ``counts`` tells how often each cause was seen, also where no event was told.  Memory is bounded; no bytes raise.
    An event has the kind ``log_error`` and the fields cause, category, level, root, place, text, action, those of
    :mod:`trainvitals.follow.errors.details` that are known, and rank, if known.
    """

    #: What a line must hold for it to be looked at, unless something is open that takes several.
    words = WORDS

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._harmless = Harmless()
        self._tracebacks = Tracebacks()
        self._table = ElasticTable()
        self._missing = MissingRanks()
        self._scales = LossScales()
        self._now = 0
        #: Of each cause how many were told, and in which line it was seen last; the latter for each of its keys too.
        self._told: dict[str, tuple[int, int]] = {}
        self._seen: dict[tuple[str, int | None, str], int] = {}

    def scan(self, block: bytes, places: Sequence[int] | None = None) -> list[tuple[int, Event]]:
        """Return the events of a block of complete, clean lines, each with its place in the block."""
        places = search(block, (), WORDS)[1] if places is None else places
        found = list(self._lines(block, places)) if places or self._open() else []
        # Lines are counted from the first error on.
        if self._told:
            self._now += block.count(b"\n")
        return found

    def feed(self, line: str, rank: int | None = None, time: float = 0.0, step: int = -1) -> list[Event]:
        """Return the events of one line without its line end.

        ``rank`` is that of the stream, ``time`` when the line was written; what the line itself says of them wins.
        """
        self._now += 1
        text = line.encode(errors="replace")
        if not (self._open() or (search(text, (), WORDS)[1] and text not in self._harmless)):
            return []
        return self._line(_cut(line), rank=rank, time=time, step=step)

    def restart(self) -> None:
        """Forget what was told: a new attempt begins, whose errors are its own."""
        self._told.clear()
        self._seen.clear()

    def _is_repeat(self, key: tuple[str, int | None, str]) -> bool:
        """Whether the like was told not long ago, or often enough; remember that it came again."""
        count, last = self._told.get(key[0], (0, -_QUIET_LINES))
        if self._now - last >= _QUIET_LINES:
            count = 0
        before = self._seen.get(key)
        new = (before is None or self._now - before >= _QUIET_LINES) and count < _EVENTS_PER_CAUSE
        self._told[key[0]] = (count + new, self._now)
        if new or before is not None:
            self._seen[key] = self._now
        if len(self._seen) > _MOST_KEYS:
            self._seen.clear()
        return not new

    def _open(self) -> bool:
        return bool(self._tracebacks or self._table or self._missing)

    def _lines(self, block: bytes, places: Sequence[int]) -> Iterator[tuple[int, Event]]:
        """Look at the lines of these places, and at every line while something is open that takes several."""
        start, counted = self._now, 0
        words = iter(places)
        begin = 0
        while begin < len(block):
            if not self._open():
                place = next((place for place in words if place >= begin), None)
                if place is None:
                    break
                begin = block.rfind(b"\n", begin, place) + 1 or begin
            end = block.find(b"\n", begin)
            line = block[begin : end if end >= 0 else len(block)]
            if self._open() or line not in self._harmless:
                self._now += block.count(b"\n", counted, begin)
                counted = begin
                before = self.counts.total()
                for event in self._line(_cut(line).decode(errors="replace"), rank=None, time=0.0, step=-1):
                    yield begin, event
                if self.counts.total() == before and not self._open():
                    self._harmless.told_nothing(line)
            begin += len(line) + 1
        self._now = start

    def _line(self, line: str, *, rank: int | None, time: float, step: int) -> list[Event]:
        own, text = unprefixed(line)
        at = text.find("[rank", 0, 240)
        if at > 0 and (found := _RANK.match(text, at)):
            own, text = int(found[1]), text[found.end() :]
        rank = own if own is not None else rank
        stamp = timestamp(text)
        text = _STAMP.sub("", text.rstrip(), count=1)
        events = []
        for cause in self._causes(rank, text):
            event = self._event(cause, rank=rank, time=stamp or time, step=step)
            if event is not None:
                events.append(event)
        return events

    def _causes(self, rank: int | None, text: str) -> Iterator[Found]:
        """Return what a line tells."""
        if self._table:
            child = self._table.feed(text)
            if isinstance(child, Child):
                yield from _of_child(child)
                self.restart()
            if child is not False:
                return
        row = self._missing.feed(text)
        if row is not None:
            yield CAUSE["collective_missing_ranks"], row, text
            return
        ended = self._tracebacks.feed(rank, text)
        if isinstance(ended, Ended):
            yield self._of_traceback(ended)
        elif not ended and _SOURCE.match(text) is None:
            told = cause_of(text)
            if told is not None:
                yield from self._of_line((*told, text), rank)

    def _of_traceback(self, ended: Ended) -> Found:
        """Return what the last line of a traceback tells; harmless forms are not harmless there."""
        cause, details = cause_of(ended.line) or (CAUSE["exception"], {})
        if cause.name == "child_failed":
            self._table.open()
        if cause.level is Level.NOTICE:
            cause = CAUSE["peer_lost"] if cause.name == "connection_lost" else CAUSE["exception"]
        if cause.name not in {"interrupted", "terminated"}:
            details = {**details, "at": ended.at}
        return cause, details, ended.line

    def _of_line(self, found: Found, rank: int | None) -> Iterator[Found]:
        """Return what a line alone tells, in the light of the lines before it."""
        cause, details, text = found
        if cause.name == "loss_scale_overflow":
            after = details.get("reduced") or details.get("scale", "")
            who = int(details["rank"]) if "rank" in details else rank
            if self._scales.at_minimum(who, details.get("attempted", ""), after):
                cause = CAUSE["loss_scale_minimum"]
        elif cause.name == "child_failed":
            if "ChildFailedError" in text:
                self._table.open()
            yield from _of_exit(details, text)
        elif cause.level is not Level.NOTICE and _is_warning(text):
            return
        yield cause, details, text

    def _event(self, found: Found, *, rank: int | None, time: float, step: int) -> Event | None:
        """Return an event, unless the like was told often enough."""
        cause, details, text = found
        self.counts[cause.name] += 1
        who = int(details["rank"]) if details.get("rank", "").isdigit() else rank
        kind = text.partition(":")[0] if cause.name == "exception" else ""
        if self._is_repeat((cause.name, who, details.get("file") or kind)):
            return None
        fields: dict[str, object] = {
            "cause": cause.name,
            "category": cause.category,
            "level": int(cause.level),
            "root": cause.level <= Level.SYMPTOM,
            "text": " ".join(text.split())[:_LONGEST_TEXT],
            "action": cause.action,
            **details_of(details),
        }
        if who is not None:
            fields["rank"] = who
        fields["place"] = place_of(fields)
        return Event(time, "log_error", step, fields)


def _cut(line: AnyStr) -> AnyStr:
    """Return begin and end of a long line, every other as it is."""
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - _ITS_END] + line[-_ITS_END:]


def _is_warning(text: str) -> bool:
    """Whether a line only warns: a warning of Python, or a record below the level of an error."""
    if "death signal" in text:
        return False
    return _WARNING.match(text) is not None or (LOGGED.match(text) is not None and text.lstrip("[")[0] in "IW")


def _of_exit(details: dict[str, str], text: str) -> Iterator[Found]:
    """Return the cause of an exit code that is a signal: negative, or above 128 as a shell tells it."""
    code = int(details.get("exit_code") or details.get("return_code") or details.get("status_code") or 0)
    number = -code if code < 0 else code - 128
    if number in _SIGNALS:
        signal, cause = _SIGNALS[number]
        yield CAUSE[cause], {**details, "signal": signal}, text


def _of_child(child: Child) -> Iterator[Found]:
    """Return what the first failure in the table of torchelastic tells."""
    details = {}
    found = re.match(r"(-?\d{1,5})(?: {1,4}\(pid: (\d{1,10})\))?", child.fields.get("exitcode", ""))
    if found is not None:
        details["exit_code"] = found[1]
        if found[2]:
            details["pid"] = found[2]
    if child.rank is not None:
        details["rank"] = str(child.rank)
    for name, key in (("host", "host"), ("error_file", "file")):
        value = child.fields.get(name, "")
        if value and value != "<N/A>":
            details[key] = value
    error = child.error or child.fields.get("msg", "").strip('"')
    text = error or f"rank {child.rank} ended first: exit code {details.get('exit_code', '?')}"
    if error:
        cause, more = cause_of(error) or (CAUSE["exception"], {})
        yield cause, {**more, **details}, error
    yield from _of_exit(details, text)
    yield CAUSE["child_failed"], details, text
