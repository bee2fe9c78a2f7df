"""The fabric of NVSwitches on the stub, in every version of its structure."""

from __future__ import annotations

import ctypes

import pytest
from tests.fixtures.nvml.driver import Driver, compile_stub

from trainvitals.devices.nvidia.fabric import FabricInfo, FabricInfo2, FabricInfo3


def fabric(device):
    """Return the values about the fabric without the prefix of their families."""
    return {
        (key[0].removeprefix("fabric_"), *key[1:]): value
        for key, value in device.values.items()
        if key[0].startswith("fabric_")
    }


@pytest.mark.parametrize(("number", "name"), [(1, "not_started"), (2, "in_progress"), (3, "completed")])
def test_one_state_is_1(driver, number, name):
    """A GPU shows where it is on its way into the fabric; the status counts only at the end of it."""
    driver.behave(f"value 6 fabric {number}", "value 6 fabric_status 0")

    assert fabric(driver.message().devices[6]) == {
        **{("state", state): float(state == name) for state in ("not_started", "in_progress", "completed")},
        ("failed",): 0.0,
    }


def test_a_device_without_fabric_has_no_series(driver):
    """Most GPUs have none."""
    devices = driver.message().devices

    assert [fabric(device) for device in devices] == [{}] * 8
    assert devices[0].failed == {}


@pytest.mark.parametrize(("state", "failed"), [(2, 0.0), (3, 1.0)])
def test_a_failed_registration_is_a_completed_one_with_an_error(driver, state, failed):
    """Before it is completed the status means nothing (nvml.h)."""
    driver.behave(f"value 1 fabric {state}", "value 1 fabric_status 999")

    assert fabric(driver.message().devices[1])["failed",] == failed


@pytest.mark.parametrize(
    ("mask", "unhealthy"),
    [
        (0b00_00_0000_00_00_00_00, None),
        (0b00_00_0000_00_00_00_01, {"degraded_bandwidth"}),
        (0b00_00_0000_00_00_10_10, set()),
        (0b00_00_0000_00_01_10_00, {"route_unhealthy"}),
        (0b00_00_0000_00_00_01_00, {"route_recovery"}),
        (0b00_00_0000_01_00_00_00, {"access_timeout_recovery"}),
        (0b00_00_0001_00_00_00_00, set()),
        (0b00_00_0101_00_00_00_00, {"incorrect_configuration"}),
        (0b00_01_0000_00_00_00_00, set()),
        (0b10_10_0000_00_00_00_00, {"partition_missing", "manager_disconnected"}),
        (0b01_00_0000_00_00_00_00, set()),
    ],
)
def test_aspects_that_are_not_well_are_named(driver, mask, unhealthy):
    """Each aspect has its bits; one number says whether all of those are well that the driver tells."""
    driver.behave("value 0 fabric 3", f"value 0 fabric_health {mask}")

    found = fabric(driver.message().devices[0])

    assert {key: value for key, value in found.items() if key[0] == "unhealthy_info"} == {
        ("unhealthy_info", aspect): 1.0 for aspect in unhealthy or ()
    }
    assert found.get(("unhealthy",)) == (None if unhealthy is None else float(bool(unhealthy)))


@pytest.mark.parametrize(("summary", "expected"), [(0, None), (1, 0.0), (2, 1.0), (3, 1.0)])
def test_the_summary_is_one_more_aspect(driver, summary, expected):
    """Unhealthy and of limited capacity are both not well."""
    driver.behave("value 0 fabric 3", f"value 0 fabric_summary {summary}")

    found = fabric(driver.message().devices[0])

    assert found.get(("unhealthy",)) == expected
    assert (("unhealthy_info", "summary") in found) is (expected == 1.0)


@pytest.mark.parametrize(
    ("known", "health", "summary"), [(3, True, True), (2, True, False), (1, False, False)], ids=["v3", "v2", "v1"]
)
def test_the_newest_structure_that_the_driver_knows_is_used(driver, known, health, summary):
    """An older driver refuses the version, and tells what it can in an older one."""
    driver.behave(
        "value 0 fabric 3", "value 0 fabric_health 1", "value 0 fabric_summary 2", f"value 0 fabric_version {known}"
    )

    device = driver.message().devices[0]

    assert fabric(device)["state", "completed"] == 1.0
    assert (("unhealthy_info", "degraded_bandwidth") in fabric(device)) is health
    assert (("unhealthy_info", "summary") in fabric(device)) is summary
    assert device.failed == {}


def test_a_driver_without_the_newer_call_is_asked_by_the_older(tmp_path):
    """Driver 535 has no nvmlDeviceGetGpuFabricInfoV."""
    old = Driver(compile_stub(tmp_path, "-DOLD_DRIVER"), tmp_path)
    old.behave("value 2 fabric 2")

    device = old.message().devices[2]

    assert fabric(device)["state", "in_progress"] == 1.0
    assert device.failed == {}


def test_a_failure_is_counted_and_costs_the_fabric(driver):
    """Any other error is one failed read."""
    driver.behave("value 0 fabric 3", "return 0 fabric 999")

    device = driver.message().devices[0]

    assert fabric(device) == {}
    assert device.failed == {"unknown": 1}


def test_the_structures_are_laid_out_as_in_nvml_h():
    """The sizes are those in nvml.h's version words; where the binding has the right ones, the offsets are too."""
    import pynvml

    assert [ctypes.sizeof(kind) for kind in (FabricInfo, FabricInfo2, FabricInfo3)] == [28, 0x24, 0x28]
    if hasattr(pynvml, "c_nvmlGpuFabricInfo_v3_t"):
        theirs = pynvml.c_nvmlGpuFabricInfo_v3_t
        ours = {"status": "status", "cliqueId": "clique", "state": "state", "healthMask": "health"}
        ours["healthSummary"] = "summary"
        for name, own in ours.items():
            assert getattr(theirs, name).offset == getattr(FabricInfo3, own).offset
