"""The rank file: its layout, what a reader makes of it, and a reader beside a writer."""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import pytest
from tests.held import held, new_since
from tests.helpers import trainer, trainer_environment, wait_until

from trainvitals import rankfile

IDENTITY = {"run": "test", "rank": 3}
PID_NAMESPACE = ["unshare", *([] if os.getuid() == 0 else ["--map-root-user"]), "--pid", "--fork"]


@pytest.fixture
def path(spool):
    """Where the rank file of the test is."""
    return str(spool / "test.3.rank")


@pytest.fixture
def writer(path):
    """A writer in this process; its lock means nothing here."""
    writer = rankfile.Writer(path, dict(IDENTITY))
    yield writer
    writer.close()


def write(writer, sequence, values=None, *, step=None):
    """Write a record that says in every field which one it is."""
    number = sequence * 10 if step is None else step
    writer.write_record(sequence, sequence, number, float(sequence), {0: float(sequence)} if values is None else values)


def read(path, after=0):
    """Open, read all records and close."""
    reader = rankfile.Reader(path)
    try:
        return reader.read_records(after)
    finally:
        reader.close()


def patch(path, offset, data):
    """Overwrite some bytes of a file."""
    descriptor = os.open(path, os.O_RDWR)
    os.pwrite(descriptor, data, offset)
    os.close(descriptor)


# The layout ---------------------------------------------------------------------------------------------------------


def test_the_file_is_laid_out_as_version_2_says(path, writer):
    """Every offset is written out here: whoever changes one must raise the version."""
    writer.names.append("loss")
    writer.write_text()
    writer.state.step, writer.state.samples = 70, 2.5
    writer.write_state()
    writer.write_record(1, 1, 70, 12.5, {0: 0.25})
    data = Path(path).read_bytes()

    assert len(data) == 738_304
    magic, version, *sizes = struct.unpack_from("<8sIIQIIIIIIII", data, 0)
    assert (magic, version) == (b"TVITALS\x02", 2)
    assert sizes == [128, 738_304, 128, 384, 1024, 8192, 17_408, 4096, 176, 16]
    assert data[56:92].decode() == rankfile.boot_id()
    started_monotonic, started_wall, checksum = struct.unpack_from("<ddI", data, 92)
    assert 0.0 < started_monotonic < started_wall
    assert checksum == zlib.crc32(data[:108])

    # The second state went to slot 0, the first one is in slot 1.
    state = struct.unpack_from("<QIIddQqQddQQQQ16dI", data, 128)
    assert state[:3] == (2, 0, 1)
    assert state[5:14] == (0, 70, 0, 2.5, 0.0, 0, 0, 0, 0)
    assert state[-1] == zlib.crc32(data[128 : 128 + 232])
    assert struct.unpack_from("<Q", data, 512) == (1,)

    sequence, length, checksum = struct.unpack_from("<QII", data, 1024)
    text = data[1040 : 1040 + length]
    assert (sequence, checksum) == (2, zlib.crc32(text))
    assert json.loads(text) == {"identity": {"run": "test", "rank": 3}, "names": ["loss"]}
    assert struct.unpack_from("<Q", data, 9216) == (1,)

    record = struct.unpack_from("<QQqdQ16dd", data, 17_408 + 176)
    assert record[:6] == (1, 1, 70, 12.5, 1, 0.25)
    assert record[6:21] == (0.0,) * 15
    assert record[21] == 12.5 + (1 + 1 + 70 + 1) + 0.25
    assert data[112:128] == bytes(16)


def test_phases_keep_their_numbers():
    """The index of a phase is what a file stores: the table may only grow at its end."""
    assert rankfile.PHASES[:10] == (
        "other",
        "init",
        "train",
        "data",
        "forward",
        "backward",
        "optimizer",
        "communication",
        "checkpoint",
        "evaluation",
    )
    assert len(rankfile.PHASES) <= 16


def test_nothing_is_left_behind_where_the_file_cannot_be_made(tmp_path, monkeypatch):
    """A full spool fails cleanly: no half file, no descriptor."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = held()

    with pytest.raises(OSError, match="No space"):
        rankfile.Writer(str(tmp_path / "a.rank"), {})

    assert os.listdir(tmp_path) == []
    assert new_since(before) == []


@pytest.mark.usefixtures("writer")
def test_every_byte_is_allocated_at_the_start(path):
    """A sparse file would be a SIGBUS once the tmpfs is full."""
    assert os.stat(path).st_blocks * 512 >= 738_304


# Round trip ---------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read(path, writer):
    """Identity, names, state and records come back as they were."""
    writer.names += ["loss", "grad_norm"]
    writer.write_text()
    writer.state = rankfile.State(
        flags=5, phase=3, phase_since=1.5, heartbeat=2.5, count=7, step=-9, records=8, samples=1e9, tokens=2e12,
        skipped=1, nonfinite=2, errors=3, dropped=4, phase_seconds=[float(index) for index in range(16)],
    )  # fmt: skip
    writer.write_state()
    writer.write_record(1, 7, -9, 2.5, {0: float("inf"), 1: -0.5})
    reader = rankfile.Reader(path)

    assert reader.read_text() == ({"run": "test", "rank": 3}, ["loss", "grad_norm"])
    assert reader.read_state() == writer.state
    assert reader.read_records(0) == ([rankfile.Record(1, 7, -9, 2.5, {0: float("inf"), 1: -0.5})], 0)
    assert reader.header.boot_id == rankfile.boot_id()
    assert reader.owner == os.getuid()
    reader.close()


def test_the_newer_of_two_slots_counts(path, writer):
    """State and text alternate; a torn newer one leaves the older."""
    writer.state.step = 1
    writer.write_state()
    writer.state.step = 2
    writer.write_state()  # sequence 3, slot 1
    writer.names.append("loss")
    writer.write_text()  # sequence 2, slot 0
    reader = rankfile.Reader(path)
    assert reader.read_state().step == 2

    patch(path, 512 + 40, b"torn")
    patch(path, 1024 + 20, b"torn")

    assert reader.read_state().step == 1
    assert reader.read_text()[1] == []
    reader.close()


@pytest.mark.parametrize(
    "values", [{0: float("nan")}, {0: float("inf"), 1: 2.0}, {0: -1e308, 1: -1e308, 2: -5e307}, {}]
)
def test_values_that_have_no_sum_are_kept(path, writer, values):
    """A number that is none, an infinity, or a sum beyond the largest number: the record counts like any other."""
    write(writer, 1, values, step=2**62)
    write(writer, 2)

    records, invalid = read(path)

    assert [repr(record.values) for record in records] == [repr(values), "{0: 2.0}"]
    assert invalid == 0


@pytest.mark.parametrize(("count", "step"), [(0, -2), (2, -4)])
def test_a_slot_that_is_cleared_and_not_yet_filled_is_no_record(path, writer, count, step):
    """The words that are there may add up to 0, which is what stands where the check will be."""
    write(writer, 1)
    patch(path, 17408 + 2 * 176, struct.pack("<QQq", 2, count, step))

    assert read(path) == ([rankfile.Record(1, 1, 10, 1.0, {0: 1.0})], 0)
    assert read(path, after=1) == ([], 0)


def state_while_waiting(path, since, *, phase=2):
    """Return the state of a file that was in a phase since 10.0, and in a wait since ``since``."""
    writer = rankfile.Writer(path, dict(IDENTITY))
    writer.state.phase, writer.state.phase_since, writer.state.heartbeat = phase, 10.0, 11.0
    writer.write_state()
    patch(path, 112, struct.pack("<d", since))
    reader = rankfile.Reader(path)
    state = reader.read_state()
    reader.close()
    writer.close()
    return state


def test_a_wait_that_has_begun_is_the_current_phase(path):
    """The word tells since when; the phase around it ends there."""
    state = state_while_waiting(path, 10.25)

    assert (rankfile.PHASES[state.phase], state.phase_since) == ("data", 10.25)
    assert state.phase_seconds[:4] == [0.0, 0.0, 0.25, 0.0]


@pytest.mark.parametrize("since", [0.0, -1.0, 9.5, float("nan"), float("-inf")])
def test_a_wait_that_is_over_or_makes_no_sense_is_none(path, since):
    """None has begun, or before the phase around it: the state is what counts."""
    state = state_while_waiting(path, since)

    assert (rankfile.PHASES[state.phase], state.phase_since) == ("train", 10.0)
    assert state.phase_seconds == [0.0] * 16


def test_a_wait_in_a_phase_beyond_the_table_is_none(path):
    """A number that has no phase has no seconds."""
    assert state_while_waiting(path, 10.25, phase=16).phase == 16


def test_a_long_identity_leaves_room_for_names(path):
    """An identity that does not fit is cut to what tells the ranks apart, and never runs into the ring."""
    identity = {"run": "r" * 5000, "rank": 7, "attempt": 2, "world_size": 8, "note": "x" * 10_000}
    writer = rankfile.Writer(path, identity)
    writer.write_record(1, 1, 1, 1.0, {})
    writer.names += [f"{index:064d}" for index in range(64)]
    reader = rankfile.Reader(path)

    assert writer.write_text() is True
    found, names = reader.read_text()
    assert found == {"run": "r" * 64, "attempt": 2, "rank": 7, "world_size": 8}
    assert names == writer.names
    assert reader.read_records(0) == ([rankfile.Record(1, 1, 1, 1.0, {})], 0)
    reader.close()
    writer.close()


def test_names_that_do_not_fit_change_nothing(path, writer):
    """64 names of 64 characters outside ASCII are longer than their area: the text before stays."""
    writer.names.append("loss")
    writer.write_text()
    writer.names += ["数" * 64] * 63

    assert writer.write_text() is False

    reader = rankfile.Reader(path)
    assert reader.read_text()[1] == ["loss"]
    assert reader.read_records(0) == ([], 0)
    reader.close()


# The ring -----------------------------------------------------------------------------------------------------------


def test_records_are_read_once_and_in_order(path, writer):
    """A reader goes on where it stopped, over the end of the ring and around."""
    seen: list[int] = []
    position = 0
    reader = rankfile.Reader(path)
    for sequence in range(1, 10_001):
        write(writer, sequence)
        if sequence % 997 == 0 or sequence in (1, 4095, 4096, 4097, 10_000):
            records, invalid = reader.read_records(position)
            assert invalid == 0
            assert all(record.step == record.sequence * 10 for record in records)
            seen += [record.sequence for record in records]
            position = seen[-1]
            assert reader.read_records(position) == ([], 0)
    reader.close()

    assert seen == list(range(1, 10_001))


def test_an_overrun_ring_gives_what_is_left(path, writer):
    """Of 10,000 records between two polls the last 4,096 are there; the others are neither read nor invalid."""
    write(writer, 1)
    reader = rankfile.Reader(path)
    assert [record.sequence for record in reader.read_records(0)[0]] == [1]

    for sequence in range(2, 10_001):
        write(writer, sequence)
    records, invalid = reader.read_records(1)
    reader.close()

    assert [record.sequence for record in records] == list(range(5905, 10_001))
    assert invalid == 0


@pytest.mark.parametrize("first_poll", [True, False])
@pytest.mark.parametrize(
    ("place", "damage"),
    [
        (0, b"\xff" * 8),
        (0, b"\0" * 176),
        (0, b"\x07"),
        (0, struct.pack("<Q", 50)),
        (8, b"\xff"),
        (40, struct.pack("<d", 7.0)),
        (16, struct.pack("<q", 77)),
        (24, struct.pack("<d", 7.0)),
        (32, b"\3"),
        (40, struct.pack("<d", float("nan"))),
        (168, b"\1"),
        (168, struct.pack("<d", float("nan"))),
        (168, struct.pack("<d", float("inf"))),
    ],
)
def test_a_damaged_record_costs_itself(path, writer, place, damage, first_poll):
    """Those before and behind it are read, and it is counted as invalid."""
    reader = rankfile.Reader(path)
    position = 0
    if not first_poll:
        write(writer, 1)
        position = reader.read_records(0)[0][-1].sequence
    for sequence in range(position + 1, 101):
        write(writer, sequence)
    patch(path, 17_408 + 40 * 176 + place, damage)

    records, invalid = reader.read_records(position)
    reader.close()

    assert [record.sequence for record in records] == [n for n in range(position + 1, 101) if n != 40]
    assert invalid == 1


@pytest.mark.parametrize("first_poll", [True, False])
@pytest.mark.parametrize(
    "hidden", [*itertools.product(["torn", "old", "never written"], [(40, 41), (30, 60), (1, 100)])]
)
def test_what_was_written_while_it_was_read_is_read_again(path, writer, monkeypatch, hidden, first_poll):
    """A reader that was interrupted saw some slots as they were before; it must not take them for lost."""
    content, slots = hidden
    write(writer, 1)
    reader = rankfile.Reader(path)
    position = 0 if first_poll else reader.read_records(0)[0][-1].sequence
    for sequence in range(2, 101):
        write(writer, sequence)
    read, calls = rankfile.Reader._read, []

    def interrupted(self, offset, size):
        data = bytearray(read(self, offset, size))
        if offset >= 17_408 and not calls:
            calls.append(offset)
            for slot in range(*slots):
                place = 17_408 + 176 * slot - offset
                if 0 <= place < len(data):
                    old = {"torn": data[place : place + 90], "old": bytes(8), "never written": bytes(176)}[content]
                    data[place : place + 176] = old.ljust(176, b"\0")
        return bytes(data)

    monkeypatch.setattr(rankfile.Reader, "_read", interrupted)
    seen = []
    for _ in range(3):
        records, invalid = reader.read_records(position)
        assert invalid == 0
        seen += [record.sequence for record in records]
        position = seen[-1] if seen else position
    reader.close()

    assert calls
    assert seen == list(range(1 if first_poll else 2, 101))


def test_many_damaged_records_in_a_row_do_not_end_the_reading(path, writer):
    """What lies behind a damaged stretch is found."""
    write(writer, 1)
    reader = rankfile.Reader(path)
    reader.read_records(0)
    for sequence in range(2, 301):
        write(writer, sequence)
    patch(path, 17_408 + 20 * 176, b"\xaa" * (176 * 100))

    records, invalid = reader.read_records(1)
    reader.close()

    assert [record.sequence for record in records] == [*range(2, 20), *range(120, 301)]
    assert invalid == 100


def test_a_record_that_is_being_written_is_found_at_the_next_poll(path, writer):
    """The newest slot does not check yet: it is no damage, and nothing is skipped."""
    for sequence in (1, 2):
        write(writer, sequence)
    data = Path(path).read_bytes()[17_408 + 2 * 176 :][:176]
    patch(path, 17_408 + 2 * 176 + 40, b"half")
    reader = rankfile.Reader(path)

    records, invalid = reader.read_records(1)
    assert (records, invalid) == ([], 0)
    patch(path, 17_408 + 2 * 176, data)
    records, invalid = reader.read_records(1)
    reader.close()

    assert ([record.sequence for record in records], invalid) == ([2], 0)


def test_a_record_with_an_impossible_number_does_not_stop_the_clock(path, writer):
    """A sequence of 2**63 would leave nothing that could come after it: it is not believed."""
    write(writer, 1)
    sequence = 2**63 + 2  # in the slot where it belongs
    write(writer, sequence, step=0)

    assert [record.sequence for record in read(path)[0]] == [1]
    assert [record.sequence for record in read(path, 1)[0]] == []


@pytest.mark.usefixtures("writer")
def test_a_mask_with_too_many_bits_gives_sixteen_values(path):
    """The mask is 64 bits wide and a record has 16 values."""
    body = struct.pack("<QQqdQ16d", 1, 1, 1, 1.0, 2**64 - 1, *map(float, range(16)))
    patch(path, 17_408 + 176, body + struct.pack("<d", zlib.crc32(body)))

    (record,), _ = read(path)

    assert record.values == {index: float(index) for index in range(16)}


BURSTS = """
    import sys, time
    from trainvitals import rankfile

    writer = rankfile.Writer(sys.argv[1] if len(sys.argv) > 1 else "{path}", {{"run": "test"}})
    print("ready", flush=True)
    sequence = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            sequence += 1
            value = float(sequence)
            writer.write_record(sequence, sequence, -sequence, value, {{index: value for index in range(16)}})
        print(sequence, flush=True)
"""


def assert_whole(records):
    """Fail for a record that is a mixture of two."""
    for record in records:
        assert (record.count, record.step, record.time) == (record.sequence, -record.sequence, float(record.sequence))
        assert record.values == dict.fromkeys(range(16), float(record.sequence))


def test_a_reader_beside_a_writer_at_full_speed_sees_every_record_once(path, spool):
    """Bursts shorter than the ring: no record is torn, lost, invalid or seen twice, whenever the reader comes."""
    with trainer(BURSTS.format(path=path), spool) as process:
        reader = rankfile.Reader(path)
        position = polls = 0
        for _ in range(30):
            process.stdin.write("3000\n")
            process.stdin.flush()
            goal = position + 3000
            while position < goal:
                records, invalid = reader.read_records(position)
                assert invalid == 0
                assert [record.sequence for record in records] == list(range(position + 1, position + 1 + len(records)))
                assert_whole(records)
                position += len(records)
                polls += 1
            assert process.stdout.readline().strip() == str(goal)
        assert reader.read_records(position) == ([], 0)
        reader.close()
        assert polls > 30


def test_a_writer_that_outruns_its_reader_is_never_read_torn(path, spool):
    """Without pauses the ring overruns; what is read is whole and in order, and the end is always reached."""
    with trainer(BURSTS.format(path=path), spool) as process:
        reader = rankfile.Reader(path)
        process.stdin.write("200000\n")
        process.stdin.flush()
        position = seen = damaged = 0
        while position < 200_000:
            records, invalid = reader.read_records(position)
            damaged += invalid
            assert_whole(records)
            sequences = [record.sequence for record in records]
            assert sequences == sorted(set(sequences))
            if records:
                assert sequences[0] > position
                position = sequences[-1]
                seen += len(records)
        reader.close()
        # A slot that is overwritten while it is read counts as invalid: a few, never a share.
        assert damaged <= 200
        assert 4000 < seen <= 200_000


# What a reader refuses ----------------------------------------------------------------------------------------------


def reason(path, **options):
    """Return why a file cannot be opened; a descriptor must not stay open."""
    before = held()
    with pytest.raises(rankfile.RankFileError) as caught:
        rankfile.Reader(str(path), **options)
    assert new_since(before) == []
    return caught.value.reason


def resealed(path, offset, data):
    """Change bytes of the header and give it a checksum that fits."""
    patch(path, offset, data)
    header = Path(path).read_bytes()[:108]
    patch(path, 108, struct.pack("<I", zlib.crc32(header)))


@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize(
    ("offset", "data", "expected"),
    [
        (0, b"NOTOURS\x02", "magic"),
        (7, b"\x00", "version"),
        (7, b"\x01", "version"),
        (8, struct.pack("<I", 0), "version"),
        (8, struct.pack("<I", 1), "version"),
        (12, struct.pack("<I", 64), "header"),
        (16, struct.pack("<Q", 2**63), "header"),
        (40, struct.pack("<I", 2**31), "header"),
        (44, struct.pack("<I", 2**32 - 1), "header"),
        (52, struct.pack("<I", 64), "header"),
    ],
)
def test_a_header_of_another_kind_is_refused(path, offset, data, expected):
    """Another program's, an older and a newer version, another layout: each has its reason."""
    resealed(path, offset, data)
    assert reason(path) == expected


@pytest.mark.usefixtures("writer")
def test_a_torn_header_is_refused(path):
    """A checksum that does not fit."""
    patch(path, 100, b"\xff\xff")
    assert reason(path) == "header"


@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "empty"), (1, "magic"), (100, "size"), (128, "size"), (738_303, "size"), (738_305, "size"), (2**40, "size")],
)
def test_a_file_of_another_size_is_refused(path, size, expected):
    """Empty, cut short, too long, and a terabyte with nothing in it."""
    os.truncate(path, size)
    assert reason(path) == expected


def test_a_huge_sparse_file_is_refused_at_once(tmp_path):
    """Nothing of it is read but its first bytes."""
    with open(tmp_path / "a.rank", "wb") as file:
        file.truncate(2**42)
    assert reason(tmp_path / "a.rank") == "magic"


@pytest.mark.usefixtures("writer")
def test_what_is_no_regular_file_is_refused(tmp_path, path):
    """A FIFO does not block the reader, a link is not followed, a folder and a socket are no files."""
    import socket

    os.mkfifo(tmp_path / "fifo.rank")
    os.mkdir(tmp_path / "folder.rank")
    os.symlink(path, tmp_path / "link.rank")
    os.symlink("/nonexistent", tmp_path / "dangling.rank")
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(tmp_path)  # the path of a socket has at most 107 bytes
    server.bind("socket.rank")
    os.chdir(here)

    for name in ("fifo", "folder", "link", "dangling", "socket"):
        assert reason(tmp_path / f"{name}.rank") == "not_regular", name
    assert reason(tmp_path / "missing.rank") == "unreadable"
    server.close()


@pytest.mark.usefixtures("writer")
def test_a_file_of_another_user_is_refused(path):
    """Only those who may own files here count."""
    assert reason(path, owners=frozenset({os.getuid() + 1})) == "owner"
    rankfile.Reader(path, owners=frozenset({os.getuid()})).close()


def test_a_file_that_is_cut_while_it_is_open_gives_nothing_and_no_signal(path, writer):
    """The reader reads by call and not by mapping: a short file is no SIGBUS."""
    for sequence in range(1, 50):
        write(writer, sequence)
    reader = rankfile.Reader(path)
    for size in (20_000, 10_000, 600, 100, 0):
        os.truncate(path, size)
        assert reader.read_records(1)[0] == reader.read_records(1)[0]
        reader.read_state()
    assert reader.read_records(0) == ([], 0)
    assert reader.read_state() is None
    with pytest.raises(rankfile.RankFileError):
        reader.read_text()
    reader.close()
    # The writer of this test shares the file's fate; give it its pages back before it is closed.
    os.truncate(path, 738_304)


@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'"text"',
        b"{}",
        b'{"identity": 7, "names": []}',
        b'{"identity": {}, "names": 7}',
        b'{"identity": {}, "names": [7]}',
        b'{"identity": "ab", "names": []}',
        b'{"identity": {}, "names": [' + b'"a",' * 64 + b'"a"]}',
        b"[" * 8000,
        b'{"identity": {"rank": ' + b"9" * 8000 + b'}, "names": []}',
        b'{"identity": {}, "names": ["\xff\xfe"]}',
    ],
)
def test_a_text_that_is_none_of_ours_is_refused(path, text):
    """Checked like the rest and still wrong: broken, nested without end, numbers without end, wrong types."""
    text = text[: 8192 - 16]
    head = struct.pack("<QII", 9, len(text), zlib.crc32(text))
    patch(path, 1024, head + text)
    reader = rankfile.Reader(path)

    with pytest.raises(rankfile.RankFileError) as caught:
        reader.read_text()

    assert caught.value.reason == "identity"
    reader.close()


# Liveness -----------------------------------------------------------------------------------------------------------

SLEEPER = """
    import sys
    from trainvitals import rankfile

    writer = rankfile.Writer("{path}", {{"run": "test"}})
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_the_lock_tells_whether_the_writer_lives(path, spool):
    """Held while the process lives, free as soon as it is killed; asking does not take it."""
    with trainer(SLEEPER.format(path=path), spool) as process:
        reader = rankfile.Reader(path)
        assert reader.alive()
        assert reader.alive()
        process.kill()
        process.wait()
        assert not reader.alive()
        reader.close()


def test_the_lock_tells_which_process_the_writer_is(path, spool):
    """The id is the writer's, and there is none when it is gone."""
    with trainer(SLEEPER.format(path=path), spool) as process:
        reader = rankfile.Reader(path)
        assert reader.writer() == process.pid
        process.kill()
        process.wait()
        assert reader.writer() is None
        reader.close()


def test_a_writer_in_another_namespace_of_processes_is_known_by_our_number(path, spool):
    """A container calls its trainer 1; from outside it has the number that the node gave it."""
    command = [*PID_NAMESPACE, sys.executable, "-c", textwrap.dedent(SLEEPER.format(path=path))]
    if subprocess.run([*PID_NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel or this user makes no namespace of processes")
    outer = subprocess.Popen(
        command, env=trainer_environment(spool), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert outer.stdout.readline().strip() == "ready"
        reader = rankfile.Reader(path)
        pid = reader.writer()
        reader.close()
        status = Path(f"/proc/{pid}/status").read_text()
        assert pid not in (0, 1, outer.pid)
        assert f"NSpid:\t{pid}\t1\n" in status
        assert f"PPid:\t{outer.pid}\n" in status
    finally:
        outer.communicate("\n", timeout=60)


def test_a_writer_that_cannot_be_seen_lives_without_a_number(path, spool):
    """A reader in a namespace of its own sees the lock and 0 for its holder."""
    if subprocess.run([*PID_NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel or this user makes no namespace of processes")
    script = f"from trainvitals import rankfile; print(rankfile.Reader({path!r}).writer())"
    with trainer(SLEEPER.format(path=path), spool):
        done = subprocess.run(
            [*PID_NAMESPACE, sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
        )
    assert done.stdout == "0\n"


def test_a_lock_that_belongs_to_no_process_has_no_number(path, spool):
    """A lock of an open file description counts as one whose holder cannot be seen."""
    with trainer(SLEEPER.format(path=path), spool) as process:
        process.kill()
        process.wait()
    script = """
        import fcntl, os, struct, sys

        descriptor = os.open("{path}", os.O_RDWR)
        fcntl.fcntl(descriptor, 37, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))  # F_OFD_SETLK
        print("ready", flush=True)
        sys.stdin.readline()
    """
    with trainer(script.format(path=path), spool):
        reader = rankfile.Reader(path)
        assert reader.writer() == 0
        reader.close()


def test_a_shared_lock_of_a_bystander_does_not_keep_the_dead_alive(path, spool):
    """Whoever may read the file may lock it for reading; that is no sign of its writer."""
    with trainer(SLEEPER.format(path=path), spool) as process:
        process.kill()
        process.wait()
    bystander = """
        import fcntl, sys

        file = open("{path}", "rb")
        fcntl.lockf(file, fcntl.LOCK_SH)
        print("ready", flush=True)
        sys.stdin.readline()
    """
    with trainer(bystander.format(path=path), spool):
        reader = rankfile.Reader(path)
        assert not reader.alive()
        reader.close()


def test_a_killed_writer_is_dead_although_its_forked_child_lives(path, spool):
    """A data loader's worker that outlives its trainer must not hide the death."""
    script = """
        import os, sys, time
        from trainvitals import rankfile

        writer = rankfile.Writer("{path}", {{"run": "test"}})
        child = os.fork()
        if child == 0:
            os.close(1)
            time.sleep(600)
        print("ready", flush=True)
        print(child, flush=True)
        sys.stdin.readline()
    """
    with trainer(script.format(path=path), spool) as process:
        child = int(process.stdout.readline())
        reader = rankfile.Reader(path)
        try:
            assert reader.alive()
            process.kill()
            process.wait()
            os.kill(child, 0)
            assert not reader.alive()
        finally:
            os.kill(child, 9)
            reader.close()


def test_the_end_of_a_forked_child_does_not_unlock_the_file(path, spool):
    """Its copies of the descriptor are closed; the lock belongs to the parent."""
    script = """
        import os, sys
        from trainvitals import rankfile

        writer = rankfile.Writer("{path}", {{"run": "test"}})
        if os.fork() == 0:
            writer.map.close()
            os._exit(0)
        os.wait()
        print("ready", flush=True)
        sys.stdin.readline()
    """
    with trainer(script.format(path=path), spool):
        reader = rankfile.Reader(path)
        assert reader.alive()
        reader.close()


def test_half_a_file_is_never_seen(path, spool):
    """A writer that is killed while it builds its file leaves only the temporary name."""
    script = f"""
        import os, signal
        from trainvitals import rankfile

        rankfile.Writer.write_state = lambda self: os.kill(os.getpid(), signal.SIGKILL)
        rankfile.Writer({path!r}, {{}})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=trainer_environment(spool), check=False)

    assert done.returncode == -9
    assert wait_until(lambda: os.listdir(spool)) == ["test.3.rank.new"]
