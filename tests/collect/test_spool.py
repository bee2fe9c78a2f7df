"""The reader of the spool: what is new, what is refused, and what it costs the others: nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import time
import zlib
from pathlib import Path

import pytest
from tests.helpers import HEALTHY, Node, healthy_series, run_trainer, trainer

from trainvitals import rankfile
from trainvitals.collect import spool as spool_module
from trainvitals.collect.spool import Spool


def make_file(folder, name="test.0", *, identity=None, names=("loss",), records=3, state=None):
    """Leave a rank file of a process that is gone; return its path."""
    path = str(folder / f"{name}.rank")
    writer = rankfile.Writer(path, {"run": "test", "rank": 0} if identity is None else identity)
    writer.names += names
    writer.write_text()
    started = writer.state.heartbeat
    for sequence in range(1, records + 1):
        writer.write_record(sequence, sequence, sequence, started + sequence, {0: float(sequence)})
    if state is not None:
        writer.state = state
        writer.write_state()
    writer.close()
    return path


def patch(path, offset, data):
    """Overwrite some bytes of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def reseal(path):
    """Give a header a checksum that fits."""
    patch(path, 108, struct.pack("<I", zlib.crc32(Path(path).read_bytes()[:108])))


def write_text(path, text):
    """Put a text with a fitting checksum and the highest sequence into a file."""
    patch(path, 1024, struct.pack("<QII", 1 << 60, len(text), zlib.crc32(text)) + text)


@pytest.fixture
def reader(spool):
    """The spool under test."""
    return Spool([str(spool)], keep=3600.0, remove=True)


# What is new --------------------------------------------------------------------------------------------------------


def test_records_become_steps_with_names_and_wall_times(spool, reader):
    """Monotonic times are anchored by the header."""
    make_file(spool)

    (file,) = reader.poll()

    assert [(step.step, step.count, step.values) for step in file.steps] == [
        (1, 1, {"loss": 1.0}),
        (2, 2, {"loss": 2.0}),
        (3, 3, {"loss": 3.0}),
    ]
    assert [round(step.time - file.started) for step in file.steps] == [1, 2, 3]
    assert file.last_activity == file.steps[-1].time


def test_each_poll_hands_on_what_is_new(spool, reader):
    """Steps and events of one poll are not repeated in the next."""
    with trainer(HEALTHY, spool) as process:
        (file,) = reader.poll()
        assert [step.step for step in file.steps] == list(range(20))
        kinds = [event.kind for event in file.events if event.kind != "lineage"]
        assert kinds == ["start", "evaluation", "checkpoint"]
        (file,) = reader.poll()
        assert (file.steps, file.events) == ([], [])
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        (file,) = reader.poll()
        assert [step.step for step in file.steps] == [20]


class Clocks:
    """The clocks of a reader: wall time can be set; both stand still."""

    def __init__(self):
        self.wall = time.time()
        self.steady = time.monotonic()

    def spool(self, folder):
        """Return a spool with these clocks."""
        return Spool([str(folder)], keep=3600.0, remove=True, clock=lambda: self.wall, monotonic=lambda: self.steady)


@pytest.mark.parametrize("error", [3600.0, -3600.0])
def test_a_wall_clock_that_was_set_after_the_start_is_believed(spool, error):
    """A trainer that started before the time was known does not stall because of that."""
    make_file(spool)
    clocks = Clocks()
    clocks.wall += error
    (file,) = clocks.spool(spool).poll()

    assert file.started == pytest.approx(clocks.wall, abs=60.0)
    assert [step.time - file.started for step in file.steps] == pytest.approx([1.0, 2.0, 3.0], abs=0.1)
    assert file.last_activity == file.last_record == file.steps[-1].time


def test_a_small_difference_of_the_clocks_moves_no_time(spool):
    """A clock that is adjusted all the time would move the start of every run."""
    make_file(spool)
    clocks = Clocks()
    reader = clocks.spool(spool)
    for error in (0.0, 1.5, -3.0):
        clocks.wall += error
        (file,) = reader.poll()
        assert file.started == file.header.started_wall


def test_a_clock_that_is_set_during_a_run_moves_its_last_record(spool):
    """Also where no step came since."""
    writer = rankfile.Writer(str(spool / "a.rank"), {"run": "test"})
    writer.write_record(1, 1, 1, writer.state.heartbeat + 5.0, {})
    clocks = Clocks()
    reader = clocks.spool(spool)
    (before,) = (file.last_record for file in reader.poll())
    clocks.wall += 3600.0
    (file,) = reader.poll()

    assert file.last_record - before == pytest.approx(3600.0, abs=0.1)
    assert file.last_record - file.started == pytest.approx(5.0, abs=0.1)
    writer.close()


def test_late_values_come_with_the_count_of_their_step(spool, reader):
    """A value that arrived from a device after the next step is a record of its own."""
    path = str(spool / "late.rank")
    writer = rankfile.Writer(path, {"run": "test"})
    writer.names += ["loss"]
    writer.write_text()
    writer.write_record(1, 1, 10, 1.0, {})
    writer.write_record(2, 2, 11, 2.0, {})
    writer.write_record(3, 1, 10, 2.0, {0: 0.5})

    (file,) = reader.poll()

    assert [(step.count, step.step, step.values) for step in file.steps] == [
        (1, 10, {}),
        (2, 11, {}),
        (1, 10, {"loss": 0.5}),
    ]
    assert file.count == 2
    writer.close()


def test_a_name_that_was_added_during_the_poll_is_known(spool, reader, monkeypatch):
    """The text is read before the ring; a record may need a name that came between the two."""
    path = make_file(spool, records=0)
    reader.poll()
    read_text, late = rankfile.Reader.read_text, []

    def read_and_then_write(self):
        text = read_text(self)
        if not late:
            late.append(True)
            write_text(path, json.dumps({"identity": {"run": "test"}, "names": ["loss", "new"]}).encode())
            check = 1.0 + (1 + 1 + 1 + 2) + 7.0
            patch(path, 17_408 + 176, struct.pack("<QQqdQ17d", 1, 1, 1, 1.0, 2, 7.0, *[0.0] * 15, check))
        return text

    monkeypatch.setattr(rankfile.Reader, "read_text", read_and_then_write)
    (file,) = reader.poll()

    assert [step.values for step in file.steps] == [{"new": 7.0}]
    assert reader.invalid == 0


def test_overwritten_records_are_counted_as_lost(spool, reader):
    """But not those from before the exporter came."""
    writer = rankfile.Writer(str(spool / "a.rank"), {"run": "test"})
    for sequence in range(1, 5001):
        writer.write_record(sequence, sequence, sequence, 1.0, {})
    reader.poll()
    assert reader.lost == 0

    for sequence in range(5001, 12_001):
        writer.write_record(sequence, sequence, sequence, 1.0, {})
    (file,) = reader.poll()

    assert len(file.steps) == 4096
    assert reader.lost == 7000 - 4096
    writer.close()


def test_records_that_were_lost_before_the_first_step_was_seen_are_counted(spool, reader):
    """A file that was there and empty at the last poll is no new file."""
    writer = rankfile.Writer(str(spool / "a.rank"), {"run": "test"})
    reader.poll()
    for sequence in range(1, 5001):
        writer.write_record(sequence, sequence, sequence, 1.0, {})
    reader.poll()

    assert reader.lost == 5000 - 4096
    writer.close()


def test_files_come_in_the_order_of_their_start(spool, reader):
    """Names say nothing about age."""
    for name in ("c", "a", "b"):
        make_file(spool, name)

    assert [Path(file.path).name for file in reader.poll()] == ["c.rank", "a.rank", "b.rank"]


def test_a_folder_that_two_patterns_name_is_read_once(spool):
    """The second reading would find nothing new and hide the first."""
    make_file(spool)
    reader = Spool([str(spool), f"{spool}/", f"{spool.parent}/{spool.name}*"], keep=3600.0, remove=True)

    (file,) = reader.poll()

    assert len(file.steps) == 3


def test_a_file_that_takes_the_place_of_another_is_read_from_its_start(spool, reader):
    """Also where the file system gives it the same inode."""
    path = make_file(spool, records=5)
    assert len(reader.poll()[0].steps) == 5
    os.unlink(path)
    make_file(spool, records=2)

    (file,) = reader.poll()

    assert [step.count for step in file.steps] == [1, 2]


def test_a_file_that_was_bad_for_a_while_goes_on_where_it_was(spool, reader):
    """Nothing is read twice, so no detector sees a step twice."""
    path = make_file(spool, records=5)
    reader.poll()
    good = Path(path).read_bytes()
    patch(path, 100, b"\xff")
    assert reader.poll() == []
    assert reader.rejected == {"header": 1}
    patch(path, 0, good)

    (file,) = reader.poll()

    assert file.steps == []
    assert reader.rejected == {}


def test_polling_keeps_no_descriptor(spool, reader):
    """A thousand files cost memory only."""
    for index in range(50):
        make_file(spool, f"test.{index}", records=1)
    before = os.listdir("/proc/self/fd")

    assert len(reader.poll()) == 50
    assert len(reader.poll()) == 50

    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_file_that_ended_and_was_read_is_not_read_again(spool, reader, monkeypatch):
    """It is shown all the same; only one that lives or was changed costs a reading."""
    path = make_file(spool)
    opened = []
    reader_of = rankfile.Reader
    monkeypatch.setattr(rankfile, "Reader", lambda *args, **named: opened.append(args[0]) or reader_of(*args, **named))
    with trainer(HEALTHY, spool):
        counts = [len(file.steps) for _ in range(5) for file in reader.poll() if file.path == path]
    assert (counts, opened.count(path), len(opened)) == ([3, 0, 0, 0, 0], 2, 7)
    Path(path).with_suffix(".events").write_text("")
    patch(path, 1024, b"")
    os.utime(path)
    reader.poll()

    assert opened.count(path) == 3


def test_another_file_in_the_place_of_one_that_ended_is_read(spool, reader):
    """A run that is started anew may write under the old name."""
    path = make_file(spool, records=5)
    for _ in range(3):
        reader.poll()
    os.unlink(path)
    make_file(spool, records=2)

    assert [step.count for step in reader.poll()[0].steps] == [1, 2]


# Bad files ----------------------------------------------------------------------------------------------------------


def _socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.chdir(here)


def _sparse(path):
    with open(path, "wb") as file:
        file.truncate(2**42)


def _old_boot(path):
    os.rename(make_file(path.parent, "x"), path)
    patch(path, 56, b"00000000-0000-0000-0000-000000000000")
    reseal(path)


def _header_times(path):
    os.rename(make_file(path.parent, "x"), path)
    patch(path, 92, struct.pack("<dd", float("nan"), float("inf")))
    reseal(path)


def _version(path, number):
    os.rename(make_file(path.parent, "x"), path)
    patch(path, 8, struct.pack("<I", number))
    reseal(path)


def _cut(path, size):
    os.rename(make_file(path.parent, "x"), path)
    os.truncate(path, size)


def _damaged(path, *offsets):
    os.rename(make_file(path.parent, "x"), path)
    for offset in offsets:
        patch(path, offset, b"\xa5" * 200)


BAD_FILES = {
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "foreign": (lambda path: path.write_bytes(b"#!/bin/sh\n" * 80_000), "magic"),
    "sparse": (_sparse, "magic"),
    "older": (lambda path: _version(path, 0), "version"),
    "newer": (lambda path: _version(path, 3), "version"),
    "cut": (lambda path: _cut(path, 300_000), "size"),
    "cut in the header": (lambda path: _cut(path, 64), "size"),
    "too long": (lambda path: _cut(path, 738_305), "size"),
    "a terabyte": (lambda path: _cut(path, 2**40), "size"),
    "torn header": (lambda path: _damaged(path, 20), "header"),
    "torn states": (lambda path: _damaged(path, 128, 512), "state"),
    "torn texts": (lambda path: _damaged(path, 1024, 9216), "identity"),
    "FIFO": (os.mkfifo, "not_regular"),
    "folder": (os.mkdir, "not_regular"),
    "socket": (_socket, "not_regular"),
    "link": (lambda path: path.symlink_to("/etc/passwd"), "not_regular"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "not_regular"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "not_regular"),
    "other boot": (_old_boot, "boot"),
    "impossible times": (_header_times, "header"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_costs_only_itself(spool, kind):
    """It is counted with its reason, and a rank beside it keeps every series; once removed, it is counted no more."""
    make, reason = BAD_FILES[kind]
    node = Node(spool)
    with trainer(HEALTHY, spool):
        before = healthy_series(node.scrape())
        bad = spool / "healthy.5.00000000.rank"
        make(bad)
        scrape = node.scrape()

        assert healthy_series(scrape) == before
        assert len(before) > 30
        assert scrape[f'trainvitals_rank_files_rejected{{reason="{reason}"}}'] == 1.0
        assert scrape["trainvitals_rank_files"] == 1.0
        if bad.is_dir():
            bad.rmdir()
        else:
            bad.unlink()
        assert node.rejected() == {}


def test_all_bad_files_at_once_cost_only_themselves(spool):
    """Twenty kinds of bad files in one folder, in front of and behind the healthy one."""
    node = Node(spool)
    with trainer(HEALTHY, spool):
        before = healthy_series(node.scrape())
        for index, (make, _) in enumerate(BAD_FILES.values()):
            for prefix in ("a", "z"):
                make(spool / f"{prefix}.{index}.rank")
        scrape = node.scrape()

    assert healthy_series(scrape) == before
    assert sum(value for name, value in scrape.items() if "rank_files_rejected" in name) == 2 * len(BAD_FILES)


def test_a_file_that_cannot_be_opened_is_counted(spool, reader, monkeypatch):
    """A file whose owner took the permission away."""
    path = make_file(spool)
    opened = os.open

    def refuse(name, *arguments, **options):
        if name == path:
            raise PermissionError(13, "Permission denied")
        return opened(name, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)

    assert reader.poll() == []
    assert reader.rejected == {"unreadable": 1}


def test_an_error_that_nobody_thought_of_costs_only_its_file(spool, reader, monkeypatch, caplog):
    """It is counted at every poll, and logged once."""
    make_file(spool, "a")
    make_file(spool, "b", identity={"run": "other"})
    read_state = rankfile.Reader.read_state

    def broken(self):
        if self.path.endswith("a.rank"):
            raise ZeroDivisionError
        return read_state(self)

    monkeypatch.setattr(rankfile.Reader, "read_state", broken)
    for _ in range(3):
        assert [file.identity.run for file in reader.poll()] == ["other"]
        assert reader.rejected == {"broken": 1}

    assert len(caplog.records) == 1


def test_a_file_that_is_cut_while_it_is_known_costs_only_itself(spool):
    """It is refused for its size from then on, and the others stay."""
    node = Node(spool)
    with trainer(HEALTHY, spool):
        path = make_file(spool)
        before = node.scrape()
        assert before['trainvitals_steps_total{rank="0",run="test"}'] == 3.0
        os.truncate(path, 30_000)
        scrape = node.scrape()

    assert scrape['trainvitals_rank_files_rejected{reason="size"}'] == 1.0
    assert healthy_series(scrape) == healthy_series(before)
    assert not any('run="test"' in name for name in scrape)


def test_damage_of_a_known_file_is_counted_and_the_last_good_values_stay(spool):
    """States, texts and records that do not check any more are invalid; the file itself is still good."""
    node = Node(spool)
    path = make_file(spool)
    before = node.scrape()
    for offset in (128, 512, 1024, 9216):
        patch(path, offset, b"\xa5" * 200)
    scrape = node.scrape()

    assert scrape["trainvitals_records_invalid_total"] == 2.0
    assert {name: value for name, value in scrape.items() if "invalid" not in name} == {
        name: value for name, value in before.items() if "invalid" not in name
    }


def test_a_folder_that_cannot_be_listed_costs_only_itself(spool, monkeypatch):
    """Also one that vanishes in the middle of a poll."""
    good, bad = spool / "good", spool / "bad"
    good.mkdir()
    bad.mkdir()
    make_file(good)
    listdir = os.listdir

    def refuse(folder):
        if folder == str(bad):
            raise PermissionError(13, "Permission denied")
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", refuse)
    reader = Spool([f"{spool}/*"], keep=3600.0, remove=True)

    assert len(reader.poll()) == 1
    assert reader.rejected == {"folder": 1}


def test_a_folder_that_is_a_link_or_a_file_is_not_followed(spool):
    """A link would lead the exporter to files of its choice."""
    real, link, plain = spool / "a-real", spool / "b-link", spool / "c-file"
    real.mkdir()
    make_file(real)
    link.symlink_to(real)
    plain.write_text("")
    reader = Spool([f"{spool}/*"], keep=3600.0, remove=True)

    assert len(reader.poll()) == 1
    assert reader.rejected == {"not_a_folder": 2}


def test_a_folder_whose_name_looks_like_a_pattern_is_found(spool):
    """What names a folder that exists is that folder."""
    folder = spool / "g[1]"
    folder.mkdir()
    (spool / "g1").mkdir()
    make_file(folder)
    make_file(spool / "g1", "other")
    reader = Spool([str(folder)], keep=3600.0, remove=True)

    assert [file.path for file in reader.poll()] == [str(folder / "test.0.rank")]


def test_a_folder_that_does_not_exist_is_nothing(tmp_path):
    """No run was started on this node yet."""
    reader = Spool([str(tmp_path / "none"), str(tmp_path / "none-*")], keep=3600.0, remove=True)

    assert reader.poll() == []
    assert reader.rejected == {}


# Who may put files here ---------------------------------------------------------------------------------------------

root_only = pytest.mark.skipif(os.getuid() != 0, reason="giving files to other users needs root")


@root_only
def test_in_a_folder_of_one_user_only_that_users_files_count(spool):
    """Somebody else's file in it is refused; root's is not."""
    for name, uid in (("own", 1234), ("root", 0), ("other", 4321)):
        path = make_file(spool, name, identity={"run": name})
        os.chown(path, uid, -1)
    os.chown(spool, 1234, -1)
    reader = Spool([str(spool)], keep=3600.0, remove=True)

    assert sorted(file.identity.run for file in reader.poll()) == ["own", "root"]
    assert reader.rejected == {"owner": 1}


@root_only
def test_a_sticky_folder_is_shared(spool):
    """Everybody's files count, as in /tmp."""
    for name, uid in (("one", 1234), ("two", 4321)):
        os.chown(make_file(spool, name, identity={"run": name}), uid, -1)
    os.chmod(spool, 0o1777)
    reader = Spool([str(spool)], keep=3600.0, remove=True)

    assert sorted(file.identity.run for file in reader.poll()) == ["one", "two"]


@root_only
def test_events_of_another_user_are_not_believed(spool):
    """In a shared folder anybody could put an events file beside a rank file."""
    path = make_file(spool)
    events = Path(path).with_suffix(".events")
    events.write_text('{"time":1.0,"kind":"exception","step":1}\n')
    os.chown(events, 4321, -1)
    reader = Spool([str(spool)], keep=3600.0, remove=True)

    (file,) = reader.poll()

    assert file.events == []
    assert reader.rejected == {"events": 1}


def test_a_folder_that_takes_too_long_leaves_those_of_others(spool, monkeypatch):
    """Files that are made to be slow cost the rest of their own folder, in this poll."""
    slow, quiet = spool / "a", spool / "b"
    slow.mkdir()
    quiet.mkdir()
    for index in range(5):
        make_file(slow, f"{index}", identity={"run": f"slow-{index}"}, records=1)
    make_file(quiet, identity={"run": "quiet"})
    clock = [0.0]
    read_state = rankfile.Reader.read_state

    def read_slowly(self):
        clock[0] += 0.3 if "slow" in str(self.read_text()) else 0.0
        return read_state(self)

    monkeypatch.setattr(rankfile.Reader, "read_state", read_slowly)
    monkeypatch.setattr(spool_module.time, "thread_time", lambda: clock[0])
    reader = Spool([f"{spool}/*"], keep=3600.0, remove=True)

    assert [file.identity.run for file in reader.poll()] == ["slow-0", "slow-1", "quiet"]
    assert reader.rejected == {"slow": 3}


def test_too_many_files_of_one_folder_leave_those_of_others(spool, monkeypatch):
    """The newest of a crowded folder count; the rest is rejected; the folder beside it is whole."""
    monkeypatch.setattr(spool_module, "MAX_FILES", 5)
    crowded, quiet = spool / "a", spool / "b"
    crowded.mkdir()
    quiet.mkdir()
    for index in range(12):
        path = make_file(crowded, f"{index}", identity={"run": f"crowd-{index}"}, records=1)
        os.utime(path, (1000 - index, 1000 - index))
    make_file(quiet, identity={"run": "quiet"})
    reader = Spool([f"{spool}/*"], keep=3600.0, remove=True)

    runs = [file.identity.run for file in reader.poll()]

    assert runs == ["crowd-0", "crowd-1", "crowd-2", "crowd-3", "crowd-4", "quiet"]
    assert reader.rejected == {"too_many": 7}


# Hostile contents ---------------------------------------------------------------------------------------------------

HOSTILE_IDENTITIES = {
    "long label": {"run": "x" * 7000},
    "control characters": {"run": "a\x00b\nc\x1b[31md\u202ee\u2028f", "framework": "\r\n"},
    "quotes": {"run": 'a"} 1\ntrainvitals_step{run="healthy",rank="5"} 9\n#', "device_uuid": "\\"},
    "lone surrogates": {"run": "\ud800 \udfff", "device_uuid": "\udc00"},
    "nested": {"run": {"a": [{"b": {}}]}, "rank": [[]], "framework": {"x": 1}},
    "wrong types": {"run": 7, "rank": "1", "local_rank": None, "world_size": 1.5, "attempt": True, "target_steps": []},
    "huge integers": {"run": "test", "rank": 10**400, "world_size": 2**63, "attempt": 10**100, "target_steps": 2**31},
    "negative": {"run": "test", "rank": -1, "local_rank": -5, "world_size": -1, "attempt": -1, "target_steps": -1},
    "not finite": {"run": float("nan"), "rank": float("inf"), "target_steps": float("-inf")},
    "nothing": {},
    "empty": {"run": "", "framework": ""},
    "many keys": {f"key{index}": index for index in range(500)},
}


@pytest.mark.parametrize("kind", HOSTILE_IDENTITIES)
def test_a_hostile_identity_costs_only_itself(spool, kind):
    """Whatever it says, the healthy rank keeps its series and its values, and the labels are clean."""
    text = json.dumps({"identity": HOSTILE_IDENTITIES[kind], "names": ["loss", "\x00" * 64, "n" * 3]})[: 8192 - 16]
    node = Node(spool)
    with trainer(HEALTHY, spool):
        before = healthy_series(node.scrape())
        write_text(make_file(spool), text.encode())
        scrape = node.scrape()
        again = node.scrape()

    assert healthy_series(scrape) == before
    assert scrape.keys() == again.keys()
    assert scrape["trainvitals_rank_files"] == 2.0
    for name in scrape:
        assert name.isprintable()
        assert len(name) < 1500
    if kind in ("long label", "control characters", "quotes", "lone surrogates"):
        assert node.tally.cleaned > 0


def test_a_dead_file_under_the_name_of_a_living_rank_does_not_speak_for_it(spool):
    """Its counters are added, as those of another attempt; state, step and values are those of the living one."""
    node = Node(spool)
    with trainer(HEALTHY, spool):
        before = healthy_series(node.scrape())
        make_file(spool, identity={"run": "healthy", "rank": 5}, names=("loss", "extra"))
        after = healthy_series(node.scrape())

    assert after.pop('trainvitals_steps_total{rank="5",run="healthy"}') == 23.0
    assert before.pop('trainvitals_steps_total{rank="5",run="healthy"}') == 20.0
    assert after == before


@pytest.mark.parametrize(
    "state",
    [
        rankfile.State(phase=2**32 - 1, count=2**64 - 1, step=-(2**63), records=2**64 - 1),
        rankfile.State(samples=float("nan"), tokens=float("inf"), phase_seconds=[float("nan")] * 16),
        rankfile.State(samples=-1e308, tokens=-1.0, phase_seconds=[-1e308] * 16),
        rankfile.State(skipped=2**64 - 1, nonfinite=2**64 - 1, errors=2**64 - 1, dropped=2**64 - 1, flags=2**32 - 1),
        rankfile.State(heartbeat=9e9, phase_since=9e9, phase_seconds=[1e308] * 16),
    ],
)
def test_a_hostile_state_costs_only_itself(spool, state):
    """Numbers that make no sense are left out; nothing is infinite, negative or NaN."""
    node = Node(spool)
    with trainer(HEALTHY, spool):
        before = healthy_series(node.scrape())
        make_file(spool, state=state)
        scrape = node.scrape()

    assert healthy_series(scrape) == before
    for name, value in scrape.items():
        if "_total" in name or "_seconds" in name:
            assert 0.0 <= value < float("inf"), name


@pytest.mark.parametrize(
    "state",
    [
        rankfile.State(heartbeat=float("nan")),
        rankfile.State(heartbeat=float("inf")),
        rankfile.State(phase_since=float("nan")),
        rankfile.State(heartbeat=1e300),
        rankfile.State(heartbeat=-5.0),
    ],
)
def test_a_state_with_impossible_times_is_no_state(spool, reader, state):
    """In a new file it is a reason; in a known one the last good state stays."""
    path = make_file(spool, state=state)
    assert reader.poll() == []
    assert reader.rejected == {"state": 1}
    os.unlink(path)

    writer = rankfile.Writer(path, {"run": "test"})
    writer.state.step = 7
    writer.write_state()
    reader.poll()
    writer.state = state
    writer.write_state()
    (file,) = reader.poll()

    assert file.state.step == 7
    assert reader.invalid == 1
    writer.close()


def test_records_that_make_no_sense_are_left_out_and_counted(spool, reader):
    """Impossible times and values without a name."""
    path = make_file(spool, records=0)
    records = [
        (1, 1, 1, float("nan"), 1),
        (2, 2, 2, float("inf"), 1),
        (3, 3, 3, -1.0, 1),
        (4, 4, 4, 1e12, 1),
        (5, 5, 5, 1.0, 1 << 63),
        (6, 6, 6, 1.0, 1),
    ]
    for sequence, *rest in records:
        count, step, now, mask = rest
        check = now + (sequence + count + step + mask % 65521) + 0.5
        record = struct.pack("<QQqdQ17d", sequence, *rest, *[0.5] * 16, check)
        patch(path, 17_408 + 176 * sequence, record)

    (file,) = reader.poll()

    assert [(step.count, step.values) for step in file.steps] == [(6, {"loss": 0.5})]
    assert reader.invalid == 5


GOOD_EVENT = b'{"time":1700000000.0,"kind":"restart","step":3}\n'

HOSTILE_EVENTS = {
    "one line of a megabyte": b"x" * (1 << 20) + b"\n",
    "a megabyte without an end": b"x" * (1 << 20),
    "a million empty lines": b"\n" * (1 << 20),
    "half a line": b'{"time":1700000000.0,"kind":"ev',
    "nested": b"[" * 100_000 + b"\n" + b'{"a":' * 100_000 + b"\n",
    "nested and whole": b'{"time":1.0,"kind":"x","deep":' + b"[" * 2000 + b"]" * 2000 + b"}\n",
    "not UTF-8": b'{"time":1.0,"kind":"\xff\xfe"}\n\x80\x81\n\x00\x00\n',
    "UTF-16": '{"time":1.0,"kind":"x"}\n'.encode("utf-16"),
    "huge numbers": b'{"time":1.0,"kind":"checkpoint","step":' + b"9" * 3000 + b',"action":"save","ok":true}\n'
    b'{"time":1.0,"kind":"checkpoint","step":' + b"9" * 5000 + b"}\n"
    b'{"time":1.0,"kind":"checkpoint","step":1,"action":"save","ok":true,"seconds":' + b"9" * 500 + b"}\n"
    b'{"time":1.0,"kind":"evaluation","step":1,"name":"x","values":{"a":' + b"9" * 400 + b',"b":1e999}}\n'
    b'{"time":'
    + b"9" * 400
    + b',"kind":"x"}\n{"time":1e999,"kind":"x"}\n{"time":NaN,"kind":"x"}\n{"time":-1.0,"kind":"x"}\n',
    "wrong types": b'{"time":"now","kind":"x"}\n{"time":1.0,"kind":7}\n{"time":1.0}\n[]\n7\nnull\n"x"\n{}\n'
    b'{"time":1.0,"kind":"checkpoint","step":"one"}\n{"time":1.0,"kind":"checkpoint","step":1.5}\n'
    b'{"time":1.0,"kind":"evaluation","step":1,"name":{"a":1},"values":{"a":"b","c":[],"d":null,"e":{}}}\n'
    b'{"time":1.0,"kind":"evaluation","step":1,"name":"s","values":[1,2]}\n'
    b'{"time":1.0,"kind":"checkpoint","step":1,"action":{},"ok":"yes","seconds":"long"}\n',
    "control characters": b'{"time":1.0,"kind":"a\\u0000\\n\\u202e\\ud800b"}\n'
    b'{"time":1.0,"kind":"evaluation","step":1,"name":"\\n\\u0000","values":{"\\u001b[1m":1}}\n',
    "many kinds": b"".join(b'{"time":1.0,"kind":"k%d"}\n' % index for index in range(5000)),
    "many splits": b"".join(
        b'{"time":1.0,"kind":"evaluation","step":1,"name":"s%d","values":{"a":1.0}}\n' % index for index in range(3000)
    ),
    "many results": b"".join(
        b'{"time":1.0,"kind":"evaluation","step":1,"name":"s%d","values":{%s}}\n'
        % (split, b",".join(b'"n%d":1' % index for index in range(300)))
        for split in range(50)
    ),
}


@pytest.mark.parametrize("kind", HOSTILE_EVENTS)
def test_hostile_events_cost_only_themselves(spool, kind):
    """No line of an events file touches another rank, and what comes after it in its own file is read."""
    node = Node(spool)
    with trainer(HEALTHY, spool):
        before = healthy_series(node.scrape())
        path = make_file(spool)
        Path(path).with_suffix(".events").write_bytes(GOOD_EVENT + HOSTILE_EVENTS[kind])
        scrapes = [node.scrape() for _ in range(3)]

    for scrape in scrapes:
        assert healthy_series(scrape) == before
        assert scrape['trainvitals_events_total{kind="restart",rank="0",run="test"}'] == 1.0
        assert scrape['trainvitals_steps_total{rank="0",run="test"}'] == 3.0
        assert all(name.isprintable() for name in scrape)
        assert sum('run="test"' in name for name in scrape) < 300
    if kind not in (
        "half a line",
        "many kinds",
        "many splits",
        "many results",
        "control characters",
        "nested and whole",
    ):
        assert scrapes[-1]["trainvitals_event_lines_rejected_total"] > 0


def test_half_a_line_is_read_once_it_is_whole(spool, reader):
    """A full spool may have taken half of it; so may a reader that comes in the middle."""
    events = Path(make_file(spool)).with_suffix(".events")
    events.write_bytes(GOOD_EVENT[:20])
    assert reader.poll()[0].events == []
    with open(events, "ab") as file:
        file.write(GOOD_EVENT[20:])

    assert [event.kind for event in reader.poll()[0].events] == ["restart"]
    assert reader.bad_lines == 0


def test_what_comes_after_a_bad_line_is_read(spool, reader):
    """One line of garbage is one rejected line."""
    events = Path(make_file(spool)).with_suffix(".events")
    events.write_bytes(GOOD_EVENT + b"garbage\n" + GOOD_EVENT)

    assert len(reader.poll()[0].events) == 2
    assert reader.bad_lines == 1


def test_an_events_file_is_read_no_further_than_a_writer_writes(spool, reader):
    """One that grows without end costs a megabyte once, not at every poll."""
    events = Path(make_file(spool)).with_suffix(".events")
    events.write_bytes(GOOD_EVENT * 40_000)

    counts = [len(reader.poll()[0].events) for _ in range(12)]

    assert max(counts) <= 8192
    assert (1 << 20) // len(GOOD_EVENT) <= sum(counts) <= (1 << 20) // len(GOOD_EVENT) + 1400
    assert counts[-3:] == [0, 0, 0]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd"), _socket])
def test_an_events_file_that_is_none_is_not_read(spool, make):
    """A FIFO does not block, a link is not followed; the rank itself stays."""
    node = Node(spool)
    path = make_file(spool)
    make(Path(path).with_suffix(".events"))

    scrape = node.scrape()

    assert scrape['trainvitals_steps_total{rank="0",run="test"}'] == 3.0
    assert scrape['trainvitals_rank_files_rejected{reason="events"}'] == 1.0
    assert not any("events_total{" in name for name in scrape)


# The end ------------------------------------------------------------------------------------------------------------


def test_an_ended_run_is_shown_for_a_while_and_then_removed(spool):
    """After ``keep`` seconds its series and its files are gone."""
    node = Node(spool, keep=100.0)
    run_trainer("import trainvitals; trainvitals.init(); trainvitals.step(1, loss=1.0)", spool)
    assert node.state() == "finished"
    node.ahead = 99.0
    assert node.state() == "finished"
    assert len(os.listdir(spool)) == 3  # Of the rank, its events, and orders to its run.
    node.ahead = 101.0
    scrape = node.scrape()

    assert not any('run="test"' in name for name in scrape)
    assert os.listdir(spool) == []


def test_the_orders_to_a_run_go_with_its_last_rank(spool):
    """As long as another of its processes is there, they stay."""
    node = Node(spool, keep=100.0)
    with trainer(HEALTHY, spool):
        run_trainer("import trainvitals; trainvitals.init(run='healthy'); trainvitals.step(1, loss=1.0)", spool)
        for path in (mail := next(spool.glob("*.orders")), spool / f"{mail.name}.7", spool / f"{mail.name}.7.go"):
            path.touch()
            os.utime(path, (1e9, 1e9))
        node.scrape()
        node.ahead = 101.0
        node.scrape()
        assert len(list(spool.glob("*.rank"))) == 1
        assert len(list(spool.glob("*.orders*"))) == 3
    node.scrape()
    node.ahead = 203.0
    node.scrape()

    assert os.listdir(spool) == []


def test_a_run_whose_files_must_stay_is_forgotten_all_the_same(spool):
    """Removal can be switched off, and often is not allowed."""
    node = Node(spool, keep=100.0, remove=False)
    run_trainer("import trainvitals; trainvitals.init(); trainvitals.step(1, loss=1.0)", spool)
    assert node.state() == "finished"
    for seconds in (101.0, 102.0, 5000.0):
        node.ahead = seconds
        assert node.state() is None
    assert len(os.listdir(spool)) == 3
    assert node.rejected() == {}


def test_a_new_file_under_the_name_of_a_forgotten_one_is_shown(spool):
    """What is forgotten is the file, not its name."""
    node = Node(spool, keep=100.0, remove=False)
    make_file(spool, "a")
    node.scrape()
    node.ahead = 101.0
    assert node.state() is None
    os.unlink(spool / "a.rank")
    assert node.scrape()["trainvitals_rank_files"] == 0.0
    make_file(spool, "a")

    assert node.state() == "died"


def test_a_living_run_is_never_removed(spool):
    """However long ago it last said something."""
    node = Node(spool, keep=100.0)
    with trainer(HEALTHY, spool):
        node.scrape()
        node.ahead = 1e6
        assert node.state(5, "healthy") == "running"
        assert len(os.listdir(spool)) == 3


def test_what_no_process_will_end_is_removed(spool):
    """A file of an earlier boot after ``keep`` seconds, and one that was never finished after an hour."""
    old, new = spool / "old.rank", spool / "new.rank.new"
    _old_boot(old)
    (spool / "old.events").write_text("")
    new.write_bytes(b"half")
    for stranger in ("notes.new", "x.rank.new.txt"):
        (spool / stranger).write_text("precious")
    (spool / "folder.rank.new").mkdir()
    node = Node(spool, keep=5000.0)
    present = lambda: sorted(os.listdir(spool))  # noqa: E731
    everything = present()
    assert (node.rejected(), present()) == ({"boot": 1.0}, everything)
    node.ahead = 3601.0
    assert (node.rejected(), present()) == ({"boot": 1.0}, [name for name in everything if name != "new.rank.new"])
    node.ahead = 5001.0
    node.scrape()

    assert present() == ["folder.rank.new", "notes.new", "x.rank.new.txt"]


def test_nothing_is_removed_where_removal_is_off(spool):
    """Not even that."""
    _old_boot(spool / "old.rank")
    (spool / "new.rank.new").write_bytes(b"half")
    node = Node(spool, keep=1.0, remove=False)
    node.ahead = 1e6
    node.scrape()

    assert sorted(os.listdir(spool)) == ["new.rank.new", "old.rank"]


@root_only
def test_an_unfinished_file_of_another_user_is_not_removed(spool):
    """In a folder of one user only that user's files are touched."""
    for name, uid in (("own", 1234), ("other", 4321)):
        path = spool / f"{name}.rank.new"
        path.write_bytes(b"half")
        os.chown(path, uid, -1)
    os.chown(spool, 1234, -1)
    node = Node(spool)
    node.ahead = 1e6
    node.scrape()

    assert os.listdir(spool) == ["other.rank.new"]


def test_removal_does_not_follow_a_folder_that_became_a_link(spool):
    """The owner of a spool must not make the exporter remove files elsewhere."""
    folder, elsewhere = spool / "folder", spool / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    make_file(folder)
    os.link(folder / "test.0.rank", elsewhere / "test.0.rank")
    (elsewhere / "test.0.events").write_text("precious")
    reader = Spool([str(folder)], keep=100.0, remove=True)
    (file,) = reader.poll()
    shutil.rmtree(folder)
    folder.symlink_to(elsewhere)

    reader._forget(file)

    assert sorted(os.listdir(elsewhere)) == ["test.0.events", "test.0.rank"]
