"""Split devices (MIG): instances that come and go under a board that stays."""

from __future__ import annotations

import pytest
from tests.devices.hurried import hurried, until

GIB = 2**30
#: Device 2 has three instances, with a hole where a fourth was; the others are whole.
SPLIT = ("value 2 mig_mode 1", "value 2 mig0 100", "value 2 mig1 501", "value 2 mig3 900")


def instances(device):
    """Return the UUID and the profile of the instances by GPU instance and compute instance."""
    return {key[1:3]: key[3:] for key in device.values if key[0] == "mig_info"}


def mig(device):
    """Return all labels of families about instances that a sample has."""
    return {key[1:] for key in device.values if key[0].startswith("mig_") and key[0] != "mig_enabled"}


def uuid(device, slot):
    """Return the UUID that the stub gives to an instance."""
    return f"MIG-5eed0000-0000-4000-8000-{1000 + 10 * device + slot:012d}"


def test_instances_have_ids_profile_and_memory(driver):
    """Every slot with an instance is shown, holes or not, with the numbers that the driver gave it."""
    driver.behave(*SPLIT, "value 1021 memory_v2 5368709120")

    devices = driver.message().devices

    assert instances(devices[2]) == {
        ("1", "0"): (uuid(2, 0), "1g.12gb"),
        ("5", "1"): (uuid(2, 1), "1g.12gb"),
        ("9", "0"): (uuid(2, 3), "1g.12gb"),
    }
    assert devices[2].values["mig_memory_used_bytes", "5", "1"] == 5.0 * GIB
    assert devices[2].values["mig_memory_total_bytes", "5", "1"] == 100.0 * GIB
    assert devices[2].values["mig_enabled",] == 1.0
    assert devices[2].failed == {}
    assert devices[3].values["mig_enabled",] == 0.0
    assert mig(devices[3]) == set()


def test_the_board_keeps_its_series(driver):
    """Temperature, power and memory of the board do not depend on its instances; utilization is not supported then."""
    driver.behave(*SPLIT, "return 2 utilization 3")

    device = driver.message().devices[2]

    assert ("utilization_ratio",) not in device.values
    assert ("temperature_celsius", "gpu") in device.values
    assert device.values["power_watts", "instant"] == 502.5
    assert device.values["memory_total_bytes",] == 100.0 * GIB


def test_a_device_that_cannot_be_split_has_no_series(driver):
    """Neither a mode nor a failure."""
    driver.behave("value * mig_mode 2")

    device = driver.message().devices[0]

    assert ("mig_enabled",) not in device.values
    assert device.failed == {}


def test_instances_that_are_destroyed_leave_no_series(driver):
    """After a new partition there are the new instances alone, though one has the number of an old one."""
    driver.behave(*SPLIT)
    with hurried(driver) as line:
        before = line().devices[2]
        driver.behave("value 2 mig_mode 1", "value 2 mig1 100", "value 2 mig_slices 33")
        after = until(line, lambda message: instances(message.devices[2]).keys() == {("1", "0")}).devices[2]
        driver.behave()
        whole = until(line, lambda message: not message.devices[2].values["mig_enabled",]).devices[2]

    assert len(instances(before)) == 3
    assert instances(after) == {("1", "0"): (uuid(2, 1), "3g.36gb")}
    assert {labels[:2] for labels in mig(after) if len(labels) > 1} == {("1", "0")}
    assert mig(whole) == set()


@pytest.mark.parametrize(
    ("slices", "profile"),
    [(11, "1g.12gb"), (22, "2g.25gb"), (33, "3g.38gb"), (13, "1c.3g.38gb"), (77, "7g.88gb")],
)
def test_a_profile_that_is_not_in_the_name_is_made_of_the_attributes(driver, slices, profile):
    """Older drivers do not name it; a part of a GPU instance says which part."""
    driver.behave(*SPLIT, "name * unnamed", f"value 2 mig_slices {slices}")

    assert instances(driver.message().devices[2])["1", "0"] == (uuid(2, 0), profile)


def test_an_instance_that_is_gone_costs_itself(driver):
    """One that is destroyed between two calls is missing; the others and the board are read."""
    driver.behave(*SPLIT, "return 1021 gpu_instance 2", "return 1023 memory_v2 6", "return 1023 memory 6")

    device = driver.message().devices[2]

    assert instances(device).keys() == {("1", "0"), ("9", "0")}
    assert ("mig_memory_used_bytes", "9", "0") not in device.values
    assert device.values["mig_memory_used_bytes", "1", "0"] > 0
    assert device.failed == {"invalid_argument": 1}


def test_a_name_that_is_no_text_is_shown_damaged(driver):
    """Bytes that are not UTF-8 cost nothing but the profile, which the attributes tell."""
    driver.behave(*SPLIT, "name 1020 damaged")

    assert instances(driver.message().devices[2])["1", "0"] == (uuid(2, 0), "1g.12gb")


def test_a_lost_board_is_down_with_its_instances(driver):
    """When the board is lost while its instances are read, it is the board that is down."""
    driver.behave(*SPLIT, "return 1021 memory_v2 15")

    device = driver.message().devices[2]

    assert (device.up, device.reason) == (False, "lost")
    assert device.values == {}


def test_a_gpu_instance_has_its_own_activity(driver):
    """On Hopper and newer each GPU instance counts by itself; the stub adds a hundredth per instance."""
    driver.behave(*SPLIT, "value * gpm 1", "return 2 gpm5.9 3", "return 2 gpm_sample 3")
    with hurried(driver) as line:
        device = until(line, lambda message: ("mig_sm_activity_ratio", "5") in message.devices[2].values).devices[2]

    activity = {key[1:]: value for key, value in device.values.items() if key[0] == "mig_sm_activity_ratio"}
    assert activity == pytest.approx({("1",): 0.4221, ("5",): 0.4225, ("9",): 0.4229})
    assert device.values["mig_tensor_activity_ratio", "5"] == pytest.approx(0.4525)
    assert device.values["mig_memory_bandwidth_ratio", "9"] == pytest.approx(0.5029)
    assert ("mig_tensor_activity_ratio", "9") not in device.values
    assert ("sm_activity_ratio",) not in device.values
    assert device.failed == {}


def test_activity_of_instances_leaves_nothing_behind(driver):
    """Instances that come and go take their samples with them: the stub has room for 48."""
    driver.behave(*SPLIT, "value * gpm 1")
    with hurried(driver) as line:
        for _ in range(15):
            driver.behave("value * gpm 1", "value 2 mig_mode 1", "value 2 mig1 100")
            until(line, lambda message: instances(message.devices[2]).keys() == {("1", "0")})
            driver.behave("value * gpm 1", *SPLIT)
            until(line, lambda message: len(instances(message.devices[2])) == 3)
        device = until(line, lambda message: ("mig_sm_activity_ratio", "9") in message.devices[2].values).devices[2]

    assert {key[1] for key in device.values if key[0] == "mig_sm_activity_ratio"} == {"1", "5", "9"}


def test_the_structure_is_laid_out_as_in_nvml_h():
    """The attributes of an instance are where nvidia-ml-py looks for them."""
    import ctypes

    import pynvml

    attributes = pynvml.c_nvmlDeviceAttributes
    assert (attributes.gpuInstanceSliceCount.offset, attributes.memorySizeMB.offset) == (24, 32)
    assert ctypes.sizeof(attributes) == 40
