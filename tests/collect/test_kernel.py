"""From the kernel's log to families, on the fixtures and on a log that cannot be read."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.held import held, new_since
from tests.helpers import Scrape

from trainvitals.collect.base import NoData, Sink, Tally
from trainvitals.collect.faults import FaultLog, FaultsCollector
from trainvitals.collect.kernel import KernelCollector
from trainvitals.collect.moments import Moments
from trainvitals.host.kernel_kinds import KINDS
from trainvitals.host.kmsg import KernelLog
from trainvitals.telemetry import Fault

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kernel"
BOOT = 1_700_000_000.0


class Clock:
    """Seconds since boot, turned on by hand."""

    now = 1000.0

    def monotonic(self) -> float:
        """Return the time since boot."""
        return self.now

    def wall(self) -> float:
        """Return the wall time."""
        return BOOT + self.now


class Node:
    """A kernel's log in a file, with both collectors behind it."""

    def __init__(self, path: Path, *, limit: int = 10_000, patience: float = 0.0) -> None:
        self.path = path
        self.clock = Clock()
        self.faults = FaultLog(patience=patience)
        log = KernelLog(str(path), limit=limit, clock=self.clock.wall, monotonic=self.clock.monotonic)
        self.kernel = KernelCollector(log, self.faults)
        self._collectors = (self.kernel, FaultsCollector(self.faults))

    def scrape(self) -> Scrape:
        """Collect once, the log first."""
        families = []
        for collector in self._collectors:
            sink = Sink(Tally(), limit=20_000, collector=collector.name)
            with contextlib.suppress(NoData):
                collector.collect(sink)
            families += sink.families()
        return Scrape(families)

    def write(self, *lines: str) -> None:
        """Append records to the log."""
        with self.path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)


@pytest.fixture
def make(tmp_path) -> Iterator[Callable[..., Node]]:
    """Return a function that makes a node whose log is a copy of a fixture, or this text."""
    nodes: list[Node] = []

    def make_node(log: str, **more: float) -> Node:
        path = tmp_path / "kmsg"
        path.write_text((FIXTURES / log).read_text() if log.endswith(".kmsg") else log)
        nodes.append(Node(path, **more))
        return nodes[-1]

    yield make_node
    for node in nodes:
        node.kernel.stop()


def test_every_complaint_is_counted_by_kind(make):
    """All kinds are there, with 0 for what did not happen, and times where something did."""
    node = make("node.kmsg")
    node.faults.know({"0000:18:00.0": ("0", "GPU-a")})

    found = node.scrape()

    count = {kind.name: found[f'trainvitals_kernel_events_total{{kind="{kind.name}"}}'] for kind in KINDS}
    more = {"cgroup_oom_kill": 2, "nfs_not_responding": 2, "link_down": 2, "disk_error": 2}
    more |= {"filesystem_error": 2, "segfault": 2}
    assert count == {kind.name: more.get(kind.name, 1) for kind in KINDS}
    when = "trainvitals_kernel_event_last_timestamp_seconds"
    assert found[f'{when}{{kind="nfs_not_responding",place="store-1.example"}}'] == BOOT + 11.0
    assert found[f'{when}{{kind="nfs_not_responding",place="store-2.example"}}'] == BOOT + 11.2
    assert found[f'{when}{{kind="pcie_corrected",place="0000:18:00.0"}}'] == BOOT + 13.000001
    assert found["trainvitals_kernel_log_readable"] == 1.0
    assert found["trainvitals_kernel_log_oldest_timestamp_seconds"] == BOOT
    assert found['trainvitals_device_fallen_off_bus_total{device="0",pci_bus_id="0000:18:00.0",uuid="GPU-a"}'] == 1.0
    assert found['trainvitals_device_fallen_off_bus_total{device="",pci_bus_id="0000:29:00.0",uuid=""}'] == 1.0
    switch = "trainvitals_nvswitch_sxid_errors_total"
    assert found[f'{switch}{{effect="nonfatal",link="46",pci_bus_id="0000:e6:00.0",sxid="12028"}}'] == 1.0
    assert found[f'{switch}{{effect="fatal",link="5",pci_bus_id="0000:e7:00.0",sxid="20034"}}'] == 1.0
    assert found[f'{switch}{{effect="unknown",link="",pci_bus_id="0000:e7:00.0",sxid="10006"}}'] == 1.0


def test_xids_of_the_log_become_series_of_their_devices(make):
    """31 twice is 2; 79 and the words after it are one XID and one fall; 149 has its sub-codes; times are their own."""
    node = make("xids.kmsg")
    node.faults.know({"0000:2a:00.0": ("1", "GPU-b"), "0000:72:00.0": ("4", "GPU-c"), "0009:01:00.0": ("7", "GPU-d")})

    found = node.scrape()

    def of(family: str, device: int, pci: str, uuid: str, rest: str) -> float:
        return found[f'trainvitals_device_{family}{{device="{device}",pci_bus_id="{pci}",uuid="{uuid}"{rest}}}']

    assert of("xid_errors_total", 1, "0000:2a:00.0", "GPU-b", ',xid="31"') == 2.0
    assert of("xid_last_timestamp_seconds", 1, "0000:2a:00.0", "GPU-b", ',xid="31"') == BOOT + 52.300901
    assert of("xid_errors_total", 4, "0000:72:00.0", "GPU-c", ',xid="79"') == 1.0
    assert of("fallen_off_bus_total", 4, "0000:72:00.0", "GPU-c", "") == 1.0
    assert of("xid_errors_total", 7, "0009:01:00.0", "GPU-d", ',xid="149"') == 2.0
    links = {
        name.split("{")[1]: value for name, value in found.items() if name.startswith("trainvitals_device_link_faults")
    }
    device = 'device="7",effect="{}",link="{}",pci_bus_id="0009:01:00.0",subcode="{}",uuid="GPU-d",xid="{}"}}'
    assert links == {
        'cause="",' + device.format("nonfatal", "2", "SAW_MVB", 144): 1.0,
        'cause="",' + device.format("nonfatal", "11", "RLW_RXPIPE", 145): 1.0,
        'cause="signal_or_cable",' + device.format("fatal", "7", "NETIR_LINK_EVT", 149): 1.0,
        'cause="",' + device.format("fatal", "", "NETIR", 149): 1.0,
        'cause="",' + device.format("fatal", "0", "MSE_WATCHDOG", 150): 1.0,
    }
    # The driver told this UUID itself; what a user wrote into the log is nowhere.
    first = 'device="",pci_bus_id="0000:1b:00.0",uuid="GPU-0b1e7a52-93c4-4d1f-8a60-2f9d7c3e5a11",xid="13"'
    assert found[f"trainvitals_device_xid_errors_total{{{first}}}"] == 2.0
    assert not any("0000:d6:00.0" in name for name in found)


def test_the_drivers_event_and_the_line_of_the_log_are_one(make):
    """Even when the kernel's clock is 40 s behind after months."""
    node = make("6,1,1000000,-;NVRM: loading\n")
    node.faults.know({"0000:05:00.0": ("0", "GPU-a")})
    node.scrape()

    node.clock.now += 5.0
    node.faults.add(Fault("driver", "00000000:05:00.0", 48, BOOT + 1003.0))
    node.write("4,2,963000000,-;NVRM: Xid (PCI:0000:05:00): 48, pid=1, name=python, DBE")

    labels = 'device="0",pci_bus_id="0000:05:00.0",uuid="GPU-a",xid="48"'
    assert node.scrape()[f"trainvitals_device_xid_errors_total{{{labels}}}"] == 1.0


def test_new_records_are_added_to_what_was_there(make):
    """Counters go on; a round without news changes nothing."""
    node = make("node.kmsg")
    before = node.scrape()
    assert node.scrape() == before

    node.clock.now += 5.0
    node.write("3,159,1003000000,-;nfs: server store-1.example not responding, still trying")

    after = node.scrape()
    changed = {name: after[name] for name in after if after[name] != before.get(name)}
    assert changed == {
        'trainvitals_kernel_events_total{kind="nfs_not_responding"}': 3.0,
        'trainvitals_kernel_event_last_timestamp_seconds{kind="nfs_not_responding",place="store-1.example"}': BOOT
        + 1003.0,
    }


def test_what_happened_before_the_start_is_counted_at_once(make):
    """Bit by bit it would look like new events: the first round takes 25 times the limit of a round, no more."""
    lines = (f"3,{number},{number},-;nfs: server s not responding, still trying\n" for number in range(30_000))
    node = make("".join(lines), limit=1_000)
    name = 'trainvitals_kernel_events_total{kind="nfs_not_responding"}'

    # A read takes several records from a file, so a round may go a little beyond its limit.
    assert 25_000 <= node.scrape()[name] < 30_000


def test_a_flood_does_not_stall_a_round(make):
    """A round takes its limit; all is counted in the end, and what is missing in the sequence as lost."""
    node = make("3,0,0,-;a start\n", limit=1_000)
    name = 'trainvitals_kernel_events_total{kind="nfs_not_responding"}'
    assert node.scrape()[name] == 0
    node.write(*(f"3,{number},{number},-;nfs: server s not responding, still trying" for number in range(2, 5_002, 2)))

    found = [node.scrape() for _ in range(3)]

    assert 1_000 <= found[0][name] < 1_500
    assert found[2][name] == 2_500
    assert found[2]["trainvitals_kernel_log_records_lost_total"] == 2_500


def test_a_clock_that_is_set_takes_the_times_along(make):
    """A node that starts hours ahead must not show an event of then as one of the hours to come."""
    node = make("3,1,11000000,-;I/O error, dev sdc, sector 8\n3,2,12000000,-;NVRM: Xid (PCI:0000:05:00): 79, lost\n")
    ahead = 8 * 3600.0
    clocks = Moments(lambda: node.clock.wall() + ahead, node.clock.monotonic)
    faults = FaultLog(patience=0.0, moments=clocks)
    log = KernelLog(str(node.path), clock=lambda: node.clock.wall() + ahead, monotonic=node.clock.monotonic)
    kernel = KernelCollector(log, faults, clocks)

    def times() -> dict[str, float]:
        families = []
        for collector in (kernel, FaultsCollector(faults)):
            sink = Sink(Tally(), limit=1000, collector=collector.name)
            collector.collect(sink)
            families += sink.families()
        return {name: value for name, value in Scrape(families).items() if "timestamp" in name}

    before = times()
    ahead = 0.0
    after = times()
    kernel.stop()

    assert set(before.values()) == {BOOT + 28_811.0, BOOT + 28_812.0}
    assert after == {name: value - 28_800.0 for name, value in before.items()}


def test_places_without_end_are_bounded(make):
    """Beyond a number of places of a kind the events are counted and have no place; other kinds keep theirs."""
    lines = [f"3,{n},{n},-;nfs: server s{n} not responding, still trying\n" for n in range(500)]
    found = make("".join([*lines, "3,500,500,-;I/O error, dev sdc, sector 8\n"])).scrape()

    when = "trainvitals_kernel_event_last_timestamp_seconds"
    assert found['trainvitals_kernel_events_total{kind="nfs_not_responding"}'] == 500
    assert f'{when}{{kind="disk_error",place="sdc"}}' in found
    assert len([name for name in found if name.startswith(when)]) == 22
    assert f'{when}{{kind="nfs_not_responding",place=""}}' in found


def test_a_log_that_cannot_be_read_is_told_once(tmp_path, caplog):
    """No failure of the collector, no counters; and all is well when it comes."""
    path = tmp_path / "kmsg"
    faults = FaultLog(patience=0.0)
    collector = KernelCollector(KernelLog(str(path)), faults)

    def collect() -> Scrape:
        sink = Sink(Tally(), limit=20_000, collector="kernel")
        collector.collect(sink)
        return Scrape(sink.families())

    with caplog.at_level(logging.WARNING):
        assert collect() == collect() == {"trainvitals_kernel_log_readable": 0.0}
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["the kernel's log cannot be read"]
    path.write_text("6,1,1000000,-;a\n")
    assert collect()["trainvitals_kernel_log_readable"] == 1.0
    collector.stop()


def test_rounds_leave_nothing_behind(make):
    """Descriptors and threads are the same after the collector has stopped."""
    before = held()
    node = make("node.kmsg")

    for _ in range(200):
        node.scrape()
    node.kernel.stop()

    assert new_since(before) == []
