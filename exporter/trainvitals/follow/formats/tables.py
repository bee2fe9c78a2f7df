"""Any CSV or TSV with a header and a column for the step: Lightning, Keras, ultralytics, and what people write.

Sources: lightning.fabric.loggers.csv_logs (a union of all columns, blanks where a row lacks one; the file is written
again when a column appears), keras.callbacks.CSVLogger (an epoch per row, from 0; ``val_`` before what belongs to the
validation), what W&B exports of a chart ("happy-run-1 - train/loss", with __MIN and __MAX), ultralytics' results.csv
(names padded with blanks; "train/box_loss", "metrics/mAP_0.5", "val/box_loss", and the rates "x/lr0" or "lr/pg0"; the
loss is the sum of its parts, which have their weights already).

A table without a column for the step counts its rows from 0, if it has a loss.

Lines before the header that begin with # are passed over; the last of them may be the header (numpy.savetxt writes its
names so).  Where cells are not parted by commas, a comma in a number stands for its point.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from trainvitals import names
from trainvitals.follow import evidence
from trainvitals.follow.base import LIKELY, NO, SURE, Facts, Item, LineFormat, LineParser, Row, Rows
from trainvitals.follow.columns import cells_of, floats, wholes
from trainvitals.follow.record import STEPS, TIMES, place_in_time
from trainvitals.follow.text import timestamp

#: Columns that number the rows, the best first; two numbers in one are no cell of a table.
_STEPS = tuple(name for name in STEPS if name != "global_step/max_steps")
_RATES = ("x/lr0", "lr/pg0", "lr-0")
_MAX_COLUMNS = 512
_MAX_COMMENTS = 64


class _Header(NamedTuple):
    """What the columns are: indices, and our names of those that hold numbers."""

    delimiter: str
    cells: tuple[str, ...]
    step: int | None
    time: int | None
    training: tuple[tuple[int, str], ...]
    results: tuple[tuple[str, tuple[tuple[int, str], ...]], ...]
    #: Parts of the loss, where it has no column of its own.
    parts: tuple[str, ...]


def _read_header(line: str) -> _Header | None:
    """Return what the columns of a header are, or None for a line that is none."""
    for delimiter in ",\t;":
        if delimiter not in line:
            continue
        cells = tuple(cell.strip() for cell in _split(line, delimiter))
        if not 2 <= len(cells) <= _MAX_COLUMNS or any(_number(cell, delimiter) is not None for cell in cells):
            continue
        header = _describe(delimiter, cells)
        has_loss = any(name == "loss" for _, name in header.training)
        if (header.training or header.results) and (header.step is not None or has_loss):
            return header
    return None


def _describe(delimiter: str, cells: tuple[str, ...]) -> _Header:
    lower = [cell.lower() for cell in cells]
    step = next((lower.index(name) for name in _STEPS if name in lower), None)
    moment = next((lower.index(name) for name in TIMES if name in lower), None)
    training: dict[str, int] = {}
    results: dict[str, dict[str, int]] = {}
    for index, cell in enumerate(cells):
        if index in {step, moment} or not cell or cell.endswith(("__MIN", "__MAX")):
            continue
        cell = cell.rpartition(" - ")[2]  # noqa: PLW2901  A chart that was exported from W&B has the run before it.
        found = names.Result("validation", cell[8:]) if cell.startswith("metrics/") else names.result(cell)
        if found is not None:
            results.setdefault(found.split, {}).setdefault(found.name, index)
        else:
            ours = "learning_rate" if lower[index] in _RATES else names.ours(cell)
            # Of two columns that we call the same ("train_loss_step" and "loss"), the later keeps the log's name.
            training.setdefault(cell if ours in training else ours, index)
    parts = tuple(name for name in training if name.startswith("train/") and name.endswith("_loss"))
    return _Header(
        delimiter=delimiter,
        cells=cells,
        step=step,
        time=moment,
        training=tuple((index, name) for name, index in training.items()),
        results=tuple((split, tuple((i, name) for name, i in columns.items())) for split, columns in results.items()),
        parts=() if "loss" in training else parts,
    )


def _split(line: str, delimiter: str) -> Sequence[str]:
    return next(csv.reader([line], delimiter=delimiter), []) if '"' in line else line.split(delimiter)


def _number(cell: str, delimiter: str) -> float | None:
    """Return the number in a cell: "0.532", and where no comma parts the cells, also "0,532" and "1.024,5"."""
    try:
        return float(cell)
    except ValueError:
        pass
    whole, comma, rest = cell.partition(",")
    if not comma or delimiter == ",":
        return None
    try:
        return float(f"{whole.replace('.', '')}.{rest}")
    except ValueError:
        return None


def _uncommented(line: str) -> str | None:
    """Return what a comment says, or None for a line that is none."""
    return line.lstrip("# \t") if line.lstrip(" \t\ufeff").startswith("#") else None


def _is_of_training(header: _Header, rows: Sequence[Sequence[str]]) -> bool:
    columns = [*header.training, *(column for _, found in header.results for column in found)]
    known = [index for index, _ in columns if evidence.is_known(header.cells[index])]
    mark = header.delimiter
    if known and (not rows or any(_number(row[index], mark) is not None for row in rows for index in known)):
        return True
    if header.step is None:
        return False
    steps = [step for row in rows if (step := _number(row[header.step], mark)) is not None]
    cells = [row[index] for row in rows for index, _ in columns]
    beside = [cell for cell in cells if cell.strip() and _number(cell, mark) is None]
    return evidence.counts_steps(header.cells[header.step], steps, beside)


class _Parser:
    def __init__(self) -> None:
        self._header: _Header | None = None
        self._rows = 0
        #: For tables of nothing but a step and numbers of the training: what takes these out of a row's cells.
        self._fast: Callable[[Any], Any] | None = None
        self._names: tuple[str, ...] = ()
        self._delimiter, self._width, self._step = "", 0, 0
        #: A header in a comment, until the line behind it shows whether it is one.
        self._offered: _Header | None = None
        self._has_commas = False

    def feed(self, line: str) -> Iterable[Item]:
        if self._fast is not None:
            plain = line.split(self._delimiter)
            if len(plain) == self._width:
                try:
                    values = dict(zip(self._names, map(float, self._fast(plain)), strict=False))
                    return (Row(int(plain[self._step]), values),)
                except ValueError:
                    pass  # A blank, as a rule.
        header = self._header
        if header is None:
            return self._look_for_header(line)
        cells = _split(line, header.delimiter)
        if len(cells) != len(header.cells):
            return self._again(line)
        try:
            number = float(self._rows) if header.step is None else _number(cells[header.step], header.delimiter)
            step = int(math.nan if number is None else number)
        except (ValueError, OverflowError):
            return self._again(line)
        self._has_commas = self._has_commas or (header.delimiter != "," and "," in line)
        rows = self._rows_of(header, step, cells)
        self._rows += bool(rows)
        return rows

    def batch(self, lines: list[str]) -> Sequence[Rows] | None:
        """Return the rows of lines of a table of nothing but a step and numbers; ValueError for a blank."""
        if self._fast is None:
            return None
        if self._has_commas:
            lines = [line.replace(",", ".") for line in lines]
        return self._usual(lines, self._fast) or self._any(lines, self._fast)

    def _usual(self, lines: list[str], pick: Callable[[Any], Any]) -> Sequence[Rows] | None:
        """Return the rows of lines whose numbers are written as in JSON: that is faster."""
        columns = cells_of(lines, self._delimiter, self._width)
        steps = None if columns is None else wholes(columns[self._step])
        if columns is None or steps is None:
            return None
        values = floats(dict(zip(self._names, pick(columns), strict=False)))
        return None if values is None else (Rows(steps, values),)

    def _any(self, lines: list[str], pick: Callable[[Any], Any]) -> Sequence[Rows] | None:
        cells = [line.split(self._delimiter) for line in lines]
        if set(map(len, cells)) != {self._width}:
            return None
        columns = list(zip(*cells, strict=True))
        values = [list(map(float, column)) for column in pick(columns)]
        return (Rows(list(map(int, columns[self._step])), dict(zip(self._names, values, strict=False))),)

    def _look_for_header(self, line: str) -> Iterable[Item]:
        said = _uncommented(line)
        if said is not None:
            self._offered = _read_header(said)
            return ()
        header, offered = _read_header(line), self._offered
        if header is not None or offered is None or len(_split(line, offered.delimiter)) != len(offered.cells):
            return self._begin(header)
        return (*self._begin(offered), *self.feed(line))

    def _again(self, line: str) -> Iterable[Item]:
        """Take a line that is no row: a header again, of runs that were written one behind the other."""
        said = _uncommented(line)
        header = _read_header(line if said is None else said)
        if header is None or (said is not None and header != self._header):
            return ()
        return (Facts(started=0.0), *self._begin(header))

    def _begin(self, header: _Header | None) -> Iterable[Item]:
        self._header, self._rows = header, 0
        if header is None:
            return ()
        is_plain = not header.results and not header.parts and header.time is None
        self._fast = None
        if is_plain and len(header.training) > 1 and header.step is not None:
            self._fast = itemgetter(*(index for index, _ in header.training))
            self._names = tuple(name for _, name in header.training)
            self._delimiter, self._width, self._step = header.delimiter, len(header.cells), header.step
        if any(cell.startswith("metrics/mAP") for cell in header.cells):
            return (Facts(framework="ultralytics"),)
        return ()

    def _rows_of(self, header: _Header, step: int, cells: Sequence[str]) -> tuple[Row, ...]:
        training = _numbers(cells, header.training, header.delimiter)
        if header.parts and all(part in training for part in header.parts):
            training["loss"] = math.fsum(training[part] for part in header.parts)
        moment = None
        if header.time is not None:
            moment, elapsed = _time(cells[header.time], header.delimiter)
            if elapsed is not None:
                training["elapsed_seconds"] = elapsed
        rows = []
        if training.keys() - {"epoch", "elapsed_seconds"}:
            rows.append(Row(step, training, moment))
        for split, columns in header.results:
            if values := _numbers(cells, columns, header.delimiter):
                rows.append(Row(step, values, moment, split=split))
        return tuple(rows)


def _numbers(cells: Sequence[str], columns: Iterable[tuple[int, str]], delimiter: str) -> dict[str, float]:
    values = {}
    for index, name in columns:
        if cell := cells[index]:
            try:
                values[name] = float(cell)
            except ValueError:
                if "," in cell and (number := _number(cell, delimiter)) is not None:
                    values[name] = number
    return values


def _time(cell: str, delimiter: str) -> tuple[float | None, float | None]:
    """Return wall time, or seconds since the start."""
    number = _number(cell, delimiter)
    return (timestamp(cell), None) if number is None else place_in_time(number)


def _begin_of(head: bytes) -> tuple[_Header | None, list[str]]:
    """Return the header of a table, if this begins with one, and the lines behind it."""
    text = head.lstrip(b"\xef\xbb\xbf\r\n").split(b"\n", _MAX_COMMENTS + 21)
    lines = [line.decode("utf-8", "replace") for line in text]
    said = [_uncommented(line) for line in lines]
    comments = said.index(None) if None in said else len(lines)
    header = _read_header(lines[comments]) if comments < len(lines) else None
    if header is not None:
        return header, lines[comments + 1 : comments + 22]
    last = said[comments - 1] if comments else None
    return (None if last is None else _read_header(last)), lines[comments : comments + 21]


class Table(LineFormat):
    """See the module."""

    name = "table"
    prefixed = False
    head_lines = 1
    rewritten = True

    def sniff(self, head: bytes, path: str) -> int:
        """Return how sure it is; see :class:`Format`."""
        header, lines = _begin_of(head)
        if header is None:
            return NO
        whole = lines[:-1] if len(lines) > 1 else lines
        rows = [_split(line.rstrip("\r"), header.delimiter) for line in whole]
        rows = [row for row in rows if len(row) == len(header.cells)]
        if not _is_of_training(header, rows):
            return NO
        if any(_number(cell, header.delimiter) is not None for row in rows[:1] for cell in row):
            return SURE
        return LIKELY if os.path.splitext(path)[1].lower() in {".csv", ".tsv"} else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
