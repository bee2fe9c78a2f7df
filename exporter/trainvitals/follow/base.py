"""What a format hands out, and what a format is.

A format is one module in :mod:`trainvitals.follow.formats` with one object of one of the three kinds below.  It turns
bytes into items and knows nothing of files that grow, rotate or vanish, of ranks that interleave, of attempts and of
what was told before: all that is the business of :mod:`trainvitals.follow.reader` and :mod:`trainvitals.follow.run`.

How to write one::

    class _Parser:
        def feed(self, line: str) -> Iterable[Item]:
            found = _LINE.match(line)
            return () if found is None else (Row(int(found[1]), {"loss": float(found[2])}),)

    class Example(LineFormat):
        name = "example"
        framework = "example"
        needles = (b"loss:",)

        def sniff(self, head: bytes, path: str) -> int:
            return SURE if _SNIFF.search(head) else NO

        def parser(self) -> LineParser:
            return _Parser()

An exception of a parser costs the line, record or reading in which it was raised, and is counted.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple, Protocol, TypeAlias

from trainvitals.telemetry import Event

#: What ``sniff`` returns.  SURE: what only this program writes.  LIKELY: its shape, but others might write it too.
#: GUESS: a step and numbers of some kind.  The highest wins, and of equals the first in FORMATS.
NO, GUESS, LIKELY, SURE = 0, 10, 50, 100


class Row(NamedTuple):
    """Numbers of one step.

    ``step`` is the framework's own number.  None: the values belong to the newest step (before the first one they are
    dropped).

    ``values`` maps names to numbers in base units (ms become seconds, GiB bytes, 41 % of MFU 0.41).  NaN and infinity
    stay what they are; what the log does not say is not in it.  Names that the pipeline knows: loss, learning_rate,
    grad_norm, tokens and samples (the amounts of THIS step, which are added up; totals are called total_tokens and
    total_samples), loss_scale, step_seconds, data_seconds, tokens_per_second, samples_per_second, mfu, flops, epoch,
    elapsed_seconds (since the start of the training), skipped.  Others keep the name that the log gives them;
    :func:`trainvitals.names.ours` and :func:`trainvitals.names.result` know what frameworks call ours.

    ``time`` is wall time, where the log says it (:func:`trainvitals.follow.text.timestamp`).  ``rank`` is the process
    that wrote it, where the line itself says it beyond its prefix; the prefix is the core's business.

    ``split`` is empty for training; for the results of an evaluation it is their split ("validation", "test", or the
    name that the log gives), and the values become an event.
    """

    step: int | None
    values: dict[str, float]
    time: float | None = None
    rank: int | None = None
    split: str = ""


class Rows:
    """Rows of the training that come one behind the other and have the same names: :class:`Row`, but many at once.

    ``columns`` holds the values by name, one list of floats for each; there is one name at least.  ``times`` is None
    where no row has one.  What these lists are given to keeps them.
    """

    __slots__ = ("columns", "rank", "steps", "times")

    def __init__(
        self,
        steps: list[int],
        columns: dict[str, list[float]],
        times: Sequence[float | None] | None = None,
        rank: int | None = None,
    ) -> None:
        self.steps, self.columns, self.times, self.rank = steps, columns, times, rank

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Row]:
        times = self.times if self.times is not None else repeat(None, len(self))
        for step, values, moment in zip(self.steps, self.values(), times, strict=True):
            yield Row(step, values, moment, self.rank)

    def __getitem__(self, place: int) -> Row:
        moment = None if self.times is None else self.times[place]
        return Row(self.steps[place], self.values_at(place), moment, self.rank)

    def values(self) -> Iterator[dict[str, float]]:
        """Yield the values of each."""
        names = tuple(self.columns)
        for row in zip(*self.columns.values(), strict=True):
            yield dict(zip(names, row, strict=True))

    def values_at(self, place: int) -> dict[str, float]:
        """Return the values of one."""
        return {name: column[place] for name, column in self.columns.items()}


class Facts(NamedTuple):
    """What a log says beside numbers; what is not known is left out.  May come any number of times.

    ``run`` is set by formats whose file holds several runs (a database): the items behind it belong to the run of this
    name, until other facts name another.  Where a file is one run it stays empty: the run is called after its file.
    ``started`` and ``finished`` are wall times at which the log says that a training began or ended; 0.0 where it says
    that it did, but not when.  A start makes a new attempt, if there were steps before.
    """

    framework: str = ""
    target_steps: int | None = None
    world_size: int | None = None
    run: str = ""
    started: float | None = None
    finished: float | None = None


#: An event is a :class:`trainvitals.telemetry.Event`, in the words of the probe: kind "checkpoint" has the fields
#: action ("save" or "load"), ok (bool) and, where they are known, path and seconds.  A step of -1 stands for the
#: newest, a time of 0.0 for unknown; the core fills in both.
Item: TypeAlias = Row | Facts | Event
#: What is handed on within the core, where there may be millions of rows.
Piece: TypeAlias = Item | Rows


class LineParser(Protocol):
    """Keeps what must be remembered from line to line, of one file and one rank.

    What it counts, where no line says its step, has to outlive a restart of the exporter, which reads but the end of a
    long log again: a parser may have ``memory``, a tuple with the names of its attributes that are remembered (whole
    numbers, truth values, texts or None).
    """

    def feed(self, line: str) -> Iterable[Item]:
        r"""Return what a line says: a tuple, as a rule, since a generator costs twice as much.

        The line is complete and clean: no ANSI codes, no backspaces, no prefix of a rank or launcher, no line end; of
        a bar that is drawn anew with ``\r``, each drawing is a line.  Blanks at its ends are kept.
        """


class BatchParser(LineParser, Protocol):
    """A parser that may also take many lines at once, for formats of which there are long logs."""

    def batch(self, lines: list[str]) -> Sequence[Piece] | None:
        """Return what :meth:`feed` would of these lines, one by one; but rows of the usual kind as :class:`Rows`.

        None, or any exception: they are fed one by one.  Nothing may be remembered of them then.
        """


class BlockParser(Protocol):
    """Keeps what must be remembered between blocks of one file."""

    def feed(self, data: bytes) -> Iterable[Item]:
        """Return what became complete with the next bytes of the file, which are cut anywhere."""


class Format(ABC):
    """What all formats have.  ``name`` is the word for it in the settings; ``framework`` is shown as that of the run.

    ``framework`` may be empty, where a format does not tell.  ``extra`` is the extra of the package that it needs, if
    any: its library is imported when it is first read, and an ImportError is reported to the user with its name.
    """

    name: str
    framework: str = ""
    extra: str = ""
    #: The most that ``sniff`` returns.
    surest: int = SURE
    #: Whether the files of this format in one folder are one run, each by a process of it or an attempt.
    in_parts: bool = False

    @abstractmethod
    def sniff(self, head: bytes, path: str) -> int:
        """Return how surely this is a file of this format: NO, GUESS, LIKELY or SURE.

        ``head`` is a piece of the file, at most :data:`trainvitals.follow.reader.SNIFF` bytes, as a rule its begin;
        for a :class:`LineFormat` it is clean text (UTF-8) of complete lines, prefixes of ranks still in place, else
        it is as in the file.  A log may begin with anything, so a text is asked about again for later pieces as long
        as nobody knows it.  The content decides.  A name alone never does, but may raise a guess.  Must be fast.
        """


class LineFormat(Format):
    """Text, a line at a time, which is only appended to.

    ``needles``: only lines that hold one of these byte strings, once they are clean, are fed.  They are what makes
    reading fast, since a line that is fed costs microseconds.  Choose rare ones.  Empty: every line is fed.
    ``sniff`` is asked about a text with one of them only.

    ``prefixed``: whether lines may carry the prefix of a rank or a launcher, which is cut off; False for formats whose
    lines have no room for one (CSV, JSON lines).

    ``head_lines``: so many lines at the begin of the file are fed before anything else whenever reading begins in the
    middle (a table's header).

    ``rewritten``: whether the writer sometimes writes the whole file again, with the same rows (Lightning's CSV logger
    does when there is a new column): rows that were told already are then found by their content, and not told twice.
    """

    needles: tuple[bytes, ...] = ()
    prefixed: bool = True
    head_lines: int = 0
    rewritten: bool = False

    @abstractmethod
    def parser(self) -> LineParser:
        """Return a parser for one file, or for one rank's lines of it."""


class BlockFormat(Format):
    """Binary records, which are only appended to.

    After a restart of the exporter such a file is read again from its begin, and as many items are passed over as were
    told: a parser must give the same items for the same bytes, whatever the cuts.
    """

    @abstractmethod
    def parser(self, path: str = "") -> BlockParser:
        """Return a parser for one file, whose path may tell what its bytes do not (the split).

        Raises ImportError without the library of the extra.
        """


class FileFormat(Format):
    """A file (or, with ``folder``, a folder) that is read as a whole whenever it has changed.

    What was told already is not told twice: the core compares item by item.  So the items of a file come in one order
    and old ones do not change; where they do, the rest of the file is told anew.

    ``companions`` are endings of files beside it whose change is a change of this one ("-wal" of SQLite).  With
    ``folder``, ``sniff`` is asked about folders, with an empty head; nothing below a folder that it takes is looked at
    by others.
    """

    folder: bool = False
    companions: tuple[str, ...] = ()

    @abstractmethod
    def read(self, path: str) -> Iterable[Item]:
        """Return all that is in it now, in order.  Raises OSError or ValueError for what cannot be read.

        The file may be in the middle of being written; what is not whole is an error, and is tried again.
        """

    def signature(self, path: str) -> object:
        """Return what is another when the content is another.  Raises OSError."""
        found = []
        for name in (path, *(path + ending for ending in self.companions)):
            try:
                status = os.stat(name)
            except FileNotFoundError:
                if name == path:
                    raise
                continue
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(found)

    def changed(self, path: str) -> float:
        """Return the wall time of the last change of what it is made of.  Raises OSError."""
        times = [os.stat(path).st_mtime]
        for ending in self.companions:
            with contextlib.suppress(OSError):
                times.append(os.stat(path + ending).st_mtime)
        return max(times)


class Scanner(Protocol):
    """Looks for something in every text, whatever its format: errors (:mod:`trainvitals.follow.errors`).

    One object per file.  Kept between blocks: what must be remembered from line to line.
    """

    @property
    def words(self) -> tuple[bytes, ...]:
        """What a line must hold, any of it, for :meth:`scan` to begin with it; the same at all times."""

    def scan(self, block: bytes, places: Sequence[int] | None = None) -> Iterable[tuple[int, Event]]:
        """Return the events in a block of complete, clean lines (UTF-8, prefixes of ranks still in place).

        ``places`` are those of all ``words`` in it, in the order of the lines, where its caller searched them.

        Each comes with its place in the block, so that it lands between the right steps; in rising order.  Its time
        is 0.0 and its step -1 unless the line says them.  A rank that the line or its prefix names belongs in
        ``fields["rank"]``.  Must be fast: this looks at every byte of every log.
        """
