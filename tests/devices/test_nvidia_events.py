"""XIDs as events of the driver, from the stub's file of events through the thread of the reading process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import time

import pytest
from tests.devices.helpers import wait_until
from tests.devices.hurried import hurried, until
from tests.fixtures.nvml.driver import uuid

from trainvitals.devices.nvidia.events import Backlog
from trainvitals.devices.wire import decode
from trainvitals.telemetry import Fault

XID = 8


class Log:
    """The file of events of one stub."""

    def __init__(self, driver):
        self._file = driver._control.with_suffix(".events")
        self._waits = driver._control.with_suffix(".waits")

    def add(self, *lines):
        """Let something happen: lines of device, type, data and perhaps an instance."""
        with self._file.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def waits(self):
        """Return how often somebody waited."""
        try:
            return self._waits.stat().st_size
        except FileNotFoundError:
            return 0


@pytest.fixture
def log(driver):
    """The file of events."""
    return Log(driver)


@contextlib.contextmanager
def watching(driver, log):
    """Give the next message of a process that waits for events already."""
    with driver.lines() as line:
        line()
        seen = log.waits()
        wait_until(lambda: log.waits() > seen)
        yield line


def codes(message):
    """Return the faults of a message as addresses and codes."""
    return [(fault.pci_bus_id, fault.code) for fault in message.faults]


def collected(line, count):
    """Return the codes of the next messages until there are as many."""
    found = []
    until(line, lambda message: found.extend(codes(message)) or len(found) >= count)
    return found


def test_two_equal_xids_are_two(driver, log):
    """Nothing is lost between two readings, and a repeated code is told again."""
    with watching(driver, log) as line:
        before = time.time()
        log.add(f"3 {XID} 31", f"3 {XID} 31", f"6 {XID} 94")
        faults = []
        until(line, lambda message: faults.extend(message.faults) or len(faults) == 3)
        after = time.time()

    assert [(fault.source, fault.pci_bus_id, fault.code, fault.text) for fault in faults] == [
        ("driver", "0000:1d:00.0", 31, ""),
        ("driver", "0000:1d:00.0", 31, ""),
        ("driver", "0000:20:00.0", 94, ""),
    ]
    assert all(before - 1 <= fault.time <= after + 1 for fault in faults)


def test_the_instance_of_a_split_device_is_told(driver, log):
    """The address is that of the board; the text says which part of it."""
    with watching(driver, log) as line:
        log.add(f"0 {XID} 43 5")
        (fault,) = until(line, lambda message: message.faults).faults

    assert (fault.pci_bus_id, fault.text) == ("0000:1a:00.0", "GPU instance 5")


def test_other_events_are_not_asked_for(driver, log):
    """They are XIDs as well, or levels that are read: they would be counted twice."""
    with watching(driver, log) as line:
        log.add("0 2 1", "0 200 1", "0 8000 1", f"0 {XID} 48")

        assert collected(line, 1) == [("0000:1a:00.0", 48)]


def test_a_device_that_falls_off_the_bus_is_named(driver, log):
    """XID 79 comes for a device that cannot be read any more: it is known from its registration."""
    lost = ("return 5 utilization 15", "return 5 uuid 15", "return 5 pci 15", "return 5 handle 15")
    with watching(driver, log) as line:
        log.add(f"5 {XID} 79")
        driver.behave(*lost)
        found = collected(line, 1)
        device = until(line, lambda message: not message.devices[5].up).devices[5]

    assert found == [("0000:1f:00.0", 79)]
    assert (device.reason, device.uuid) == ("lost", uuid(5))


def test_a_device_whose_address_came_late_is_named(driver, log):
    """The address could not be read when the device was opened; it is known to the thread as soon as it was told."""
    driver.behave("return 4 pci 10")
    with hurried(driver) as line:
        line()
        seen = log.waits()
        wait_until(lambda: log.waits() > seen)
        driver.behave()
        until(line, lambda message: message.devices[4].pci_bus_id)
        line()
        log.add(f"4 {XID} 94")

        assert collected(line, 1) == [("0000:1e:00.0", 94)]


def test_a_lost_device_does_not_silence_the_others(driver, log):
    """With a lost device in it a set of events is of no use, so there is one without it."""
    with watching(driver, log) as line:
        driver.behave("return 5 events 15")
        # The wait that fails, and two of the new set.
        seen = log.waits()
        wait_until(lambda: log.waits() > seen + 2)
        log.add(f"5 {XID} 79", f"2 {XID} 119")

        assert collected(line, 1) == [("0000:1c:00.0", 119)]


def test_a_driver_that_fails_at_once_is_not_asked_without_pause(driver, log):
    """GPU_IS_LOST comes at once and for ever: the pauses grow, and the readings go on."""
    driver.behave("return -1 event_wait 15")
    with watching(driver, log) as line:
        begun, first = time.monotonic(), log.waits()
        wait_until(lambda: time.monotonic() - begun > 2.0)
        asked = log.waits() - first
        assert line().devices[0].up

    assert asked <= 3


def test_an_idle_driver_costs_four_waits_a_second(driver, log):
    """A wait that times out at once, as one for an empty set may, is not repeated at once."""
    driver.behave("return -1 event_wait 10")
    with watching(driver, log):
        begun, first = time.monotonic(), log.waits()
        wait_until(lambda: time.monotonic() - begun > 1.0)

        assert log.waits() - first <= 6


def test_a_device_that_spoils_the_registration_is_left_out(driver, log):
    """After an unknown error the set is in no defined state: it is freed, and made again without that device."""
    driver.behave("return 1 event_register 999")
    with watching(driver, log) as line:
        log.add(f"1 {XID} 13", f"4 {XID} 45")

        assert collected(line, 1) == [("0000:1e:00.0", 45)]


def test_a_device_without_events_is_no_obstacle(driver, log):
    """Not supported means that nothing is registered, and that the set is good."""
    driver.behave("return 0 event_register 3", "value 1 event_types 2", "return 2 events 3")
    with watching(driver, log) as line:
        log.add(f"0 {XID} 1", f"1 {XID} 2", f"2 {XID} 3", f"3 {XID} 4")

        assert collected(line, 1) == [("0000:1d:00.0", 4)]


def test_without_events_devices_are_read(driver):
    """A driver that gives no set of events has no XIDs, and everything else."""
    driver.behave("return -1 event_create 999")
    with driver.lines() as line:
        messages = [line() for _ in range(10)]

    assert all(message.devices[7].up and message.devices[7].failed == {} for message in messages)
    assert all(message.faults == [] for message in messages)


def test_a_storm_is_bounded_and_leaves_room(driver, log):
    """Of 10,000 equal XIDs at once a part is told, and one of another device is not lost among them."""
    with watching(driver, log) as line:
        log.add(*[f"0 {XID} 31"] * 5000, f"6 {XID} 79", *[f"0 {XID} 31"] * 5000)
        messages = []
        until(line, lambda message: messages.append(message) or ("0000:20:00.0", 79) in codes(message))
        assert line().devices[0].up

    assert all(len(message.faults) <= 1024 for message in messages)
    assert all(codes(message).count(("0000:1a:00.0", 31)) <= 100 for message in messages)


def test_a_reloaded_driver_has_a_new_set(driver, log):
    """Handles and sets do not survive the driver; after it is back the same process hears events again."""
    with watching(driver, log) as line:
        driver.behave("unloaded")
        until(line, lambda message: message.down)
        driver.behave()
        until(line, lambda message: message.devices)
        seen = log.waits()
        wait_until(lambda: log.waits() > seen + 1)
        log.add(f"7 {XID} 62")

        assert collected(line, 1) == [("0000:21:00.0", 62)]


def test_a_wait_that_hangs_hinders_nobody(driver):
    """The readings go on, and the process ends when its parent goes."""
    driver.behave("hang -1 event_wait")
    child = driver.spawn()
    try:
        wait_until(driver.hung)
        reading = _next(child)
        # Closes its input, and reads on: a process whose lines nobody takes would wait for that.
        child.communicate(timeout=60)
    finally:
        child.kill()
        child.stdout.close()
        child.wait()

    assert [device.up for device in reading.devices] == [True] * 8
    assert child.returncode == os.EX_OK


def test_a_wait_that_hangs_survives_a_reload(driver):
    """A thread that does not come back is left alone; no second one is started beside it."""
    driver.behave("hang -1 event_wait")
    with driver.lines() as line:
        line()
        wait_until(driver.hung)
        for _ in range(2):
            driver.behave("unloaded", "hang -1 event_wait")
            until(line, lambda message: message.down)
            driver.behave("hang -1 event_wait")
            until(line, lambda message: message.devices)
        line()
        line()

    assert len(driver.hung()) == 1


def test_a_backlog_gives_each_kind_its_room():
    """Of one kind a hundred wait; a new kind has room as long as there are not very many."""
    backlog = Backlog()
    for number in range(10_000):
        backlog.add(Fault("driver", "0000:01:00.0", 31, float(number)))
    backlog.add(Fault("driver", "0000:02:00.0", 79, 5.0))
    faults, dropped = backlog.take()

    assert len(faults) == 101
    assert [fault.time for fault in faults[:2]] == [0.0, 1.0]
    assert faults[-1].code == 79
    assert dropped == 9900
    assert backlog.take() == ([], 0)


def test_a_backlog_of_nonsense_is_bounded():
    """However many codes and addresses there are, a message can carry what waits."""
    backlog = Backlog()
    for number in range(5000):
        for _ in range(3):
            backlog.add(Fault("driver", f"0000:{number % 200:02x}:00.0", number, 1.0))

    assert len(backlog.take()[0]) <= 1024


def test_the_structure_is_laid_out_as_in_nvml_h():
    """The event's members are where nvidia-ml-py looks for them, and the type is that of an XID."""
    import pynvml

    event = pynvml.c_nvmlEventData_t
    assert ctypes.sizeof(event) == 32
    assert (event.eventType.offset, event.eventData.offset, event.gpuInstanceId.offset) == (8, 16, 24)
    assert pynvml.nvmlEventTypeXidCriticalError == XID


def _next(child: subprocess.Popen[bytes]):
    while True:
        message = decode(child.stdout.readline(), "nvidia")
        if message.at is None:
            return message
