"""The data file beside a rank file: what one side writes the other reads, and what is damaged costs itself."""

from __future__ import annotations

import os
import struct
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals import rankfile
from trainvitals.rankfile import ledger

ENTRY = 24 + 1024 + 4 + 4


@pytest.fixture
def path(spool):
    """Where the file will be."""
    return ledger.path_of_data(str(spool / "test.0.abc.rank"))


@pytest.fixture
def writer(path):
    """The rank's side."""
    return ledger.LedgerWriter(path)


def read(path):
    """Return a reader of our own file."""
    return ledger.LedgerReader(path, os.getuid())


@pytest.mark.usefixtures("writer")
def test_it_lies_beside_the_rank_file(path):
    """Under the same name with another ending, of a fixed size that is taken at once."""
    assert path.endswith("test.0.abc.data")
    assert os.stat(path).st_size == 4096 + 512 * ENTRY
    assert os.stat(path).st_blocks * 512 >= os.stat(path).st_size


def test_counters_are_published_as_a_whole(path, writer):
    """What was written last is what is read."""
    writer.batches, writer.samples, writer.bytes, writer.errors = 3, 24, 7000, 1
    writer.write_state()
    writer.batches = 4
    writer.write_state()

    assert read(path).counters() == ledger.DataCounters(4, 24, 7000, 1)


@pytest.mark.parametrize(
    "names",
    [
        ("/data/train/a.jpg", "/data/train/b.jpg"),
        ("/data/train/n1/a.jpg", "/data/val/n2/b.jpg"),
        ("a.jpg",),
        ("/a", "/b"),
        ("", "x"),
        ("http://x/shard-1.tar", "0001/7", "0001/8"),
        ("数据/一.jpg", "数据/二.jpg"),
        (0, 1, 2**32 - 1),
        (-1, 2**40),
        (2**80, 1),
    ],
)
def test_names_come_back(path, writer, names):
    """Texts and whole numbers; a number beyond 64 bits as a text."""
    writer.add(7, names, 9)

    (batch,) = read(path).batches({7})
    expected = names if max((n for n in names if isinstance(n, int)), default=0) < 2**63 else tuple(map(str, names))
    assert batch == ledger.Batch(7, expected, 9)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=300))
def test_texts_are_cut_between_names_only(path, writer, names):
    """What is read is the beginning of what was given, name for name."""
    writer.add(1, names, len(names))

    found = read(path).batches({1})[-1].names
    assert list(found) == names[: len(found)]
    assert len(found) == min(len(names), 128) or len("\0".join(names).encode()) > 900


def test_256_indices_fit(path, writer):
    """The usual batch of a map-style data set is written as a whole."""
    writer.add(1, list(range(100_000, 100_256)), 256)

    assert read(path).batches({1})[0].names == tuple(range(100_000, 100_256))


def test_what_is_no_name_is_called_by_its_type(path, writer):
    """The text of a tensor would wait for its device."""
    writer.add(1, ["a", object()], 2)

    assert read(path).batches({1})[0].names == ("a", "object")


def test_the_last_512_batches_are_kept(path, writer):
    """Older ones are written over."""
    for number in range(600):
        writer.add(number, [number], 1)

    assert [batch.names for batch in read(path).batches(range(600))] == [(n,) for n in range(88, 600)]


def test_batches_of_one_step_come_in_order(path, writer):
    """A step of several micro-batches has several entries, also where the ring begins anew between them."""
    for number in range(511):
        writer.add(0, [number], 1)
    writer.add(5, ["first"], 1)
    writer.add(5, ["second"], 1)

    assert [batch.names for batch in read(path).batches({5})] == [("first",), ("second",)]


def test_errors_of_workers_are_added(path, writer):
    """A worker has a slot of its own, found by its process id."""
    writer.errors = 2
    writer.write_state()
    for _ in range(3):
        ledger.count_worker_error(path)

    assert read(path).counters().errors == 5


def test_a_worker_may_come_first(path):
    """It makes the file; the rank that follows takes it as it is."""
    ledger.count_worker_error(path)
    assert read(path).counters() == ledger.DataCounters(0, 0, 0, 1)

    writer = ledger.LedgerWriter(path)
    writer.batches = 1
    writer.write_state()

    assert read(path).counters() == ledger.DataCounters(1, 0, 0, 1)
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_a_folder_that_is_not_there_is_an_error_of_the_writer(tmp_path):
    """And nothing is left."""
    with pytest.raises(OSError, match="No such file"):
        ledger.LedgerWriter(str(tmp_path / "missing" / "x.data"))


def test_a_foreign_file_is_not_written_to(path):
    """One of another size is none of ours."""
    with open(path, "wb") as file:
        file.write(b"x" * 100)

    with pytest.raises(OSError, match="not a data file"):
        ledger.LedgerWriter(path)
    ledger.count_worker_error(path)
    with open(path, "rb") as file:
        assert file.read() == b"x" * 100


def test_a_link_is_not_followed(path, tmp_path):
    """Neither side opens what a link names."""
    ledger.make(str(tmp_path / "target"))
    os.symlink(tmp_path / "target", path)

    for call in (lambda: ledger.LedgerWriter(path), lambda: ledger.count_worker_error(path), lambda: read(path)):
        with pytest.raises(OSError, match="symbolic"):
            call()


@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file: file.truncate(5000), "size"),
        (lambda file: file.truncate(0), "size"),
        (lambda file: file.write(b"OTHER"), "header"),
        (lambda file: file.seek(9) and file.write(b"\7"), "header"),
    ],
)
def test_a_damaged_file_is_refused_with_a_reason(path, damage, reason):
    """Cut, or of another format."""
    with open(path, "r+b") as file:
        damage(file)

    with pytest.raises(rankfile.RankFileError) as error:
        read(path)
    assert error.value.reason == reason


@pytest.mark.usefixtures("writer")
def test_another_users_file_is_refused(path):
    """The owner of the rank file must own it."""
    with pytest.raises(rankfile.RankFileError) as error:
        ledger.LedgerReader(path, os.getuid() + 1)
    assert error.value.reason == "owner"


def test_a_pipe_is_refused_without_waiting(path):
    """Opening one would wait for its writer."""
    os.mkfifo(path)

    with pytest.raises(rankfile.RankFileError) as error:
        read(path)
    assert error.value.reason == "not_regular"


def test_what_does_not_check_costs_itself(path, writer):
    """A torn entry, a torn slot of a worker, a torn state."""
    writer.add(1, ["good"], 1)
    writer.add(2, ["bad"], 1)
    writer.batches = 5
    writer.write_state()
    ledger.count_worker_error(path)
    with open(path, "r+b") as file:
        file.seek(4096 + 2 * ENTRY + 24)
        file.write(b"x")
        file.seek(512 + os.getpid() % 128 * 16)
        file.write(b"\xff")
        file.seek(64 + 8)
        file.write(b"\xff")

    reader = read(path)
    assert [batch.names for batch in reader.batches({1, 2})] == [("good",)]
    assert reader.counters() == ledger.DataCounters(0, 0, 0, 0)


@pytest.mark.usefixtures("writer")
def test_numbers_beyond_reason_are_bounded(path):
    """A valid checksum over nonsense: a length beyond the entry, counters near 2^64, an unknown kind."""
    largest = 2**64 - 1
    with open(path, "r+b") as file:
        body = struct.pack("<QQQQQ", largest, largest, largest, largest, largest)
        file.seek(64)
        file.write(body + struct.pack("<I", zlib.crc32(body)))
        file.seek(4096)
        file.write(struct.pack("<QQIHBx", 512, 1, 1, 60_000, 0))
        body = struct.pack("<QQIHBx", 513, 1, 1, 3, 9) + b"a\xffb"
        file.seek(4096 + ENTRY)
        file.write(body + struct.pack("<I", zlib.crc32(body)))

    reader = read(path)
    assert reader.counters() == ledger.DataCounters(1 << 62, 1 << 62, 1 << 62, 1 << 62)
    assert [batch.names for batch in reader.batches({1})] == [()]
