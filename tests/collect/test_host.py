"""The collector of the node."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.held import held, new_since

from trainvitals.collect.base import Sink, Tally
from trainvitals.collect.host import HostCollector
from trainvitals.host.system import Host


class FakeHost:
    """A host with these readings."""

    cpu_seconds = staticmethod(lambda: {"user": 10.0, "idle": 90.0})
    cpus = staticmethod(lambda: 4)
    load1 = staticmethod(lambda: 0.5)
    memory = staticmethod(lambda: (1000, 600))
    swap_used = staticmethod(lambda: 0)
    boot_timestamp = staticmethod(lambda: 1.7e9)


def collect(host):
    """Return the series of one round, and what it raised at the end."""
    sink = Sink(Tally(), limit=20_000, collector="host")
    raised = None
    try:
        HostCollector(host, SimpleNamespace(parts=())).collect(sink)
    except OSError as error:
        raised = error
    samples = [sample for family in sink.families() for sample in family.samples]
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}, raised


EVERYTHING = {
    ("trainvitals_host_cpu_seconds_total", "user"): 10.0,
    ("trainvitals_host_cpu_seconds_total", "idle"): 90.0,
    ("trainvitals_host_cpus",): 4,
    ("trainvitals_host_load1",): 0.5,
    ("trainvitals_host_memory_total_bytes",): 1000,
    ("trainvitals_host_memory_available_bytes",): 600,
    ("trainvitals_host_swap_used_bytes",): 0,
    ("trainvitals_host_boot_timestamp_seconds",): 1.7e9,
}


def test_every_reading_has_its_family():
    """These readings become these series, and no others."""
    assert collect(FakeHost()) == (EVERYTHING, None)


@pytest.mark.parametrize(
    ("part", "families"),
    [
        ("cpu_seconds", {"trainvitals_host_cpu_seconds_total"}),
        ("memory", {"trainvitals_host_memory_total_bytes", "trainvitals_host_memory_available_bytes"}),
    ],
)
def test_a_part_that_fails_costs_itself(part, families):
    """The others keep their series; the failure is raised at the end, so that the collector does not look healthy."""
    host = FakeHost()

    def fail():
        raise PermissionError(13, part)

    setattr(host, part, fail)
    found, raised = collect(host)

    assert found == {key: value for key, value in EVERYTHING.items() if key[0] not in families}
    assert str(raised) == f"[Errno 13] {part}"


def test_what_is_not_known_is_absent():
    """No number of CPUs: no series."""
    host = FakeHost()
    host.cpus = lambda: None

    found, raised = collect(host)

    assert raised is None
    assert set(EVERYTHING) - set(found) == {
        ("trainvitals_host_cpus",),
    }


def test_rounds_on_this_machine_leave_nothing_behind():
    """Descriptors and threads are the same before and after 50 rounds."""
    collector = HostCollector(Host())
    collector.collect(Sink(Tally(), limit=20_000, collector="host"))
    before = held()

    for _ in range(50):
        collector.collect(Sink(Tally(), limit=20_000, collector="host"))

    assert new_since(before) == []
