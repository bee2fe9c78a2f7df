"""The sink that checks samples, and the runner that keeps one collector from hurting another."""

from __future__ import annotations

import math
import threading
import time

import pytest
from tests.helpers import Scrape, wait_until

from trainvitals.collect.base import Collector, NoData, Sink, Tally
from trainvitals.collect.runner import Runner
from trainvitals.metrics import FAMILIES, STEP_BUCKETS


@pytest.fixture
def tally():
    """Give what was rejected, cleaned and dropped."""
    return Tally()


@pytest.fixture
def sink(tally):
    """Give a sink with room for 100 series."""
    return Sink(tally, limit=100, collector="test")


def found(sink):
    """Return what a sink holds."""
    return Scrape(sink.families())


# Values -------------------------------------------------------------------------------------------------------------


def test_samples_become_families(sink):
    """Type, help and labels come from the catalogue; a counter has its suffix once."""
    sink.add("trainvitals_step", 7, "a", 0)
    sink.add("trainvitals_steps_total", 8, "a", 0)
    sink.add("trainvitals_step", 9, "a", 1)

    assert found(sink) == {
        'trainvitals_step{rank="0",run="a"}': 7.0,
        'trainvitals_step{rank="1",run="a"}': 9.0,
        'trainvitals_steps_total{rank="0",run="a"}': 8.0,
    }
    assert [(family.name, family.type) for family in sink.families()] == [
        ("trainvitals_step", "gauge"),
        ("trainvitals_steps", "counter"),
    ]
    assert sink.families()[0].documentation == FAMILIES["trainvitals_step"].help


def test_missing_is_absent(sink, tally):
    """None adds nothing, and is not counted."""
    sink.add("trainvitals_step", None, "a", 0)

    assert found(sink) == {}
    assert (tally.rejected, tally.dropped) == ({}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trainvitals_device_utilization_ratio", 1.01),
        ("trainvitals_device_utilization_ratio", -0.01),
        ("trainvitals_device_utilization_ratio", math.nan),
        ("trainvitals_device_memory_used_bytes", 2**64 - 1),
        ("trainvitals_device_memory_used_bytes", 2**63 - 14),
        ("trainvitals_device_memory_used_bytes", 2.0**64),
        ("trainvitals_device_memory_used_bytes", -1),
        ("trainvitals_device_power_watts", 2**32 - 1),
        ("trainvitals_device_power_watts", -0.5),
        ("trainvitals_device_clock_hertz", 0x7FFFFFF0 * 1e6),
        ("trainvitals_device_clock_hertz", 2**32 - 1),
        ("trainvitals_device_clock_max_hertz", 3.1e10),
        ("trainvitals_device_links_receive_bytes_per_second", 1.1e15),
        ("trainvitals_device_pcie_transmit_bytes_per_second", -1.0),
        ("trainvitals_device_energy_joules_total", 2**32 - 1),
        ("trainvitals_device_energy_joules_total", 140737488355328.0),
        ("trainvitals_device_ecc_errors_total", 0x7FFFFFF2),
        ("trainvitals_device_clock_limited_seconds_total", 2**63 - 16),
        ("trainvitals_device_temperature_celsius", 251.0),
        ("trainvitals_device_temperature_margin_celsius", -(2**31)),
        ("trainvitals_device_pcie_generation", 11),
        ("trainvitals_device_pcie_max_generation", 0),
        ("trainvitals_device_pcie_width", 0),
        ("trainvitals_device_pcie_max_width", 65),
        ("trainvitals_device_performance_state", 32),
        ("trainvitals_device_remapped_rows", 2**32 - 2),
        ("trainvitals_device_row_remap_banks", 2**32 - 2),
        ("trainvitals_device_retired_pages", 1_000_001),
        ("trainvitals_device_row_remap_pending", 2),
        ("trainvitals_device_retired_pages_pending", 2),
        ("trainvitals_device_repair_pending", 2),
        ("trainvitals_device_row_remap_failed", 2),
        ("trainvitals_device_ecc_enabled", 2),
        ("trainvitals_device_ecc_sram_threshold_exceeded", 2),
        ("trainvitals_device_recovery_needed", 2),
        ("trainvitals_device_clock_limited", 2),
        ("trainvitals_host_cpus", 0x7FFFFFF0),
        ("trainvitals_step", math.nan),
        ("trainvitals_step", math.inf),
        ("trainvitals_step", -math.inf),
        ("trainvitals_step", 10**400),
        ("trainvitals_loss", 10**400),
        ("trainvitals_steps_total", -1),
        ("trainvitals_steps_total", math.inf),
        ("trainvitals_heartbeat_timestamp_seconds", math.nan),
    ],
)
def test_impossible_values_are_rejected_and_counted(sink, tally, name, value):
    """A ratio above 1, an all-ones integer, a counter below 0, an infinity that nobody measured."""
    labels = ["x"] * len(FAMILIES[name].labels)
    sink.add(name, value, *labels)
    sink.add(name, value, *labels)

    assert found(sink) == {}
    assert tally.rejected == {name: 2}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trainvitals_device_utilization_ratio", 0),
        ("trainvitals_device_utilization_ratio", 1.0),
        ("trainvitals_signal_ratio", 25.0),
        ("trainvitals_loss", math.nan),
        ("trainvitals_loss", -math.inf),
        ("trainvitals_loss", 2.0**64),
        ("trainvitals_grad_norm", math.inf),
        ("trainvitals_value", -1e300),
        ("trainvitals_evaluation", math.nan),
        ("trainvitals_step", -5),
        ("trainvitals_device_temperature_celsius", -10.0),
        ("trainvitals_device_temperature_margin_celsius", -5),
        ("trainvitals_device_clock_hertz", 14_001e6),
        ("trainvitals_device_pcie_generation", 6),
        ("trainvitals_device_pcie_width", 32),
        ("trainvitals_host_memory_total_bytes", 2**47),
        ("trainvitals_tokens_total", 1e18),
        ("trainvitals_rank_up", True),
    ],
)
def test_unusual_values_are_not_impossible(sink, tally, name, value):
    """A loss that is NaN is what was measured."""
    sink.add(name, value, *["x"] * len(FAMILIES[name].labels))

    (seen,) = found(sink).values()
    assert seen == value or (math.isnan(seen) and math.isnan(value))
    assert tally.rejected == {}


def test_a_second_sample_with_the_same_labels_is_rejected(sink, tally):
    """Prometheus would refuse the whole scrape."""
    sink.add("trainvitals_step", 1, "a", 0)
    sink.add("trainvitals_step", 2, "a", "0")
    sink.add("trainvitals_steps_total", 2, "a", 0)

    assert found(sink)['trainvitals_step{rank="0",run="a"}'] == 1.0
    assert tally.rejected == {"trainvitals_step": 1}


def test_labels_that_are_the_same_once_cleaned_are_the_same(sink, tally):
    """Two hostile names that differ in what is cut."""
    sink.add("trainvitals_step", 1, "x" * 300 + "a", 0)
    sink.add("trainvitals_step", 2, "x" * 300 + "b", 0)

    assert len(found(sink)) == 1
    assert (tally.rejected, tally.cleaned) == ({"trainvitals_step": 1}, 2)


# Labels -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("训练-1 é 🚀", "训练-1 é 🚀"),
        ('quote " and \\', 'quote " and \\'),
        (7, "7"),
        ("x" * 256, "x" * 256),
        ("x" * 257, "x" * 256),
        ("é" * 10_000, "é" * 256),
        ("a\nb", "a b"),
        ("a\r\n\tb", "a b"),
        ("\x00\x01", " "),
        ("\x1b[31mred", " [31mred"),
        ("a\x7f\x85b", "a b"),
        ("a\u2028\u2029b", "a b"),
        ("a\u202egnp.exe", "a gnp.exe"),
        ("zero\u200bwidth\ufeff", "zero width "),
        ("\ud800", " "),
        ("a\uffffb", "a b"),
    ],
)
def test_labels_are_cut_and_cleaned(sink, tally, label, expected):
    """Control characters, turned text and half characters become a space; what was changed is counted."""
    sink.add("trainvitals_step", 1, label, 0)

    ((sample,),) = (family.samples for family in sink.families())
    assert sample.labels["run"] == expected
    assert tally.cleaned == (str(label) != expected)
    sample.labels["run"].encode()


# The cap ------------------------------------------------------------------------------------------------------------


def test_series_beyond_the_cap_are_dropped_and_counted(tally):
    """The first ones stay."""
    sink = Sink(tally, limit=3, collector="test")
    for rank in range(5):
        sink.add("trainvitals_step", rank, "a", rank)

    assert list(found(sink).values()) == [0.0, 1.0, 2.0]
    assert tally.dropped == {"test": 2}


def test_a_histogram_counts_with_all_its_series(tally):
    """13 buckets, sum and count; half a histogram is none."""
    sink = Sink(tally, limit=20, collector="test")
    counts = [1, 2, *[0] * 10, 3]
    assert len(counts) == len(STEP_BUCKETS) + 1
    sink.histogram("trainvitals_step_duration_seconds", counts, 12.5, "a", 0)
    sink.histogram("trainvitals_step_duration_seconds", counts, 12.5, "a", 1)
    for rank in range(6):
        sink.add("trainvitals_step", 1, "a", rank)

    scrape = found(sink)
    name = "trainvitals_step_duration_seconds"
    assert len(scrape) == 20
    assert scrape[f'{name}_bucket{{le="0.001",rank="0",run="a"}}'] == 1.0
    assert scrape[f'{name}_bucket{{le="120.0",rank="0",run="a"}}'] == 3.0
    assert scrape[f'{name}_bucket{{le="+Inf",rank="0",run="a"}}'] == 6.0
    assert scrape[f'{name}_count{{rank="0",run="a"}}'] == 6.0
    assert scrape[f'{name}_sum{{rank="0",run="a"}}'] == 12.5
    assert tally.dropped == {"test": 15 + 1}


@pytest.mark.parametrize(("first", "total"), [(0, math.inf), (0, math.nan), (-1, 1.0)])
def test_an_impossible_histogram_is_rejected(sink, tally, first, total):
    """A sum that is no number, a count below 0."""
    sink.histogram("trainvitals_step_duration_seconds", [first, *[0] * 12], total, "a", 0)

    assert found(sink) == {}
    assert tally.rejected == {"trainvitals_step_duration_seconds": 1}


# The runner ---------------------------------------------------------------------------------------------------------


class Source(Collector):
    """A collector that does what the test says: add a series, raise, hang."""

    def __init__(self, name, action="add"):
        self.name = name
        self.action = action
        self.calls = 0
        self.hanging = threading.Event()
        self.free = threading.Event()

    def collect(self, sink):
        """Do it."""
        self.calls += 1
        if self.action == "hang":
            self.hanging.set()
            self.free.wait(60.0)
            self.hanging.clear()
        if isinstance(self.action, BaseException):
            sink.add("trainvitals_signal_ratio", 1.0, self.name, "before")
            raise self.action
        sink.add("trainvitals_signal_ratio", float(self.calls), self.name, "x")


@pytest.fixture
def start():
    """Give a function that makes a runner; stop what it made."""
    runners = []

    def make(*sources, timeout=60.0, limit=100):
        runner = Runner(sources, timeout=timeout, limit=limit)
        runners.append((runner, sources))
        return runner

    yield make
    for runner, sources in runners:
        for source in sources:
            source.free.set()
        runner.stop()


def rounds(runner):
    """Run one round."""
    return Scrape(runner.run({"trainvitals_build_info": ("1", "3")}, 5.0))


def success(scrape):
    """Return success by collector."""
    prefix = 'trainvitals_collector_success{collector="'
    return {name[len(prefix) : -2]: value for name, value in scrape.items() if name.startswith(prefix)}


def test_all_collectors_are_gathered(start):
    """With success, duration, the exporter's own series and the time of the snapshot."""
    scrape = rounds(start(Source("a"), Source("b")))

    durations = {name: value for name, value in scrape.items() if "duration" in name}
    assert len(durations) == 2
    assert all(0.0 <= value < 60.0 for value in durations.values())
    assert {name: value for name, value in scrape.items() if name not in durations} == {
        'trainvitals_signal_ratio{run="a",signal="x"}': 1.0,
        'trainvitals_signal_ratio{run="b",signal="x"}': 1.0,
        'trainvitals_collector_success{collector="a"}': 1.0,
        'trainvitals_collector_success{collector="b"}': 1.0,
        'trainvitals_build_info{python="3",version="1"}': 1.0,
        "trainvitals_snapshot_timestamp_seconds": 5.0,
        "trainvitals_labels_cleaned_total": 0.0,
        'trainvitals_series_dropped_total{collector="a"}': 0.0,
        'trainvitals_series_dropped_total{collector="b"}': 0.0,
    }


def test_no_data_is_success(start):
    """There is nothing of this kind on this machine: no error, no series."""
    scrape = rounds(start(Source("a", NoData()), Source("b")))

    assert success(scrape) == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_a_collector_that_raises_costs_only_itself(start, caplog, error):
    """Whatever it raises; what it had read before stays; it is asked again in the next round, and logged once."""
    bad, good = Source("bad", error), Source("good")
    runner = start(bad, good)
    for number in (1, 2, 3):
        scrape = rounds(runner)
        assert success(scrape) == {"bad": 0.0, "good": 1.0}
        assert scrape['trainvitals_signal_ratio{run="bad",signal="before"}'] == 1.0
        assert scrape['trainvitals_signal_ratio{run="good",signal="x"}'] == number
    assert [record.getMessage() for record in caplog.records] == [
        f"collector bad failed: {type(error).__name__}: {error}"
    ]
    bad.action = "add"

    assert success(rounds(runner)) == {"bad": 1.0, "good": 1.0}


def test_a_collector_that_hangs_is_left_alone_until_it_recovers(start):
    """It fails, it is not started a second time, the others go on; once it is back, it is asked again."""
    bad, good = Source("bad", "hang"), Source("good")
    runner = start(bad, good, timeout=0.2)
    for number in (1, 2, 3):
        scrape = rounds(runner)
        assert success(scrape) == {"bad": 0.0, "good": 1.0}
        assert 'trainvitals_collector_duration_seconds{collector="bad"}' not in scrape
        assert not any('run="bad"' in name for name in scrape)
        assert scrape['trainvitals_signal_ratio{run="good",signal="x"}'] == number
    assert bad.calls == 1
    bad.action = "add"
    bad.free.set()

    wait_until(lambda: success(rounds(runner)) == {"bad": 1.0, "good": 1.0})
    assert bad.calls >= 2


def test_one_that_hangs_delays_a_round_by_the_time_limit_only(start):
    """Once in all, however many hang; those that already hang are not waited for."""
    sources = [Source(f"bad-{index}", "hang") for index in range(5)]
    runner = start(*sources, timeout=2.0)
    begun = time.monotonic()
    rounds(runner)
    first = time.monotonic() - begun
    for source in sources:
        assert source.hanging.wait(60.0)
    begun = time.monotonic()
    rounds(runner)

    assert 1.9 < first < 9.9
    assert time.monotonic() - begun < 1.9


def test_a_late_result_is_not_shown_in_a_later_round(start):
    """Values of the past must not look like values of now."""
    source = Source("late", "hang")
    runner = start(source, timeout=0.1)
    rounds(runner)
    source.free.set()
    wait_until(lambda: not source.hanging.is_set())
    source.free.clear()
    source.hanging.clear()
    scrape = rounds(runner)

    assert success(scrape) == {"late": 0.0}
    assert not any('run="late"' in name for name in scrape)


def test_a_runner_that_stops_does_not_wait_for_one_that_hangs(start):
    """Its thread is a daemon's."""
    source = Source("bad", "hang")
    runner = start(source, timeout=0.05)
    rounds(runner)
    begun = time.monotonic()
    runner.stop()

    assert time.monotonic() - begun < 30.0
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "collect-bad"] == [True]


def test_a_runner_that_stops_leaves_no_thread(start):
    """Those that do not hang end."""
    start(Source("good")).stop()

    assert not [thread for thread in threading.enumerate() if thread.name == "collect-good"]


def test_what_was_rejected_is_counted_over_all_rounds(start):
    """By family, by collector."""

    class Careless(Source):
        def collect(self, sink):
            for index in range(5):
                sink.add("trainvitals_step", index, "a\n", index)
            sink.add("trainvitals_host_cpus", math.nan)

    runner = start(Careless("careless"), limit=3)
    for _ in range(3):
        scrape = rounds(runner)

    assert scrape['trainvitals_values_rejected_total{family="trainvitals_host_cpus"}'] == 3.0
    assert scrape['trainvitals_series_dropped_total{collector="careless"}'] == 6.0
    assert scrape["trainvitals_labels_cleaned_total"] == 15.0
