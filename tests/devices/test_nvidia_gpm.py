"""Activity between two rounds (GPM), on a stub that refuses samples that do not belong together."""

from __future__ import annotations

import ctypes

import pytest
from tests.devices.hurried import hurried, until
from tests.fixtures.nvml.driver import Driver, compile_stub

from trainvitals.collect.base import Sink, Tally
from trainvitals.devices.nvidia import gpm

MIB = 2**20
SM = ("sm_activity_ratio",)
ON = "value * gpm 1"


def families(device):
    """Return the families of GPM that a sample has."""
    names = {key[0] for key, _ in gpm._METRICS.values()}
    return {key for key in device.values if key[0] in names}


def test_the_first_round_has_none_and_the_second_has_all(driver):
    """It takes two samples to tell what happened between them."""
    driver.behave(ON)
    with driver.lines() as line:
        first = line().devices
        later = until(line, lambda message: SM in message.devices[7].values).devices

    assert all(families(device) == set() for device in first)
    # The stub counts 40 and the number of the metric, and a tenth per device.
    assert {key: later[3].values[key] for key in families(later[3])} == pytest.approx(
        {
            ("graphics_activity_ratio",): 0.413,
            ("sm_activity_ratio",): 0.423,
            ("sm_occupancy_ratio",): 0.433,
            ("pipe_activity_ratio", "int"): 0.443,
            ("tensor_activity_ratio",): 0.453,
            ("memory_bandwidth_ratio",): 0.503,
            ("pipe_activity_ratio", "fp64"): 0.513,
            ("pipe_activity_ratio", "fp32"): 0.523,
            ("pipe_activity_ratio", "fp16"): 0.533,
            ("pcie_transmit_bytes_per_second",): 60.3 * MIB,
            ("pcie_receive_bytes_per_second",): 61.3 * MIB,
            ("links_receive_bytes_per_second",): 100.3 * MIB,
            ("links_transmit_bytes_per_second",): 101.3 * MIB,
        }
    )
    assert later[0].values[SM] == pytest.approx(0.42)


def test_rounds_that_are_too_close_keep_the_last_values(driver):
    """Samples less than 100 ms apart are worth nothing, so a hasty round repeats what was measured last."""
    driver.behave(ON)
    with hurried(driver) as line:
        until(line, lambda message: SM in message.devices[0].values)
        rounds = [line().devices[0] for _ in range(12)]

    assert all(SM in device.values for device in rounds)
    assert all(device.failed == {} for device in rounds)


def test_a_device_that_does_not_count_is_asked_once(driver):
    """Before Hopper there is nothing: no series, no failure, and no further call."""
    driver.behave("log")
    with hurried(driver) as line:
        rounds = [line().devices[0] for _ in range(10)]

    assert all(families(device) == set() and device.failed == {} for device in rounds)
    assert calls(driver, "gpm_support", 0) == 1
    assert calls(driver, "gpm_sample", 0) == 0


def test_a_metric_that_fails_costs_itself(driver):
    """Each metric has a code of its own: what a device lacks is absent, any other error is counted."""
    driver.behave(ON, "return 1 gpm11 3", "return 1 gpm5 999")
    with driver.lines() as line:
        device = until(line, lambda message: SM in message.devices[1].values).devices[1]

    assert ("pipe_activity_ratio", "fp64") not in device.values
    assert ("tensor_activity_ratio",) not in device.values
    assert device.values["pipe_activity_ratio", "fp32"] == pytest.approx(0.521)
    assert device.failed == {"unknown": 1}


@pytest.mark.parametrize("call", ["gpm_sample", "gpm_metrics"])
def test_an_error_begins_anew_with_fresh_samples(driver, call):
    """After a fault a device must not stay blank; and however long it lasts, no sample is left behind."""
    driver.behave(ON)
    with hurried(driver) as line:
        until(line, lambda message: SM in message.devices[2].values)
        driver.behave(ON, f"return 2 {call} 999")
        broken = until(line, lambda message: message.devices[2].failed.get("unknown")).devices
        for _ in range(60):
            line()
        driver.behave(ON)
        until(line, lambda message: SM in message.devices[2].values)

    assert SM not in broken[2].values
    assert broken[2].up
    assert SM in broken[3].values


def test_samples_that_cannot_be_given_back_change_no_error(driver):
    """What counts is why a sample could not be taken, not what became of the one before."""
    driver.behave(ON)
    with hurried(driver) as line:
        until(line, lambda message: SM in message.devices[2].values)
        driver.behave(ON, "return 2 gpm_sample 999", "return -1 gpm_free 1")
        message = until(line, lambda message: message.down or message.devices[2].failed)

    assert message.devices[2].failed == {"unknown": 1}
    assert message.devices[2].up


def test_a_device_that_comes_and_goes_leaves_no_samples_behind(driver):
    """The stub has room for 48 samples, and eight devices need 16."""
    driver.behave(ON)
    with hurried(driver) as line:
        for _ in range(20):
            driver.behave(ON, "return 4 utilization 15")
            until(line, lambda message: not message.devices[4].up)
            driver.behave(ON)
            until(line, lambda message: message.devices[4].up)
        device = until(line, lambda message: SM in message.devices[4].values).devices[4]

    assert device.failed == {}


def test_more_than_all_is_rejected_and_counted(driver):
    """A ratio above 1 is nonsense of a driver: it is no series, and it is counted as rejected."""
    driver.behave(ON, "value 0 gpm2 10001")
    with driver.lines() as line:
        device = until(line, lambda message: SM in message.devices[0].values).devices[0]
    tally = Tally()
    Sink(tally, limit=10, collector="devices").add("trainvitals_device_sm_activity_ratio", device.values[SM], "0", "G")

    assert device.values[SM] == pytest.approx(1.0001)
    assert tally.rejected == {"trainvitals_device_sm_activity_ratio": 1}


def test_a_driver_without_the_calls_is_no_failure(tmp_path):
    """An older driver has no such functions, and nothing else suffers from it."""
    old = Driver(compile_stub(tmp_path, "-DOLD_DRIVER"), tmp_path)
    with old.lines() as line:
        line()
        device = line().devices[0]

    assert families(device) == set()
    assert device.failed == {}
    assert device.values["utilization_ratio",] == 0.9


def test_every_metric_is_that_of_the_binding():
    """The numbers mean what nvidia-ml-py says, and the structure is laid out as in nvml.h."""
    import pynvml

    names = {
        1: "GRAPHICS_UTIL",
        2: "SM_UTIL",
        3: "SM_OCCUPANCY",
        4: "INTEGER_UTIL",
        5: "ANY_TENSOR_UTIL",
        10: "DRAM_BW_UTIL",
        11: "FP64_UTIL",
        12: "FP32_UTIL",
        13: "FP16_UTIL",
        20: "PCIE_TX_PER_SEC",
        21: "PCIE_RX_PER_SEC",
        60: "NVLINK_TOTAL_RX_PER_SEC",
        61: "NVLINK_TOTAL_TX_PER_SEC",
    }
    assert {number: getattr(pynvml, f"NVML_GPM_METRIC_{name}") for number, name in names.items()} == {
        number: number for number in gpm._METRICS
    }
    request = pynvml.c_nvmlGpmMetricsGet_t
    assert (request.sample1.offset, request.sample2.offset, request.metrics.offset) == (8, 16, 24)
    assert ctypes.sizeof(pynvml.c_nvmlGpmMetric_t) == 40


def calls(driver, name, index):
    """Return how often the stub was asked for something of a device."""
    return (driver._control.parent / "control.calls").read_text().splitlines().count(f"{index} {name}")
