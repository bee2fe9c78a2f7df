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


def test_cpu_time_does_not_fall():
    """The kernel's time of waiting does, by a little; by more it is a new start."""
    readings = iter([Times(), Times(idle=4003.0, iowait=4.9), Times(idle=4004.0, iowait=5.2), Times(idle=7.0)])
    host = Host(SimpleNamespace(cpu_times=lambda: next(readings)))

    seen = [host.cpu_seconds() for _ in range(4)]

    assert [times["iowait"] for times in seen] == [5.0, 5.0, 5.2, 5.2]
    assert [times["idle"] for times in seen] == [4000.0, 4003.0, 4004.0, 7.0]


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
