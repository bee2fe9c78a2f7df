"""One log: finds out its format, reads what is new of it, and hands on the items that were not told before."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainvitals.follow.base import SURE, BlockFormat, BlockParser, FileFormat, Format, LineFormat, Piece, Rows, Scanner
from trainvitals.follow.formats import Formats, choose
from trainvitals.follow.lines import LineReader
from trainvitals.follow.opened import Position
from trainvitals.follow.tail import Begin, Tail
from trainvitals.follow.told import Told

log = logging.getLogger(__name__)

#: A format is asked about pieces of so many bytes.
SNIFF = 1 << 18
#: So many bytes of a log that nobody knows are looked at piece by piece; of what follows, one piece in so many.
_PATIENCE = 1 << 25
_SAMPLES = 16
#: After so many bytes of a log that is known, but not surely, others are asked each time that it is twice as long.
#: They see so much of it.
_ATTENTION, _GLANCE = 1 << 20, 1 << 16
#: Of a text that is written again, the values of one item in so many are compared with what they were.
_COMPARED = 64
#: A poll ends after so many items: they take more memory than their text.
MAX_ITEMS = 1 << 16
#: Before the place where a log goes on after a restart, so much of it is read again, for parsers and detectors.
REPLAY = 1 << 20
#: A half line is told when nothing came behind it for so many seconds.  Programs that buffer their output write half
#: lines all the time, and half a number is a wrong one.
REST = 300.0
#: What is open is closed when it did not change for so many seconds.
IDLE = 600.0
#: A file that is read as a whole is read again after so many times the seconds that the last reading took.
_REST_OF_READING = 20.0


class Reader:
    """Reads one log.  ``path`` may be set anew, for logs of which each state is a file of its own.

    ``formats`` are those that may be found.  ``saved`` is what :meth:`state` returned before a restart: what was told
    then is told again by :meth:`replay`, once, before the first :meth:`poll`, which goes on behind it.
    """

    def __init__(
        self,
        path: str,
        formats: Sequence[Format],
        scanner: Callable[[], Scanner] | None = None,
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self.format: Format | None = None
        self._formats = formats
        self._make_scanner = scanner
        self._sure = 0
        self._saved = saved
        self._owed: Mapping[str, Any] | None = None
        self._tail = Tail(path)
        self._lines = LineReader(None, self._scanner())
        self._parser: BlockParser | None = None
        self._unknown = b""
        self._passed = 0
        self._told = Told()
        #: Places in the text, some way before the end, and what parsers had counted there.
        self._counts: deque[tuple[int, dict[str, list[Any]]]] = deque(maxlen=2)
        self._signature: object = None
        self._bad = 0
        self._complained = False
        self._grew = 0.0
        self._pause = 0.0
        #: When the file was last changed, and how many bytes were read at the last poll.
        self.changed = 0.0
        self.read = 0
        #: What is wrong with the file; empty when it can be read.
        self.problem = ""

    @property
    def unread(self) -> int:
        """Bytes that are there and not read yet."""
        return 0 if isinstance(self.format, FileFormat) else self._tail.unread

    @property
    def bad(self) -> int:
        """Lines, records and readings that made no sense."""
        return self._bad + self._lines.bad

    def poll(self, limit: int, now: float, *, final: bool = False) -> Iterator[list[Piece]]:
        """Yield what is new, in lists, from at most about ``limit`` bytes.  What is wrong is in :attr:`problem`.

        With ``final``, nobody writes the log any more.
        """
        self.read, self._complained = 0, False
        return self._guarded(self._poll(limit, now, final))

    def replay(self) -> Iterator[list[Piece]]:
        """Yield, of what was told before a restart, the end (or all, where the format needs it)."""
        return self._guarded(self._replay())

    def state(self) -> dict[str, Any]:
        """Return what must be remembered over a restart, as JSON knows it."""
        if self._owed is not None:
            return dict(self._owed)
        position = self._tail.position()
        is_told_again = isinstance(self.format, FileFormat) or self._is_rewritten
        return {
            "format": "" if self.format is None else self.format.name,
            "position": None if position is None else list(position),
            "unknown": len(self._unknown),
            "in_line": self._lines.in_line,
            "told": self._told.counts() if is_told_again else {},
            "samples": self._told.samples() if self._is_rewritten else {},
            "counts": list(self._counts),
        }

    def close(self) -> None:
        """Give the descriptor back, if the file can be opened again where it goes on."""
        self._tail.close()

    def _guarded(self, items: Iterator[list[Piece]]) -> Iterator[list[Piece]]:
        try:
            yield from items
        except FileNotFoundError:
            self.problem = "gone"
        except PermissionError as error:
            # Nothing of the log made no sense: it may be given back.
            with contextlib.suppress(OSError):
                self._tail.close()
            self.problem = str(error)
        except ImportError as error:
            name, extra = ("", "") if self.format is None else (self.format.name, self.format.extra)
            self.problem = f"{name} needs pip install 'trainvitals[{extra}]': {error}"
        except (OSError, EOFError, zlib.error, ValueError) as error:
            # A descriptor may have gone stale (NFS), while the path leads to a file that can be read.
            with contextlib.suppress(OSError):
                self._tail.close()
            self._bad += 1
            self.problem = str(error) or type(error).__name__
        except Exception as error:
            self._complain(error)
        else:
            if not self._complained:
                self.problem = ""

    def _complain(self, error: Exception) -> None:
        """Count what a format could not take; the first of a log is in our own log."""
        if not self._bad:
            log.warning("%r cannot be read", self.path, exc_info=error)
        self._bad += 1
        self._complained = True
        self.problem = repr(error)

    def _poll(self, limit: int, now: float, final: bool) -> Iterator[list[Piece]]:
        if self.format is None and os.path.isdir(self.path):
            folders = Formats.of(self._formats).of_folders()
            self.format = next((known for known in folders if known.sniff(b"", self.path)), None)
        self._catch_up_silently()
        if isinstance(self.format, FileFormat):
            if final or not 0.0 <= now - self._grew < self._pause:
                self._grew = now
                yield self._read_file(self.format)
            return
        tail = self._tail
        tail.path = self.path
        taken = 0
        for piece in tail.read(limit, final=final):
            if isinstance(piece, Begin):
                # In a file that is written again the half line comes again, whole; half a number is a wrong one.
                if not self._is_rewritten:
                    yield self._flush()
                self._begin()
                continue
            self.read += len(piece)
            for items in self._take(piece):
                taken += sum(len(item) if isinstance(item, Rows) else 1 for item in items)
                yield items
            self._remember_counts()
            if isinstance(self.format, FileFormat):
                tail.close()
                yield self._read_file(self.format)
                return
            if taken > MAX_ITEMS:
                break
        self.changed = tail.changed
        if self.read or not self._grew:
            # After a restart too, a half line has its time to become a whole one.
            self._grew = now
        if tail.unread == 0 and (final or now - self._grew > REST):
            yield self._flush()
            if now - self._grew > IDLE:
                tail.close()

    def _take(self, data: bytes) -> Iterator[list[Piece]]:
        if self.format is None:
            yield from self._take_unknown(data)
            return
        if self._sure < SURE and self._passed < _PATIENCE:
            self._reconsider(data)
        yield self._feed(data)

    def _feed(self, data: bytes) -> list[Piece]:
        """Return the items of bytes of a file that is only appended to."""
        if isinstance(self.format, BlockFormat):
            records: list[Piece] = []
            self._parser = self._parser or self.format.parser(self.path)
            try:
                records.extend(self._parser.feed(data))
            except Exception as error:
                self._complain(error)
            return self._told.new(records)
        items = self._lines.feed(data)
        return self._told.new(items) if self._is_rewritten else items

    def _remember_counts(self) -> None:
        """Remember now and then what the parsers count: after a restart the text is read again from there on."""
        place = self._tail.offset - self._lines.pending
        if place - (self._counts[-1][0] if self._counts else 0) < REPLAY or self._is_rewritten:
            return
        if counted := self._lines.memory():
            self._counts.extend([] if self._counts else [(0, {})])
            self._counts.append((place, counted))

    @property
    def _is_rewritten(self) -> bool:
        return isinstance(self.format, LineFormat) and self.format.rewritten

    def _flush(self) -> list[Piece]:
        """Return the items of the half line at the end."""
        items: list[Piece] = []
        if self.format is None and self._unknown:
            found, sure = choose(self._unknown + b"\n", self.path, self._formats)
            if isinstance(found, LineFormat):
                known, self._unknown = self._unknown, b""
                self._lines = LineReader(None, self._scanner())
                self._settle_on(found, sure)
                items += self._feed(known)
        rest = self._lines.flush()
        return items + (self._told.new(rest) if self._is_rewritten else rest)

    def _begin(self) -> None:
        """Begin anew: the file is another one, or was written again."""
        lines = LineReader(self.format if isinstance(self.format, LineFormat) else None, self._scanner())
        lines.bad, self._lines, self._unknown = self._lines.bad, lines, b""
        self._parser = None
        self._counts.clear()
        self._told.begin_again()

    def _scanner(self) -> Scanner | None:
        return None if self._make_scanner is None else self._make_scanner()

    # Which format it is ---------------------------------------------------------------------------------------------

    def _take_unknown(self, data: bytes) -> Iterator[list[Piece]]:
        """Take bytes of a log whose format is not known, or not yet: a program may say much before it trains."""
        for start in range(0, len(data), SNIFF):
            piece, rest = data[start : start + SNIFF], data[start + SNIFF :]
            self._unknown += piece
            self._passed += len(piece)
            is_due = self._passed < _PATIENCE or self._passed // SNIFF % _SAMPLES == 0
            found, sure = choose(self._unknown, self.path, self._formats) if is_due else (None, 0)
            if found is None:
                # No line that anybody knows; the half one at the end may become one.  Errors stand in any text.
                yield self._lines.feed(piece)
                if len(self._unknown) > SNIFF:
                    self._unknown = self._unknown[self._unknown.rfind(b"\n") + 1 :][-SNIFF:]
                continue
            known, self._unknown = self._unknown, b""
            self._settle_on(found, sure)
            if isinstance(found, BlockFormat):
                yield self._feed(known + rest)
            elif isinstance(found, LineFormat):
                # Errors in what came before were told already.
                before = len(known) - len(piece)
                scanner, self._lines.scanner = self._lines.scanner, None
                yield self._feed(known[:before])
                self._lines.scanner = scanner
                yield self._feed(known[before:] + rest)
            return

    def _settle_on(self, found: Format, sure: int) -> None:
        self.format, self._sure, self._passed = found, sure, 0
        self._told = Told(_COMPARED if isinstance(found, LineFormat) else 1)
        if isinstance(found, LineFormat):
            lines = LineReader(found, self._lines.scanner)
            lines.bad, self._lines = self._lines.bad, lines
        self._parser = None

    def _reconsider(self, data: bytes) -> None:
        """Change over to a format that is surer: what looked like steps at the begin was something else."""
        before, self._passed = self._passed, self._passed + len(data)
        if self._passed > _ATTENTION and before.bit_length() == self._passed.bit_length():
            return
        found, sure = choose(data[:_GLANCE], self.path, self._formats, above=self._sure)
        if sure > self._sure and isinstance(found, LineFormat) and isinstance(self.format, LineFormat):
            if found is not self.format:
                self._lines.change(found)
                self._counts.clear()
            self.format, self._sure = found, sure

    # Files as a whole, and restarts ---------------------------------------------------------------------------------

    def _read_file(self, file_format: FileFormat, limits: dict[str, int] | None = None) -> list[Piece]:
        signature = (self.path, file_format.signature(self.path))
        if signature == self._signature:
            return []
        self.changed = file_format.changed(self.path)
        begun = time.monotonic()
        items = list(file_format.read(self.path))
        self._pause = _REST_OF_READING * (time.monotonic() - begun)
        self._told.begin_again()
        self._signature = signature
        return self._told.new(items, limits)

    def _replay(self) -> Iterator[list[Piece]]:
        saved, self._saved = self._saved, None
        if not saved:
            return
        name, position = saved["format"], saved["position"]
        found = Formats.of(self._formats).named(name) if name else None
        if name and found is None:
            return
        if found is not None:
            self._settle_on(found, SURE)
        if position is not None:
            self._tail = Tail(self.path, Position.of(position))
        self._owed = saved
        yield from self._catch_up()

    def _catch_up_silently(self) -> None:
        """Do it where it could not be done right after the restart: it was told, but not which run it belongs to."""
        if self._owed is not None:
            for _ in self._catch_up():
                pass
            self._told.announce_again()

    def _catch_up(self) -> Iterator[list[Piece]]:
        """Read again what was told before a restart.  Where the log cannot be read just now, there is a next time."""
        owed, found = self._owed, self.format
        if owed is None:
            return
        if isinstance(found, FileFormat):
            yield self._read_file(found, owed["told"])
            self._signature = None
        elif owed["position"] is not None:
            self._begin()
            if self._tail.open():
                yield from self._read_again(found, owed["unknown"], owed.get("counts", []))
            self._told.owe(owed["told"], owed.get("samples", {}))
            if owed["in_line"]:
                self._lines.skip_line()
        self._owed = None

    def _read_again(self, found: Format | None, unknown: int, counts: Sequence[Any]) -> Iterator[list[Piece]]:
        tail = self._tail
        size = tail.offset
        if found is None:
            size = unknown
        elif isinstance(found, LineFormat) and not found.rewritten:
            size = REPLAY
            if counts:
                place, counted = counts[0]
                size = tail.offset - place
                self._lines.recall(counted)
                self._counts.extend((place, counted) for place, counted in counts)
            if found.head_lines and tail.offset > size:
                lines = tail.read_head(REPLAY).split(b"\n", found.head_lines)[: found.head_lines]
                yield self._feed(b"".join(line + b"\n" for line in lines))
        for piece in tail.again(size):
            yield from self._take(piece)
