"""Devices that somebody has and nobody uses."""

from __future__ import annotations

import pytest
from tests.helpers import Scrape

from trainvitals.collect.attribution import AttributionCollector
from trainvitals.collect.base import NoData, Sink, Tally
from trainvitals.collect.ranks import LiveRank
from trainvitals.host.slurm import Job
from trainvitals.telemetry import DeviceProcess, DeviceSample

A = "GPU-aaaaaaaa-0001-0002-0003-000000000004"
B = "GPU-bbbbbbbb-0001-0002-0003-000000000004"


class Jobs:
    """What a prolog told."""

    def __init__(self, *jobs):
        self._jobs = list(jobs)

    def jobs(self):
        """Return the jobs."""
        return self._jobs


def device(index, uuid, share, *, memory=None, up=True):
    """Return a device with such a share of busy time, and a process with so much memory."""
    processes = () if memory is None else (DeviceProcess(4711, memory),)
    sample = DeviceSample(index=index, uuid=uuid, vendor="nvidia", up=up, processes=processes)
    if share is not None:
        sample.set("utilization_ratio", share)
    return sample


class Node:
    """A node whose devices and time a test sets."""

    def __init__(self, *devices, ranks=(), jobs=()):
        self.devices, self.ranks, self.now = list(devices), list(ranks), 1_000.0
        self._collector = AttributionCollector(
            lambda: self.ranks, lambda: self.devices, Jobs(*jobs), sees_host=False, clock=lambda: self.now
        )

    def idle(self, after=0.0):
        """Return the seconds of each device that is shown, by its index, some seconds later."""
        self.now += after
        sink = Sink(Tally(), limit=1_000, collector="attribution")
        try:
            self._collector.collect(sink)
        except NoData:
            return {}
        name = "trainvitals_device_idle_seconds{"
        scrape = Scrape(sink.families())
        return {series.split('device="')[1][0]: value for series, value in scrape.items() if series.startswith(name)}


def test_a_device_of_a_job_that_nothing_runs_on_is_idle():
    """A job was given two and uses one: of the other the seconds grow, of the first they begin anew at each look."""
    node = Node(device(2, A, 0.0), device(3, B, 0.8), jobs=[Job("55", "alice", uuids=(A, B))])

    assert {"2": 0.0, "3": 0.0} == node.idle()
    assert {"2": 70.0, "3": 0.0} == node.idle(70.0)
    assert {"2": 100.0, "3": 0.0} == node.idle(30.0)


def test_a_device_of_a_rank_is_had():
    """A rank that computes elsewhere than it should leaves its device idle."""
    node = Node(device(0, A, 0.01), ranks=[LiveRank("big", 0, 0, 60.0, A)])
    node.idle()

    assert {"0": 45.0} == node.idle(45.0)


def test_work_now_and_then_is_work():
    """One look with kernels in it, and the time begins anew."""
    node = Node(device(0, A, 0.0), jobs=[Job("55", "alice", uuids=(A,))])
    node.idle()
    node.idle(500.0)
    node.devices = [device(0, A, 0.05)]
    assert {"0": 0.0} == node.idle(5.0)
    node.devices = [device(0, A, 0.04)]

    assert {"0": 5.0} == node.idle(5.0)


@pytest.mark.parametrize("memory", [5e8, 2e7, None])
def test_what_an_ended_run_left_on_a_device_holds_it(memory):
    """A process with the memory of a context or more has the device; a small one, or none, does not."""
    node = Node(device(0, A, 0.0, memory=memory), device(1, B, 0.9), jobs=[Job("55", "alice", uuids=(B,))])
    node.idle()

    assert ({"0", "1"} if memory == 5e8 else {"1"}) == node.idle(60.0).keys()


def test_a_device_that_nobody_has_is_free():
    """It may idle for ever."""
    node = Node(device(0, A, 0.0), device(1, B, 0.0), jobs=[Job("55", "alice", uuids=(B,))])
    node.idle()

    assert {"1": 60.0} == node.idle(60.0)


def test_what_cannot_be_read_is_not_judged():
    """A device that is down, or tells no share (a split one), has no series; afterwards its time begins anew."""
    node = Node(device(0, A, 0.0), device(1, B, None), jobs=[Job("55", "alice", uuids=(A, B))])
    node.idle()
    assert {"0": 50.0} == node.idle(50.0)
    node.devices[0] = device(0, A, 0.0, up=False)
    assert {} == node.idle(50.0)
    node.devices[0] = device(0, A, 0.0)

    assert {"0": 0.0} == node.idle(50.0)


def test_a_clock_that_is_set_back_makes_nothing_negative():
    """The time begins anew."""
    node = Node(device(0, A, 0.0), jobs=[Job("55", "alice", uuids=(A,))])
    node.idle()

    assert {"0": 0.0} == node.idle(-400.0)
    assert {"0": 30.0} == node.idle(30.0)
