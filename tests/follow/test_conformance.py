"""What every format promises, checked on the fixtures of each row of the table.

The fixtures of a format are the files in tests/fixtures/logs/NAME (with names that begin with a dot left out); where
it reads folders, the folders in it.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.follow.helpers import LOGS, format_of, items_of, items_of_pieces

from trainvitals.follow.base import BlockFormat, Facts, FileFormat, LineFormat, Row
from trainvitals.follow.formats import FORMATS, choose
from trainvitals.telemetry import Event

EVERY = pytest.mark.parametrize("log_format", FORMATS, ids=lambda log_format: log_format.name)


def fixtures(log_format):
    """Return the fixtures of a format."""
    folder = LOGS / log_format.name
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return [path for path in found if not path.name.endswith(getattr(log_format, "companions", ()) or "\0")]


def bare(items):
    """Return items in a form in which NaN equals NaN."""
    return [repr(item) for item in items]


def test_names_are_unique():
    """A name stands for one format in the settings."""
    names = [log_format.name for log_format in FORMATS]

    assert len(set(names)) == len(names)


@EVERY
def test_there_are_fixtures(log_format):
    """Every format has at least one file that it reads."""
    assert fixtures(log_format)


@EVERY
def test_found_by_content_among_all(log_format, tmp_path):
    """The content decides: the format is found whatever the file is called."""
    for path in fixtures(log_format):
        assert format_of(path) is log_format, path
        if path.is_file() and not getattr(log_format, "companions", ()):
            odd = tmp_path / "file"
            odd.write_bytes(path.read_bytes())
            assert format_of(odd) is log_format, path


@EVERY
def test_says_something_sensible(log_format):
    """Each fixture has rows; names are short words, numbers are floats, steps are whole numbers and not negative."""
    for path in fixtures(log_format):
        items = items_of(path)
        rows = [item for item in items if isinstance(item, Row)]
        assert rows, path
        for row in rows:
            assert row.step is None or (isinstance(row.step, int) and row.step >= 0), row
            assert row.values, row
            assert all(isinstance(name, str) and 0 < len(name) <= 200 for name in row.values), row
            assert all(type(value) is float for value in row.values.values()), row
            assert row.time is None or 1e9 < row.time < 1e11, row
        for item in items:
            assert isinstance(item, (Row, Facts, Event)), item
            if isinstance(item, Event) and item.kind == "checkpoint":
                assert item.fields["action"] in {"save", "load"}
                assert isinstance(item.fields["ok"], bool)


@EVERY
def test_cut_anywhere_gives_the_same_items(log_format):
    """A file that comes in two pieces, cut at any byte, says the same as in one."""
    if isinstance(log_format, FileFormat):
        pytest.skip("is read as a whole")
    for path in fixtures(log_format):
        data = path.read_bytes()
        whole = bare(items_of_pieces(log_format, [data]))
        cuts = range(len(data)) if len(data) <= 1500 else random.Random(5).sample(range(len(data)), 700)
        for cut in cuts:
            assert bare(items_of_pieces(log_format, [data[:cut], data[cut:]])) == whole, (path, cut)
        if len(data) <= 20000:
            assert bare(items_of_pieces(log_format, (data[i : i + 1] for i in range(len(data))))) == whole, path


@EVERY
def test_damage_raises_nothing(log_format, tmp_path):
    """Random bytes in a file, and a file that ends anywhere, cost lines and raise nothing that stops a reader."""
    chance = random.Random(7)
    for path in fixtures(log_format):
        if path.is_dir():
            continue
        data = path.read_bytes()
        for _ in range(60):
            damaged = bytearray(data[: chance.randrange(len(data) + 1)])
            for _ in range(chance.randrange(1, 20)):
                at = chance.randrange(len(damaged) + 1)
                damaged[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
            check_survives(log_format, bytes(damaged), tmp_path)
    for size in (0, 1, 100, 5000):
        check_survives(log_format, chance.randbytes(size), tmp_path)


def check_survives(log_format, data, tmp_path):
    """Sniff and read; what is read of a damaged file may only raise what the contract names."""
    choose(data, "some.log")
    if isinstance(log_format, LineFormat):
        items_of_pieces(log_format, [data])
    elif isinstance(log_format, BlockFormat):
        parser = log_format.parser()
        try:
            for start in range(0, len(data), 97):
                list(parser.feed(data[start : start + 97]))
        except ValueError:
            return
    else:
        path = Path(tmp_path) / "damaged"
        path.write_bytes(data)
        try:
            list(log_format.read(str(path)))
        except (OSError, ValueError):
            return
