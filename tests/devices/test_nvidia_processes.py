"""Processes on devices: numbers that a driver should not give, lists that grow, instances."""

from __future__ import annotations

import ctypes

import pytest
from tests.devices.hurried import hurried, until
from tests.fixtures.nvml.driver import Driver, compile_stub

from trainvitals.telemetry import DeviceProcess

GIB = 2**30
MIB = 2**20
COUNT = ("processes",)


def test_processes_have_number_and_memory(driver):
    """Each device has its own, the largest first."""
    driver.behave("value 1 process0 4711", "value 1 process2 4712", "value 5 process1 4194304")

    devices = driver.message().devices

    assert devices[1].processes == (DeviceProcess(4712, GIB + 2 * MIB), DeviceProcess(4711, GIB))
    assert devices[5].processes == (DeviceProcess(4194304, GIB + MIB),)
    assert [device.values[COUNT] for device in devices] == [0.0, 2.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    assert devices[0].processes == ()


def test_garbage_is_no_process(driver):
    """Numbers that no process has are dropped, and so is memory that the device does not have."""
    driver.behave(
        "value 0 process0 4294967296",
        "value 0 process1 4194305",
        "value 0 process2 4294967295",
        "value 0 process3 77",
        f"value 0 process3_memory {100 * GIB + 1}",
        "value 0 process4 78",
        "value 0 process4_memory 18446744073709551615",
        "value 0 process5 79",
        "value 0 process5_memory 5",
    )

    device = driver.message().devices[0]

    assert device.processes == (DeviceProcess(79, 5.0), DeviceProcess(77, None), DeviceProcess(78, None))
    assert device.values[COUNT] == 3.0
    assert device.failed == {}


def test_a_client_of_mps_is_one_process(driver):
    """It may be in both lists, or twice in one; the larger size counts."""
    driver.behave(
        "value 0 process0 50",
        "value 0 process1 50",
        "value 0 process1_memory 18446744073709551615",
        "value 0 mps0 50",
        "value 0 mps0_memory 7",
        "value 0 mps1 60",
        "value 0 mps1_memory 9",
    )

    device = driver.message().devices[0]

    assert device.processes == (DeviceProcess(50, float(GIB)), DeviceProcess(60, 9.0))
    assert device.values[COUNT] == 2.0


def test_processes_that_end_are_gone(driver):
    """A number that is reused is a new process with its own size; nothing of the old one stays."""
    driver.behave("value 3 process0 100", "value 3 process1 200")
    with hurried(driver) as line:
        line()
        driver.behave("value 3 process4 100")
        reused = until(line, lambda message: message.devices[3].values[COUNT] == 1.0).devices[3]
        driver.behave()
        gone = until(line, lambda message: message.devices[3].values[COUNT] == 0.0).devices[3]

    assert reused.processes == (DeviceProcess(100, GIB + 4 * MIB),)
    assert gone.processes == ()


def test_processes_that_cannot_be_read_are_not_the_last_ones(driver):
    """After a failure nothing is said about processes, which is not that there is none."""
    driver.behave("value 0 process0 100")
    with hurried(driver) as line:
        line()
        driver.behave("value 0 process0 100", "return 0 processes 4")
        device = until(line, lambda message: message.devices[0].failed).devices[0]

    assert device.processes == ()
    assert COUNT not in device.values
    assert device.failed == {"no_permission": 1}


def test_a_list_that_grows_without_end_is_a_failure(driver):
    """It is asked twice, then counted; the device is read all the same."""
    driver.behave("value 0 process0 100", "return 0 processes 7")

    device = driver.message().devices[0]

    assert device.processes == ()
    assert device.failed == {"code_7": 1}
    assert device.up


@pytest.mark.parametrize("rule", ["return 0 processes 6", "return 0 mps_processes 6", "return 0 mps_processes 3"])
def test_not_found_is_none(driver, rule):
    """The driver says so when there is no process, or no such list."""
    driver.behave(rule)

    device = driver.message().devices[0]

    assert device.values[COUNT] == 0.0
    assert device.failed == {}


def test_a_process_of_an_instance_has_its_place(driver):
    """One process on two instances of a split device is two entries and one process."""
    driver.behave(
        "value 2 mig_mode 1",
        "value 2 mig0 100",
        "value 2 mig1 501",
        "value 2 process0 40",
        "value 2 process0_place 100",
        "value 2 process1 40",
        "value 2 process1_place 501",
        "value 2 process2 41",
    )

    device = driver.message().devices[2]

    assert device.processes == (
        DeviceProcess(41, GIB + 2 * MIB, None),
        DeviceProcess(40, GIB + MIB, ("5", "1")),
        DeviceProcess(40, GIB, ("1", "0")),
    )
    assert device.values[COUNT] == 2.0


def test_instances_tell_where_the_whole_may_not_be_seen(driver):
    """Without the right to list all processes of a split device, those of its instances are listed."""
    driver.behave(
        "value 2 mig_mode 1",
        "value 2 mig0 100",
        "value 2 mig1 501",
        "return 2 processes 4",
        "value 1021 process3 55",
        "return 1020 processes 4",
    )

    device = driver.message().devices[2]

    assert device.processes == (DeviceProcess(55, GIB + 3 * MIB, ("5", "1")),)
    assert device.failed == {"no_permission": 1}


def test_a_place_on_a_whole_device_is_none(driver):
    """Some drivers write an instance 0 where there is no instance."""
    driver.behave("value 0 process0 40", "value 0 process0_place 0")

    assert driver.message().devices[0].processes == (DeviceProcess(40, float(GIB), None),)


def test_an_older_driver_is_asked_by_the_older_call(tmp_path):
    """Before driver 510 the lists have the same structure under an older name."""
    old = Driver(compile_stub(tmp_path, "-DOLD_DRIVER"), tmp_path)
    old.behave("value 1 process0 9", "value 1 mps1 10", "return 0 mps_processes_v2 3")

    devices = old.message().devices

    assert devices[1].processes == (DeviceProcess(10, GIB + MIB), DeviceProcess(9, float(GIB)))
    assert devices[0].values[COUNT] == 0.0
    assert devices[1].failed == {}


def test_the_structure_is_laid_out_as_in_nvml_h():
    """A driver fills 24 bytes per process; a binding that expected more would read garbage."""
    import pynvml

    process = pynvml.c_nvmlProcessInfo_v2_t
    assert ctypes.sizeof(process) == 24
    offsets = (process.pid.offset, process.usedGpuMemory.offset, process.gpuInstanceId.offset)
    assert (*offsets, process.computeInstanceId.offset) == (0, 8, 16, 20)
