"""Readings of the node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import psutil

from trainvitals.host.system import Host


class Times(NamedTuple):
    """CPU times, as psutil describes them on Linux."""

    user: float = 100.0
    nice: float = 2.0
    system: float = 30.0
    idle: float = 4000.0
    iowait: float = 5.0
    irq: float = 0.5
    softirq: float = 0.25
    steal: float = 1.0
    guest: float = 90.0
    guest_nice: float = 1.0


def test_cpu_time_counts_nothing_twice():
    """The time of guests is part of user and nice already."""
    assert Host(SimpleNamespace(cpu_times=Times)).cpu_seconds() == {
        "user": 100.0,
        "nice": 2.0,
        "system": 30.0,
        "idle": 4000.0,
        "iowait": 5.0,
        "irq": 0.5,
        "softirq": 0.25,
        "steal": 1.0,
    }


def test_this_machine_can_be_read():
    """Against the real psutil everything has a plausible value."""
    real = Host()
    total, available = real.memory()

    assert set(real.cpu_seconds()) >= {"user", "system", "idle"}
    assert real.cpus() == psutil.cpu_count()
    assert 0.0 <= real.load1()
    assert 0 < available <= total
    assert real.swap_used() >= 0
    assert real.boot_timestamp() > 1e9
