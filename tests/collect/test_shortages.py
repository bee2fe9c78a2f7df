"""What the node runs short of, as families."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.helpers import Scrape
from tests.host.trees import plant

from trainvitals.collect.base import Sink, Tally
from trainvitals.collect.host import HostCollector
from trainvitals.collect.shortages import Shortages
from trainvitals.host.limits import Limits
from trainvitals.host.pressure import Pressure
from trainvitals.host.throttle import CpuThrottle
from trainvitals.host.timesync import Clock

HOST = SimpleNamespace(
    cpu_seconds=dict,
    cpus=lambda: None,
    load1=lambda: None,
    memory=lambda: (None, None),
    swap_used=lambda: None,
    boot_timestamp=lambda: None,
)

PROC = {
    "pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n",
    "pressure/io": "some avg10=0 avg60=0 avg300=0 total=7000000\nfull avg10=0 avg60=0 avg300=0 total=3000000\n",
    "vmstat": "pgmajfault 31\noom_kill 2\n",
}
SYSFS = {
    "devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
    "devices/system/cpu/cpu0/topology/core_id": "0\n",
    "devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "4\n",
    "devices/system/cpu/cpu0/thermal_throttle/core_throttle_total_time_ms": "250\n",
    "devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "6\n",
}
GROUP = {
    "memory.max": "4000\n",
    "memory.current": "3000\n",
    "memory.stat": "inactive_file 500\n",
    "memory.events": "oom_kill 1\n",
    "cpu.max": "150000 100000\n",
    "cpu.stat": "throttled_usec 1250000\n",
}
CLOCK = Clock(synchronized=True, offset=-0.0015, max_error=0.0025)

EVERYTHING = {
    'trainvitals_host_pressure_some_seconds_total{resource="cpu"}': 1.5,
    'trainvitals_host_pressure_some_seconds_total{resource="io"}': 7.0,
    'trainvitals_host_pressure_full_seconds_total{resource="io"}': 3.0,
    "trainvitals_host_oom_kills_total": 2,
    "trainvitals_host_major_page_faults_total": 31,
    'trainvitals_host_cpu_throttles_total{scope="core"}': 4,
    'trainvitals_host_cpu_throttles_total{scope="package"}': 6,
    'trainvitals_host_cpu_throttled_seconds_total{scope="core"}': 0.25,
    "trainvitals_container_memory_limit_bytes": 4000,
    "trainvitals_container_memory_used_bytes": 2500,
    "trainvitals_container_oom_kills_total": 1,
    "trainvitals_container_cpus": 1.5,
    "trainvitals_container_cpu_throttled_seconds_total": 1.25,
    "trainvitals_host_clock_synchronized": 1.0,
    "trainvitals_host_clock_offset_seconds": -0.0015,
    "trainvitals_host_clock_max_error_seconds": 0.0025,
}


def collect(tmp_path, *, proc=PROC, sysfs=SYSFS, group=GROUP, clock=lambda: CLOCK):
    """Return what the collector of the host shows of these trees, and what it raised at the end."""
    shortages = Shortages(
        Pressure(plant(tmp_path / "proc", proc)),
        CpuThrottle(plant(tmp_path / "sys", sysfs)),
        Limits(plant(tmp_path / "cgroup", group)),
        clock,
    )
    sink = Sink(Tally(), limit=20_000, collector="host")
    raised = None
    try:
        HostCollector(HOST, shortages).collect(sink)
    except OSError as error:
        raised = error
    return Scrape(sink.families()), raised


def test_every_reading_has_its_family(tmp_path):
    """An offset may be negative."""
    assert collect(tmp_path) == (EVERYTHING, None)


def test_where_the_kernel_has_nothing_there_is_nothing(tmp_path):
    """No pressure, no counters, no limit: no series, and no failure."""

    def forbidden():
        raise PermissionError(1, "Operation not permitted")

    assert collect(tmp_path, proc={}, sysfs={}, group={}, clock=forbidden) == ({}, None)


@pytest.mark.parametrize(
    ("tree", "broken", "lost"),
    [
        ("proc", "pressure/cpu", "host_pressure"),
        ("proc", "vmstat", ("host_oom", "host_major")),
        ("sys", "devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "host_cpu_thrott"),
        ("cgroup", "memory.max", "container_"),
    ],
)
def test_a_part_that_fails_costs_itself(tmp_path, tree, broken, lost):
    """A folder where a file is expected is an error; all other parts keep their series."""
    collect(tmp_path)
    (tmp_path / tree / broken).unlink()
    (tmp_path / tree / broken).mkdir()
    kept = {"proc": {"proc": {}}, "sys": {"sysfs": {}}, "cgroup": {"group": {}}}[tree]
    found, raised = collect(tmp_path, **kept)

    lost = (lost,) if isinstance(lost, str) else lost
    prefixes = tuple(f"trainvitals_{name}" for name in lost)
    assert found == {name: value for name, value in EVERYTHING.items() if not name.startswith(prefixes)}
    assert isinstance(raised, IsADirectoryError)


def test_a_clock_that_fails_costs_itself(tmp_path):
    """And is told, other than one that is forbidden."""

    def fail():
        raise OSError(5, "Input/output error")

    found, raised = collect(tmp_path, clock=fail)

    assert found == {name: value for name, value in EVERYTHING.items() if "clock" not in name}
    assert str(raised) == "[Errno 5] Input/output error"
