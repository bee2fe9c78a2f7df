"""NVIDIA devices: the real nvidia-ml-py in the real child process, on a stub of the driver's library."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from tests.fixtures.nvml.driver import uuid

from trainvitals.devices.base import NoLibraryError
from trainvitals.devices.nvidia import create
from trainvitals.devices.nvidia.errors import ERRORS, NOT_UNDERSTOOD
from trainvitals.devices.wire import STALE, Message
from trainvitals.telemetry import DeviceSample


def test_healthy_devices_have_their_identity(driver):
    """All eight devices answer, each under its own index, UUID and place."""
    devices = driver.message().devices

    assert [device.index for device in devices] == [0, 1, 2, 3, 4, 5, 6, 7]
    devices[3].values = {}
    assert devices[3] == DeviceSample(
        index=3,
        uuid="GPU-5eed0000-0000-4000-8000-000000000003",
        vendor="nvidia",
        name="NVIDIA Stub 96GB",
        pci_bus_id="0000:1d:00.0",
        driver_version="999.12.34",
        up=True,
    )


def test_a_lost_device_is_down_and_the_others_are_not(driver):
    """A device off the bus keeps its identity and loses its values; it is read again when it is back."""
    with driver.lines() as line:
        assert line().devices[5].up

        driver.behave("return 5 utilization 15")
        devices = next(found.devices for found in iter(line, None) if not found.devices[5].up)
        driver.behave()
        after = next(found.devices for found in iter(line, None) if found.devices[5].up)

    assert [device.up for device in devices] == [True, True, True, True, True, False, True, True]
    assert devices[5] == DeviceSample(
        index=5,
        uuid=uuid(5),
        vendor="nvidia",
        name="NVIDIA Stub 96GB",
        pci_bus_id="0000:1f:00.0",
        driver_version="999.12.34",
        up=False,
        reason="lost",
        failed={"gpu_is_lost": 1},
    )
    assert devices[6].values["utilization_ratio",] == 0.96
    assert after[5].values["utilization_ratio",] == 0.95


@pytest.mark.parametrize(
    ("code", "counted", "reason"),
    [
        (15, "gpu_is_lost", "lost"),
        (16, "reset_required", "reset_required"),
        (17, "blocked_by_operating_system", "blocked"),
        (999, "unknown", "unknown"),
    ],
)
def test_a_device_without_a_handle_is_down(driver, code, counted, reason):
    """A device that cannot even be opened is counted and shown; the other seven are read."""
    driver.behave(f"return 2 handle {code}")

    devices = driver.message().devices

    assert [device.up for device in devices] == [True, True, False, True, True, True, True, True]
    assert devices[2] == DeviceSample(
        index=2, uuid="", vendor="nvidia", driver_version="999.12.34", up=False, reason=reason, failed={counted: 1}
    )


def test_a_name_that_is_no_text_is_shown_damaged(driver):
    """Bytes that are not UTF-8 are replaced and cost nothing."""
    driver.behave("name 0 damaged")

    device = driver.message().devices[0]

    assert device.up
    assert device.name == "NVIDIA \ufffd\ufffd"
    assert device.values["utilization_ratio",] == 0.9


def test_an_identity_that_fails_is_asked_again(driver):
    """A UUID that could not be read once is not missing for ever."""
    driver.behave("return 0 uuid 999")
    with driver.lines() as line:
        first = line().devices[0]
        driver.behave()
        later = next(found.devices[0] for found in iter(line, None) if found.devices[0].uuid)

    assert (first.up, first.uuid) == (True, "")
    assert later.uuid == uuid(0)


def test_a_driver_that_goes_away_and_comes_back(driver):
    """Without a driver there is a reason instead of devices; after it is back the same process reads them again."""
    with driver.lines() as line:
        assert len(line().devices) == 8

        driver.behave("unloaded")
        gone = [next(found.down for found in iter(line, None) if found.down), line().down]
        driver.behave("count 7")
        back = next(found.devices for found in iter(line, None) if found.devices)

    assert gone[0] == "uninitialized"
    assert set(gone) <= {"uninitialized", "driver_not_loaded"}
    assert [device.up for device in back] == [True] * 7


def test_a_driver_without_devices_is_up(driver):
    """A driver that counts no device answers with an empty list, which is no failure."""
    driver.behave("count 0")

    message = driver.message()

    assert (message.devices, message.down, message.absent) == ([], "", "")


def test_a_replaced_driver_needs_a_new_process(driver):
    """When the loaded library no longer fits the driver the process says so and ends with a status of its own."""
    driver.behave("return * count 18")
    child = driver.spawn()
    output, _ = child.communicate(timeout=30)

    assert output.splitlines()[-1] == b'{"down":"lib_rm_version_mismatch"}'
    assert child.returncode == STALE


def test_another_packages_pynvml_is_refused(monkeypatch):
    """A module pynvml that is not nvidia-ml-py's is named instead of failing later in strange ways."""
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=None))

    with pytest.raises(NoLibraryError, match=r"not that of nvidia-ml-py 12\.560"):
        create()


def test_without_the_binding_there_is_nothing_to_read(monkeypatch):
    """A missing nvidia-ml-py is "no such vendor", not an error."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(NoLibraryError, match="nvidia-ml-py is not installed"):
        create()


def test_the_codes_are_those_of_the_binding():
    """Each code of the table exists in nvidia-ml-py, and each has a word of its own."""
    import pynvml

    codes = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    reasons = [reason for reason, _ in ERRORS.values()]

    assert set(ERRORS) - {NOT_UNDERSTOOD} <= codes
    assert len(set(reasons)) == len(reasons)


def test_a_library_on_a_machine_without_a_device_is_nothing_to_read(driver, tmp_path):
    """One image for all nodes: without an NVIDIA device on the bus, a driver that is not loaded is no fault."""
    driver.behave("unloaded")
    bus = tmp_path / "bus" / "0000:02:00.0"
    bus.mkdir(parents=True)
    (bus / "vendor").write_text("0x8086\n")
    driver.environ["TRAINVITALS_PCI_DEVICES"] = str(bus.parent)

    with driver.lines() as line:
        assert line() == Message(absent="no NVIDIA device on the PCI bus")


def test_a_device_without_a_driver_is_a_fault(driver):
    """With an NVIDIA device on the bus, a driver that is not loaded is said."""
    driver.behave("unloaded")

    with driver.lines() as line:
        assert line() == Message(down="driver_not_loaded")
