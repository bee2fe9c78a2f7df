"""What a scrape gets: text format 0.0.4, rendered once, each family on its own."""

from __future__ import annotations

import gzip
import logging
import shutil
import subprocess
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from trainvitals.metrics import FAMILIES
from trainvitals.serve.snapshot import SnapshotStore

FAILED = """\
# HELP trainvitals_families_failed_total Families left out of a scrape because they could not be rendered.
# TYPE trainvitals_families_failed_total counter
trainvitals_families_failed_total {}.0
"""


def gauge(name, *samples, labels=("run",)):
    """Return a gauge with the help text "Help." and (label values, value) pairs."""
    family = GaugeMetricFamily(name, "Help.", labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def lines(snapshot):
    """Return the lines of the text without help, types and the count of failures."""
    return [
        line
        for line in snapshot.text.decode().splitlines()
        if not line.startswith(("#", "trainvitals_families_failed_total"))
    ]


def test_the_text_is_the_format_of_prometheus():
    """Help, type, labels in order, escapes, NaN, infinity, counters and histograms are as Prometheus reads them."""
    counter = CounterMetricFamily("trainvitals_steps", "Steps.", labels=("run", "rank"))
    counter.add_metric(["a", "0"], 3)
    histogram = HistogramMetricFamily("trainvitals_step_duration_seconds", "Time.", labels=("run",))
    histogram.add_metric(["a"], [("0.5", 1), ("+Inf", 2)], sum_value=3.5)
    loss = gauge("trainvitals_loss", (['b\\"\n\u4e2d'], float("nan")), (["c"], float("inf")))

    snapshot = SnapshotStore().publish([counter, histogram, loss])

    assert snapshot.text.decode() == (
        "# HELP trainvitals_steps_total Steps.\n"
        "# TYPE trainvitals_steps_total counter\n"
        'trainvitals_steps_total{rank="0",run="a"} 3.0\n'
        "# HELP trainvitals_step_duration_seconds Time.\n"
        "# TYPE trainvitals_step_duration_seconds histogram\n"
        'trainvitals_step_duration_seconds_bucket{le="0.5",run="a"} 1.0\n'
        'trainvitals_step_duration_seconds_bucket{le="+Inf",run="a"} 2.0\n'
        'trainvitals_step_duration_seconds_count{run="a"} 2.0\n'
        'trainvitals_step_duration_seconds_sum{run="a"} 3.5\n'
        "# HELP trainvitals_loss Help.\n"
        "# TYPE trainvitals_loss gauge\n"
        'trainvitals_loss{run="b\\\\\\"\\n\u4e2d"} NaN\n'
        'trainvitals_loss{run="c"} +Inf\n' + FAILED.format(0)
    )
    assert gzip.decompress(snapshot.gzipped) == snapshot.text


def test_the_newest_snapshot_is_kept():
    """There is none before the first, and then the last one published."""
    store = SnapshotStore()
    assert store.current is None

    store.publish([gauge("trainvitals_loss", (["a"], 1))])
    second = store.publish([gauge("trainvitals_loss", (["a"], 2))])

    assert store.current is second
    assert lines(second) == ['trainvitals_loss{run="a"} 2.0']


def test_creation_times_are_left_out():
    """A counter with a creation time has no _created series."""
    family = CounterMetricFamily("trainvitals_steps", "Steps.", labels=("run",))
    family.add_metric(["a"], 3, created=1.7e9)

    assert lines(SnapshotStore().publish([family])) == ['trainvitals_steps_total{run="a"} 3.0']


def test_a_family_of_two_collectors_is_one_family():
    """Samples are joined under one header; of two with the same labels the first stays; the inputs do not change."""
    first = gauge("trainvitals_loss", (["a"], 1), (["b"], 2))
    second = gauge("trainvitals_loss", (["b"], 3), (["c"], 4))

    snapshot = SnapshotStore().publish([first, second])

    assert sorted(lines(snapshot)) == [
        'trainvitals_loss{run="a"} 1.0',
        'trainvitals_loss{run="b"} 2.0',
        'trainvitals_loss{run="c"} 4.0',
    ]
    assert snapshot.text.count(b"# TYPE trainvitals_loss ") == 1
    assert (len(first.samples), len(second.samples)) == (2, 2)


def test_the_second_of_two_types_is_refused_and_counted():
    """A gauge and a counter that would have one name in the text cannot both be there."""
    counter = CounterMetricFamily("trainvitals_steps", "Steps.", value=1)

    snapshot = SnapshotStore().publish([counter, gauge("trainvitals_steps_total", (["a"], 5))])

    assert lines(snapshot) == ["trainvitals_steps_total 1.0"]
    assert snapshot.text.decode().endswith(FAILED.format(1))


@pytest.mark.parametrize(
    "broken",
    [
        gauge("trainvitals_value", (["a"], "not a number")),
        gauge("trainvitals_value", (["\ud800"], 1)),
        gauge("trainvitals_value", ([None], 1)),
    ],
    ids=["value", "label that is no Unicode", "label that is no text"],
)
def test_a_family_that_cannot_be_rendered_costs_itself(broken, caplog):
    """The others stay, it is counted each time and logged once."""
    store = SnapshotStore()
    good = [gauge("trainvitals_loss", (["a"], 1)), gauge("trainvitals_step", (["a"], 2))]

    with caplog.at_level(logging.WARNING):
        store.publish([good[0], broken, good[1]])
        snapshot = store.publish([good[0], broken, good[1]])

    assert lines(snapshot) == ['trainvitals_loss{run="a"} 1.0', 'trainvitals_step{run="a"} 2.0']
    assert snapshot.text.decode().endswith(FAILED.format(2))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "family trainvitals_value is left out of the scrape"
    ]


TEXTS = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=8)
NUMBERS = st.one_of(st.floats(), st.integers(-(2**70), 2**70))


@given(
    rounds=st.lists(st.dictionaries(st.tuples(TEXTS, TEXTS), NUMBERS, max_size=4), min_size=2, max_size=3),
    kind=st.sampled_from([GaugeMetricFamily, CounterMetricFamily]),
)
def test_what_is_kept_from_round_to_round_changes_no_byte(rounds, kind):
    """Series come, change, go and come back: the text is the library's own, whatever labels hold."""
    store = SnapshotStore()
    for values in rounds:
        family = kind("trainvitals_x", "Help\\ of\ntwo lines.", labels=("run", "rank"))
        for labels, number in values.items():
            family.add_metric(labels, number)

        text = store.publish([family]).text

        assert generate_latest(Alone(family)) + FAILED.format(0).encode() == text


class Alone:
    """A registry of one family."""

    def __init__(self, family):
        self.family = family

    def collect(self):
        """Return it."""
        return [self.family]


def test_a_sample_with_a_time_keeps_it():
    """No collector of ours sets one, and none is lost without a word."""
    family = GaugeMetricFamily("trainvitals_x", "Help.", labels=("run",))
    family.add_metric(["a"], 1.5, timestamp=1700000000.25)

    assert ['trainvitals_x{run="a"} 1.5 1700000000250'] == lines(SnapshotStore().publish([family]))


def test_series_that_are_gone_leave_nothing_behind():
    """A node sees many runs in its life."""
    store = SnapshotStore()
    for number in range(50):
        store.publish([gauge("trainvitals_loss", ([f"run {number}"], 1.0))])

    assert len(store._lines._starts) == 2


def test_readers_see_whole_snapshots_only():
    """While one thread publishes, another never sees a text and a compressed text of different rounds."""
    store = SnapshotStore()
    stop = threading.Event()

    def publish():
        value = 0
        while not stop.is_set():
            store.publish([gauge("trainvitals_loss", (["a"], value))])
            value += 1

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        seen = set()
        while len(seen) < 20:
            if (snapshot := store.current) is not None:
                assert gzip.decompress(snapshot.gzipped) == snapshot.text
                seen.add(snapshot.text)
    finally:
        stop.set()
        thread.join()


def test_promtool_accepts_every_family_of_the_catalogue():
    """One sample of each family passes `promtool check metrics` without a remark."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    families = []
    for row in FAMILIES.values():
        if row.name == "trainvitals_families_failed_total":
            continue  # The store adds it by itself.
        if row.type == "histogram":
            family = HistogramMetricFamily(row.name, row.help, labels=row.labels)
            family.add_metric(["x"] * len(row.labels), [("1.0", 1), ("+Inf", 1)], sum_value=1)
        else:
            builder = CounterMetricFamily if row.type == "counter" else GaugeMetricFamily
            family = builder(row.name.removesuffix("_total"), row.help, labels=row.labels)
            family.add_metric(["x"] * len(row.labels), 1)
        families.append(family)

    text = SnapshotStore().publish(families).text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)

    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "", "")
