"""From rank files to families: what a healthy rank shows, and 10,000 damaged files beside it."""

from __future__ import annotations

import json
import math
import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.held import held, new_since
from tests.helpers import HEALTHY, Node, healthy_series, run_trainer, trainer

from trainvitals import rankfile
from trainvitals.collect.base import Sink, Tally

# What is shown ------------------------------------------------------------------------------------------------------


def test_a_healthy_rank_has_its_series(spool):
    """All of them, with their values; nothing is 0 or NaN for want of a number."""
    node = Node(spool)
    with trainer(HEALTHY, spool):
        scrape = node.scrape()

    labels = 'rank="5",run="healthy"'
    times = ("start_timestamp", "heartbeat_timestamp", "last_step_timestamp", "checkpoint_timestamp", "duration")
    times += ("lineage",)
    fixed = {
        name.replace(labels, "*"): value
        for name, value in scrape.items()
        if "healthy" in name and "phase_seconds" not in name and not any(time in name for time in times)
    }
    # What a detector says is tested with it; one stands for all.
    signals = {name for name in fixed if "signal=" in name and "loss_nonfinite" not in name}
    assert [name for name in signals if "_ratio" in name and fixed[name] >= 1.0] == []
    fixed = {name: value for name, value in fixed.items() if name not in signals}
    assert fixed == {
        'trainvitals_run_info{attempt="0",framework="python",run="healthy",world_size="1"}': 1.0,
        'trainvitals_world_size{run="healthy"}': 1.0,
        'trainvitals_rank_info{attempt="0",local_rank="0",node_rank="",pci_bus_id="",*,uuid=""}': 1.0,
        "trainvitals_rank_up{*}": 1.0,
        'trainvitals_rank_state{*,state="running"}': 1.0,
        'trainvitals_rank_state{*,state="finished"}': 0.0,
        'trainvitals_rank_state{*,state="failed"}': 0.0,
        'trainvitals_rank_state{*,state="died"}': 0.0,
        "trainvitals_probe_disabled{*}": 0.0,
        "trainvitals_probe_errors_total{*}": 0.0,
        "trainvitals_probe_dropped_total{*}": 0.0,
        "trainvitals_step{*}": 19.0,
        "trainvitals_target_steps{*}": 1000.0,
        "trainvitals_steps_total{*}": 20.0,
        "trainvitals_skipped_steps_total{*}": 0.0,
        "trainvitals_nonfinite_steps_total{*}": 0.0,
        "trainvitals_tokens_total{*}": 200.0,
        "trainvitals_loss{*}": 2.0,
        "trainvitals_grad_norm{*}": 0.5,
        "trainvitals_learning_rate{*}": 0.001,
        'trainvitals_value{name="extra",*}': 1.0,
        'trainvitals_phase{phase="train",*}': 1.0,
        'trainvitals_evaluation{name="accuracy",*,split="validation"}': 0.5,
        'trainvitals_evaluation_step{*,split="validation"}': 19.0,
        "trainvitals_checkpoint_step{*}": 19.0,
        "trainvitals_checkpoints_total{*}": 1.0,
        "trainvitals_checkpoint_failures_total{*}": 0.0,
        'trainvitals_events_total{kind="start",*}': 1.0,
        'trainvitals_events_total{kind="evaluation",*}': 1.0,
        'trainvitals_events_total{kind="checkpoint",*}': 1.0,
        'trainvitals_signal_ratio{run="healthy",signal="loss_nonfinite"}': 0.0,
        'trainvitals_signal_statistic{run="healthy",signal="loss_nonfinite",statistic="steps"}': 0.0,
    }
    start = scrape[f"trainvitals_start_timestamp_seconds{{{labels}}}"]
    step = scrape[f"trainvitals_last_step_timestamp_seconds{{{labels}}}"]
    saved = scrape[f"trainvitals_checkpoint_timestamp_seconds{{{labels}}}"]
    assert node.clock() - 60.0 < start < step < node.clock()
    assert abs(saved - step) < 60.0
    assert scrape[f"trainvitals_step_duration_seconds_count{{{labels}}}"] == 19.0
    phases = {name.split('"')[1]: value for name, value in scrape.items() if "phase_seconds" in name}
    assert phases.keys() == {"init", "train", "data", "checkpoint"}
    assert math.isclose(sum(phases.values()), node.clock() - start, abs_tol=5.0)


def test_a_node_without_a_run_shows_its_counters_only(spool):
    """No run, no series of runs."""
    assert Node(spool).scrape() == {
        "trainvitals_rank_files": 0.0,
        "trainvitals_records_lost_total": 0.0,
        "trainvitals_records_invalid_total": 0.0,
        "trainvitals_event_lines_rejected_total": 0.0,
    }


def test_a_rank_that_reports_nothing_yet_has_no_numbers(spool):
    """Missing is absent: no step, no loss, no tokens."""
    with trainer("import sys, trainvitals; trainvitals.init(); print('ready', flush=True); sys.stdin.read()", spool):
        scrape = Node(spool).scrape()

    names = {name.split("{")[0] for name in scrape if 'run="test"' in name}
    assert "trainvitals_rank_up" in names
    absent = {"step", "loss", "grad_norm", "learning_rate", "value", "tokens_total", "samples_total", "target_steps"}
    assert not {f"trainvitals_{name}" for name in absent} & names
    assert scrape['trainvitals_phase{phase="init",rank="0",run="test"}'] == 1.0


def test_a_loss_that_is_nan_is_shown_counted_and_found(spool):
    """One step between two scrapes is enough."""
    script = """
        import trainvitals

        trainvitals.init()
        for number in range(10):
            trainvitals.step(number, loss=float("nan") if number == 5 else 1.0)
        trainvitals.step(10, grad_norm=float("inf"))
    """
    node = Node(spool)
    run_trainer(script, spool)
    scrape = node.scrape()

    assert scrape['trainvitals_loss{rank="0",run="test"}'] == 1.0
    assert scrape['trainvitals_grad_norm{rank="0",run="test"}'] == math.inf
    assert scrape['trainvitals_nonfinite_steps_total{rank="0",run="test"}'] == 1.0
    assert scrape['trainvitals_signal_ratio{run="test",signal="loss_nonfinite"}'] >= 1.0
    (finding,) = [name for name in scrape if name.startswith("trainvitals_finding_info")]
    assert 'category="parameter"' in finding
    assert 'location="rank 0"' in finding
    assert "since step 5" in finding


def test_a_nan_that_was_over_before_the_exporter_came_is_found(spool):
    """Hundreds of good steps and half an hour lie between; the exporter was down, or is started late."""
    path = spool / "a.rank"
    writer = rankfile.Writer(str(path), {"run": "test", "rank": 0})
    writer.names.append("loss")
    writer.write_text()
    for number in range(1, 1001):
        loss = math.nan if number == 300 else 1.0
        writer.write_record(number, number, number, writer.state.heartbeat + 2.5 * number, {0: loss})
    late = Node(spool)
    late.ahead = 2600.0
    scrape = late.scrape()

    assert scrape['trainvitals_signal_ratio{run="test",signal="loss_nonfinite"}'] == 1.0
    writer.close()


def test_the_last_loss_is_nan_when_it_is_nan(spool):
    """Not absent, and not the one before."""
    run_trainer("import trainvitals; trainvitals.init(); trainvitals.step(1, loss=float('nan'))", spool)

    assert math.isnan(Node(spool).scrape()['trainvitals_loss{rank="0",run="test"}'])


def test_a_restarted_run_goes_on(spool):
    """Two ranks die, one is started anew: counters go on, and the rank that is gone for good is not shown as died."""
    script = """
        import os, sys, trainvitals

        rank, first, ending = (int(word) for word in os.environ["ARGUMENTS"].split())
        trainvitals.init(rank=rank)
        for number in range(first, first + 100):
            trainvitals.step(number, loss=1.0, tokens=8)
        if ending:
            os._exit(0)
        print("ready", flush=True)
        sys.stdin.readline()
    """
    node = Node(spool)
    for rank in (0, 1):
        run_trainer(script, spool, ARGUMENTS=f"{rank} 0 1")
    assert (node.state(0), node.state(1)) == ("died", "died")
    with trainer(script, spool, ARGUMENTS="0 50 0"):
        for _ in range(3):
            scrape = node.scrape()
            assert scrape['trainvitals_steps_total{rank="0",run="test"}'] == 200.0
            assert scrape['trainvitals_tokens_total{rank="0",run="test"}'] == 1600.0
            assert scrape['trainvitals_step{rank="0",run="test"}'] == 149.0
            assert scrape['trainvitals_rank_up{rank="0",run="test"}'] == 1.0
            assert not any('rank="1"' in name for name in scrape)
        assert Node(spool).scrape()['trainvitals_steps_total{rank="0",run="test"}'] == 200.0
    assert (node.state(0), node.state(1)) == ("died", None)


def test_one_rank_stays_within_the_budget(spool):
    """At most 150 series for a rank that reports 64 values."""
    script = """
        import trainvitals

        trainvitals.init()
        for number in range(3):
            trainvitals.step(number, {f"v{index}": 1.0 for index in range(64)}, tokens=1, samples=1)
        trainvitals.evaluate(loss=1.0)
        with trainvitals.checkpoint():
            pass
    """
    run_trainer(script, spool)
    scrape = Node(spool).scrape()

    assert sum('rank="0"' in name for name in scrape) <= 150


def test_scraping_costs_no_descriptors_and_no_threads(spool):
    """Equal before and after 50 scrapes."""
    node = Node(spool)
    with trainer(HEALTHY, spool):
        node.scrape()
        before = held()
        for _ in range(50):
            node.scrape()
        assert new_since(before) == []


# Crowds -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.getuid() != 0, reason="giving files to other users needs root")
def test_a_user_who_fills_the_spool_takes_no_series_from_others(spool):
    """The cap cuts off those with the most ranks, and counts what it cut."""
    crowded, quiet = spool / "a", spool / "z"
    crowded.mkdir()
    quiet.mkdir()
    for index in range(100):
        path = crowded / f"{index}.rank"
        writer = rankfile.Writer(str(path), {"run": f"a-{index}", "rank": index})
        writer.close()
        os.chown(path, 1234, -1)
    os.chown(crowded, 1234, -1)
    node = Node(f"{spool}/*", limit=500)
    with trainer(HEALTHY, quiet):
        scrape = node.scrape()
        alone = Node(quiet).scrape()

    assert healthy_series(scrape) == healthy_series(alone)
    assert node.tally.dropped["ranks"] > 100


def test_ended_runs_take_no_series_from_a_live_one(spool):
    """Not even ended ranks of a run of which one rank lives, and which comes first."""
    for index in range(60):
        run = "healthy" if index % 2 else f"a-{index}"
        rankfile.Writer(str(spool / f"{index}.rank"), {"run": run, "rank": 100 + index}).close()
    node = Node(spool, limit=500)
    alone = spool / "alone"
    alone.mkdir()
    other = "import sys, trainvitals; trainvitals.init(run='z'); print('ready', flush=True); sys.stdin.readline()"
    with trainer(HEALTHY, spool), trainer(other, spool):
        scrape = node.scrape()
    with trainer(HEALTHY, alone):
        expected = healthy_series(Node(alone).scrape())

    shown = healthy_series(scrape)
    assert {name for name in expected if 'rank="5"' in name} == {name for name in shown if 'rank="5"' in name}
    assert scrape['trainvitals_rank_up{rank="0",run="z"}'] == 1.0
    assert node.tally.dropped["ranks"] > 100


def test_a_hostile_rank_has_a_limited_number_of_series(spool):
    """Other names at every poll, and more splits, results and kinds of events than there is room for."""
    path = spool / "a.rank"
    writer = rankfile.Writer(str(path), {"run": "test", "rank": 0, "target_steps": 9})
    node = Node(spool)
    sequence = 0
    for poll in range(10):
        writer.names = [f"v{poll}-{index}" for index in range(rankfile.MAX_NAMES)]
        writer.write_text()
        for first in range(0, rankfile.MAX_NAMES, rankfile.VALUES_PER_RECORD):
            sequence += 1
            values = dict.fromkeys(range(first, first + rankfile.VALUES_PER_RECORD), 1.0)
            writer.write_record(sequence, poll + 1, poll, writer.state.heartbeat, values)
        writer.state.phase_seconds = [1.0] * len(writer.state.phase_seconds)
        writer.write_state()
        with open(spool / "a.events", "a") as events:
            for index in range(20):
                event = {"time": 1.0, "kind": f"k{poll}-{index}", "step": 1}
                evaluation = {"time": 1.0, "kind": "evaluation", "step": 1, "name": f"s{poll}-{index}"}
                values = {f"{index}": 1.0 for index in range(20)}
                events.write(json.dumps(event) + "\n" + json.dumps({**evaluation, "values": values}) + "\n")
        scrape = node.scrape()
    writer.close()

    assert 250 < sum('rank="0"' in name for name in scrape) <= 400


def test_the_same_run_in_two_folders_is_shown_once(spool):
    """Two live processes under one name: one speaks, the other is counted."""
    first, second = spool / "a", spool / "b"
    first.mkdir()
    second.mkdir()
    node = Node(f"{spool}/*")
    with trainer(HEALTHY, first), trainer(HEALTHY, second):
        scrape = node.scrape()

    assert scrape['trainvitals_rank_up{rank="5",run="healthy"}'] == 1.0
    assert scrape['trainvitals_rank_files_rejected{reason="duplicate"}'] == 1.0
    assert scrape["trainvitals_rank_files"] == 2.0
    assert node.tally.rejected == {}


# Ten thousand corruptions -------------------------------------------------------------------------------------------

AREAS = {
    "header": (0, 128),
    "states": (128, 1024),
    "texts": (1024, 1400),
    "other text": (9216, 9600),
    "ring": (17_408, 17_408 + 64 * 176),
    "everything": (0, 738_304),
}
INTERESTING = (0, 1, 2, 127, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)


class Corruption:
    """Changes a file in one of many ways.  All chance comes from ``chance``."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.kinds: tuple[Callable[[bytearray], None], ...] = (
            self.bytes,
            self.bytes,
            self.block,
            self.zeros,
            self.copy,
            self.header,
            self.state,
            self.text,
            self.record,
            self.record,
            self.many,
        )

    def apply(self, data: bytearray) -> None:
        """Corrupt the bytes of a file in place."""
        self._chance.choice(self.kinds)(data)

    def _place(self, size: int = 1) -> int:
        first, end = self._chance.choice(list(AREAS.values()))
        return self._chance.randrange(first, max(first + 1, end - size))

    def _number(self, bits: int = 64) -> int:
        number = self._chance.choice((self._chance.getrandbits(bits), self._chance.choice(INTERESTING)))
        return number & ((1 << bits) - 1)

    def _float(self) -> float:
        pattern = self._chance.choice((self._number(), 0x7FF0 << 48, 0xFFF0 << 48, 0x7FF8 << 48, 0x4045 << 48))
        return struct.unpack("<d", struct.pack("<Q", pattern))[0]

    def bytes(self, data: bytearray) -> None:
        """Random bytes at random places."""
        for _ in range(self._chance.choice((1, 1, 2, 8, 50))):
            data[self._place()] = self._chance.getrandbits(8)

    def block(self, data: bytearray) -> None:
        """A stretch of noise."""
        size = self._chance.choice((8, 64, 500, 5000))
        place = self._place(size)
        data[place : place + size] = self._chance.randbytes(size)

    def zeros(self, data: bytearray) -> None:
        """A stretch that was never written."""
        size = self._chance.choice((8, 176, 1000, 20_000))
        place = self._place(size)
        data[place : place + size] = bytes(size)

    def copy(self, data: bytearray) -> None:
        """A stretch of the file at another place of it."""
        size = self._chance.choice((16, 176, 384, 8192))
        source, target = self._place(size), self._place(size)
        data[target : target + size] = data[source : source + size]

    def header(self, data: bytearray) -> None:
        """A header with a field that lies, and a checksum that fits."""
        offset, form = self._chance.choice(
            (
                (8, "<I"),
                (12, "<I"),
                (16, "<Q"),
                (24, "<I"),
                (40, "<I"),
                (44, "<I"),
                (48, "<I"),
                (52, "<I"),
                (92, "d"),
                (100, "d"),
            )
        )
        value = self._float() if form == "d" else self._number(64 if form == "<Q" else 32)
        struct.pack_into(form, data, offset, value)
        struct.pack_into("<I", data, 108, zlib.crc32(data[:108]))

    def state(self, data: bytearray) -> None:
        """A state of lies, newer than the others, with a checksum that fits."""
        fields = [self._number(32) for _ in range(2)] + [self._float(), self._float()]
        numbers = [self._number() for _ in range(4)]
        body = struct.pack(
            "<QIIddQqQddQQQQ16d",
            self._chance.choice((1 << 40, self._number())),
            *fields,
            self._number(),
            self._number() - 2**63,
            self._number(),
            self._float(),
            self._float(),
            *numbers,
            *(self._float() for _ in range(16)),
        )
        data[128 : 128 + len(body) + 4] = body + struct.pack("<I", zlib.crc32(body))

    def _json(self, depth: int = 0) -> object:
        makers: list[Callable[[], object]] = [
            self._number,
            lambda: -self._number(),
            lambda: 10 ** self._chance.randrange(400),
            self._float,
            lambda: self._chance.choice((None, True, False, "", "rank", "\x00\n\u202e\ud800", "x" * 3000, "名")),
        ]
        if depth < 3:
            makers += [
                lambda: [self._json(depth + 1) for _ in range(self._chance.randrange(4))],
                lambda: {str(self._json(3)): self._json(depth + 1) for _ in range(self._chance.randrange(4))},
            ]
        return self._chance.choice(makers)()

    def text(self, data: bytearray) -> None:
        """An identity or names of lies, newer than the others, with a checksum that fits."""
        keys = ("run", "rank", "local_rank", "world_size", "attempt", "framework", "target_steps", "device_uuid")
        identity: object = {key: self._json() for key in keys if self._chance.random() < 0.7}
        names: object = [
            self._json(3) if self._chance.random() < 0.1 else f"n{i}" for i in range(self._chance.randrange(70))
        ]
        if self._chance.random() < 0.2:
            identity, names = self._json(), self._json()
        text = json.dumps({"identity": identity, "names": names}).encode()[: 8192 - 16]
        if self._chance.random() < 0.2:
            text = self._chance.randbytes(1) * self._chance.choice((0, 10, 8000))
        data[1024 : 1040 + len(text)] = struct.pack("<QII", 1 << 40, len(text), zlib.crc32(text)) + text

    def record(self, data: bytearray) -> None:
        """Records of lies, in or out of their place, with checksums that fit."""
        for _ in range(self._chance.choice((1, 1, 3, 20))):
            slot = self._chance.randrange(4096)
            sequence = self._chance.choice((slot, slot + 4096, slot + 4096 * 1000, self._number()))
            values = self._chance.choice((bytes(128), self._chance.randbytes(128), b"\xff" * 128))
            body = struct.pack(
                "<QQqdQ128s",
                sequence,
                self._number(),
                self._number() - 2**63,
                self._chance.choice((self._float(), 1.0)),
                self._chance.choice((1, 3, self._number())),
                values,
            )
            place = 17_408 + slot * 176
            data[place : place + 172] = body + struct.pack("<I", zlib.crc32(body))

    def many(self, data: bytearray) -> None:
        """Several of these at once."""
        for _ in range(3):
            self._chance.choice(self.kinds[:-1])(data)


@pytest.mark.parametrize("seed", range(4))
def test_ten_thousand_corruptions_cost_a_healthy_rank_nothing(spool, seed):
    """In each of 4 times 2,500 rounds: nothing raises, the healthy rank is whole, and the bad file is shown or counted.

    In most rounds the file turns bad while it is known; in every eighth it is met for the first time.
    """
    chance = random.Random(seed)
    corruption = Corruption(chance)
    path = spool / "a.0.rank"
    writer = rankfile.Writer(str(path), {"run": "test", "rank": 0, "target_steps": 100})
    writer.names += ["loss", "grad_norm", "learning_rate"]
    writer.write_text()
    for sequence in range(1, 65):
        values = {index: 1.0 + index for index in range(3)}
        writer.write_record(sequence, sequence, sequence, writer.state.heartbeat, values)
    writer.write_state()
    writer.close()
    Path(spool / "a.0.events").write_text('{"time":1.0,"kind":"start","step":1}\n')
    good = path.read_bytes()
    descriptor = os.open(path, os.O_RDWR)

    with trainer(HEALTHY, spool):
        healthy = healthy_series(Node(spool).scrape())
        assert len(healthy) > 30
        node = Node(spool)
        counted = 0
        for number in range(2500):
            if number % 8 == 0:
                counted += node.spool.invalid
                node = Node(spool)
            data = bytearray(good)
            corruption.apply(data)
            os.pwrite(descriptor, data, 0)
            found = [node.scrape() for _ in range(1 + (number % 5 == 0))]
            os.pwrite(descriptor, good, 0)

            for scrape in found:
                assert healthy_series(scrape) == healthy, number
                refused = sum(value for name, value in scrape.items() if "rank_files_rejected" in name)
                assert scrape["trainvitals_rank_files"] + refused == 2.0, number
                assert all(map(str.isprintable, scrape)), number
    os.close(descriptor)
    assert counted > 100


@pytest.mark.parametrize("seed", range(2))
def test_corrupt_events_cost_a_healthy_rank_nothing(spool, seed):
    """500 rounds of noise, half lines and lies in the events file of another rank."""
    chance = random.Random(seed)
    corruption = Corruption(chance)
    path = spool / "a.0.rank"
    rankfile.Writer(str(path), {"run": "test", "rank": 0}).close()
    events = spool / "a.0.events"
    kinds = ("start", "evaluation", "checkpoint", "exception")

    with trainer(HEALTHY, spool):
        healthy = healthy_series(Node(spool).scrape())
        for number in range(500):
            lines = []
            for _ in range(chance.randrange(1, 10)):
                document = {
                    "time": 1.0,
                    "kind": chance.choice(kinds),
                    "step": 1,
                    "name": "a",
                    "action": "save",
                    "ok": True,
                }
                for key in (*document, "values", "seconds"):
                    if chance.random() < 0.3:
                        document[key] = corruption._json()
                line = json.dumps(document).encode()
                if chance.random() < 0.2:
                    line = line[: chance.randrange(len(line))] + chance.randbytes(3)
                lines.append(line)
            events.write_bytes(b"\n".join(lines) + b"\n" * chance.randrange(2))
            node = Node(spool)
            scrape = node.scrape()
            assert healthy_series(scrape) == healthy, number
            assert scrape["trainvitals_rank_files"] == 2.0


def test_files_that_change_size_and_place_under_a_reader_cost_nothing(spool):
    """Cut, lengthened, replaced, removed and made anew, 300 times."""
    chance = random.Random(7)
    path = spool / "a.0.rank"
    rankfile.Writer(str(path), {"run": "test", "rank": 0}).close()
    good = path.read_bytes()
    node = Node(spool)

    with trainer(HEALTHY, spool):
        healthy = healthy_series(node.scrape())
        for number in range(300):
            action = chance.randrange(6)
            if action == 0:
                os.truncate(path, chance.choice((0, 1, 64, 127, 128, 500, 2000, 17_000, 300_000, 2**33)))
            elif action == 1:
                path.write_bytes(good)
            elif action == 2:
                other = spool / "other"
                other.write_bytes(good[: chance.choice((0, 100, len(good)))])
                other.rename(path)
            elif action == 3:
                path.unlink()
                path.write_bytes(good)
            elif action == 4:
                path.unlink()
                os.mkfifo(path)
            else:
                path.unlink()
                path.symlink_to(chance.choice(("/etc/passwd", "nowhere", "a.0.rank")))
            scrape = node.scrape()
            if action in (4, 5):
                path.unlink()
                path.write_bytes(good)
            assert healthy_series(scrape) == healthy, number


def test_a_sink_takes_a_whole_node():
    """The limit of the settings holds more than the budget of eight ranks."""
    sink = Sink(Tally(), limit=20_000, collector="ranks")
    for rank in range(8):
        for index in range(150):
            sink.add("trainvitals_value", 1.0, "run", rank, f"v{index}")
    assert sum(len(family.samples) for family in sink.families()) == 1200
