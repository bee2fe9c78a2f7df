"""The table of ``npu-smi info``: one chip in two rows, and the processes below.

Columns are found by their names: their widths, their number and their order differ between versions (21 to 26 were
seen).  Within a cell, values belong to columns by their order, or by where they begin when one of them is empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_VERSION = re.compile(r"\|\s*npu-smi\s+\S+\s+Version:\s*(\S+)", re.IGNORECASE)
#: ``12 / 34`` and ``12/ 34`` are one value.
_WORD = re.compile(r"\S+ +/ +\S+|\d+ */ *\d+|\S+")
_NUMBER = re.compile(r"[0-9]{1,4}")
#: Characters by which a value may begin beside its column.
_BESIDE = 3
#: Chips and processes beyond are no table of a machine that exists.
_MOST = 256
_MOST_PROCESSES = 1024


class NotNpuSmiError(ValueError):
    """This is no answer of npu-smi: another program has its name."""


@dataclass(frozen=True)
class Chip:
    """One chip.  ``index`` is its number on the machine; ``cells`` are the texts by the names of their columns."""

    npu: int
    chip: int
    index: int
    name: str
    pci_bus_id: str
    cells: dict[str, str]


@dataclass
class Table:
    """What the table holds; ``unread`` counts the rows that were not understood.

    ``processes`` are the pid and the memory, as text in MiB, by number of NPU and chip; None where there is no table of
    them.
    """

    version: str
    chips: list[Chip] = field(default_factory=list)
    processes: dict[tuple[int, int], list[tuple[int, str]]] | None = None
    unread: int = 0


#: Names of columns and where each begins, for one cell of a row.
_Columns = Sequence[tuple[str, int]]


def parse(text: str) -> Table:
    """Return the table.  Raises NotNpuSmiError when it is none."""
    version = _VERSION.search(text)
    if version is None:
        raise NotNpuSmiError("no table of npu-smi")
    table = Table(version[1][:64])
    first: list[_Columns] = []
    second: list[_Columns] = []
    upper: list[str] = []
    for line in text[version.end() :].splitlines()[1:]:
        row = line.strip()
        if not row.startswith("|"):
            # A line between chips; the half of one that stands before it has lost its other half.
            table.unread += bool(upper)
            upper = []
            continue
        cells = row.strip("|").split("|")
        word = cells[0].split()[:1]
        if word == ["NPU"]:
            if len(cells) > 1 and "process" in cells[1].lower():
                table.processes = table.processes or {}
            first, second, upper = [*map(_columns, cells)], [], []
        elif word == ["Chip"]:
            second = [*map(_columns, cells)]
        elif table.processes is not None:
            _process(table, cells)
        elif not upper:
            upper = cells
        else:
            _chip(table, _row(first, upper), _row(second, cells))
            upper = []
    table.unread += bool(upper)
    return table


def _columns(cell: str) -> _Columns:
    return [(match[0].split("(")[0].lower(), match.start()) for match in re.finditer(r"\S+", cell)]


def _row(header: Sequence[_Columns], cells: Sequence[str]) -> dict[str, str] | None:
    """Return the texts of a row by the names of their columns; None when it does not fit its header."""
    if not header or len(header) != len(cells):
        return None
    texts: dict[str, str] = {}
    for columns, cell in zip(header, cells, strict=True):
        words = [(match[0], match.start()) for match in _WORD.finditer(cell)]
        if len(words) == len(columns):
            texts |= {name: text for (name, _), (text, _) in zip(columns, words, strict=True)}
        else:
            texts |= _by_place(columns, words)
    return texts


def _by_place(columns: _Columns, words: Sequence[tuple[str, int]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for text, begin in words:
        names = [name for name, place in columns if abs(place - begin) <= _BESIDE]
        if len(names) == 1 and names[0] not in texts:
            texts[names[0]] = text
        elif columns and columns[-1][0] == "name" and "name" in texts:
            # A name of several words.
            texts["name"] += f" {text}"
    return texts


def _chip(table: Table, upper: dict[str, str] | None, lower: dict[str, str] | None) -> None:
    cells = {**(upper or {}), **(lower or {})}
    npu, chip = _number(cells.get("npu")), _number(cells.get("chip"))
    if upper is None or lower is None or npu is None or chip is None or len(table.chips) >= _MOST:
        table.unread += 1
        return
    told = _number(cells.get("phy-id") or cells.get("device"))
    index = npu if told is None else told
    if any(one.index == index for one in table.chips):
        table.unread += 1
        return
    table.chips.append(Chip(npu, chip, index, cells.get("name", ""), cells.get("bus-id", ""), cells))


def _process(table: Table, cells: Sequence[str]) -> None:
    if len(cells) == 1:
        # "No running processes found in NPU 3"
        return
    numbers = [_number(word) for word in cells[0].split()]
    pid = cells[1].strip()
    known = 0 if table.processes is None else sum(map(len, table.processes.values()))
    if (
        len(numbers) not in {1, 2}
        or None in numbers
        or not re.fullmatch(r"[0-9]{1,10}", pid)
        or known >= _MOST_PROCESSES
    ):
        table.unread += 1
        return
    npu, chip = (*numbers, 0)[:2]
    if table.processes is not None and npu is not None and chip is not None:
        table.processes.setdefault((npu, chip), []).append((int(pid), cells[-1].strip()))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
