"""Numbered fields in as few calls as possible, and what is not asked again: on a stub of the driver's library."""

from __future__ import annotations

import pytest
from tests.devices.nvidia_values import DEVICE_0, family
from tests.fixtures.nvml.driver import Driver, compile_stub

FAST = 7
MEDIUM = 5
SLOW = 13
#: Calls that are made once.
ONCE = 5
#: Calls for the handle, the UUID, the name and the address; the supported clock reasons.
OPENING = 5

#: What these tests are about; links, instances and processes are another matter.
SUBJECTS = "utilization memory power clocks thermal ecc pcie recovery identity"
OURS = {key: value for key, value in DEVICE_0.items() if key[0] not in {"mig_enabled", "processes"}}


def rounds(driver, *steps):
    """Return device 0 by step."""
    return driver.rounds(*steps, subjects=SUBJECTS)


def test_a_round_takes_few_calls(driver):
    """Seven calls every round; the counters, the state of the board and its identity come at their own pace."""
    rounds(driver, *((seconds, "log") for seconds in (0, 2, 15, 17, 30, 60, 3600)))

    found = driver.calls()
    assert [len(calls) for calls in found] == [
        OPENING + FAST + MEDIUM + SLOW + ONCE,
        FAST,
        FAST + MEDIUM,
        FAST,
        FAST + MEDIUM,
        FAST + MEDIUM + SLOW,
        FAST + MEDIUM + SLOW,
    ]
    assert found[1].count("fields") == 1
    assert found[2].count("fields") == 2


def test_what_a_device_does_not_have_is_asked_for_once_a_minute(driver):
    """A call that is not supported is left alone until the slow round, and then its value is back."""
    absent = ("return 0 utilization 3", "return 0 sm_clock 26", "return 0 field186 3")

    found = rounds(driver, (0, *absent), (2, *absent, "log"), (4, "log"), (58, "log"), (60, "log"))
    calls = driver.calls()

    assert [call in calls[0] for call in ("utilization", "sm_clock", "memory_clock")] == [False, False, True]
    assert [("utilization_ratio",) in sample.values for sample in found] == [False, False, False, False, True]
    assert [("clock_hertz", "sm") in sample.values for sample in found] == [False, False, False, False, True]
    assert [("power_watts", "instant") in sample.values for sample in found] == [False, False, False, False, True]
    assert all(sample.failed == {} for sample in found)


@pytest.mark.parametrize(("call", "part"), [("name", "name"), ("pci", "pci_bus_id")])
def test_a_name_that_failed_once_is_asked_for_again(driver, call, part):
    """A GPU without a name or an address for a moment has them a minute later, and keeps its handle."""
    found = rounds(driver, (0, f"return 0 {call} 10"), (2, "log"), (59, "log"), (61, "log"), (180, "log"))

    whole = {"name": "NVIDIA Stub 96GB", "pci_bus_id": "0000:1a:00.0"}[part]
    assert [getattr(sample, part) for sample in found] == ["", "", "", whole, whole]
    assert {sample.uuid for sample in found} == {found[0].uuid}
    assert [calls.count(call) for calls in driver.calls()] == [0, 0, 1, 0]
    assert not any("handle" in calls for calls in driver.calls())


def test_what_failed_is_asked_for_again_at_once(driver):
    """Only "not supported" lasts."""
    found = rounds(driver, (0, "return 0 utilization 999", "return 0 field186 10", "return 0 sm_clock 21"), (2,))

    assert found[0].failed == {"unknown": 1, "timeout": 1}
    assert found[1].values.keys() == OURS.keys()


def test_a_device_with_nothing_to_ask_for_stays_up(driver):
    """All that it does not have is not all that does not answer."""
    rules = ["return 0 * 3", *(f"return 0 {call} 0" for call in ("handle", "uuid", "name", "pci"))]

    found = rounds(driver, (0, *rules), (2, *rules), (4, *rules))

    assert [sample.up for sample in found] == [True, True, True]


def test_an_older_driver_is_asked_little(tmp_path):
    """The calls that it lacks cost nothing, fields that it lacks are left out."""
    old = Driver(compile_stub(tmp_path, "-DOLD_DRIVER"), tmp_path)

    rounds(old, (0, "log"), (2, "log"), (15, "log"))

    found = old.calls()
    assert sorted(found[1]) == [
        "limit",
        "memory",
        "memory_clock",
        "old_reasons",
        "power",
        "sm_clock",
        "utilization",
    ]
    assert found[2].count("fields") == 1


# A field that spoils the others -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["poison 0 field76 2", "poison 0 field76 999", "spoil 0 field76"])
def test_one_field_that_spoils_the_call_costs_itself(driver, verb):
    """The batch is split until it is known which one does it; the others keep their values (DCGM#265)."""
    found = rounds(driver, (0, verb), (15, verb), (30, verb, "log"), (45, verb, "log"))
    calls = driver.calls()

    assert all(sample.up for sample in found)
    assert [sample.values["energy_joules_total",] for sample in found] == [5000.25] * 4
    assert [sample.values["ecc_errors_total", "uncorrected"] for sample in found] == [2.0] * 4
    # Once it is known, it is as if the device did not have it: the older call does.
    for sample in found[2:]:
        assert family(sample, "clock_limited_seconds_total") == {
            "sw_power_cap": 2.5,
            "sync_boost": 4.5,
            "sw_thermal": 3.0,
            "hw_thermal": 0.5,
            "hw_power_brake": 0.125,
        }
        assert sample.failed == {}
    assert [step.count("fields") for step in calls] == [2, 2]


def test_two_fields_that_spoil_the_call_are_both_found(driver):
    """However many there are."""
    rules = ("poison 0 field76 999", "poison 0 field173 2", "poison 0 field83 4")

    found = rounds(driver, (0, *rules), (15, *rules), (30, *rules), (45, *rules, "log"))

    assert driver.calls()[0].count("fields") == 2
    assert found[3].failed == {}
    assert found[3].values["energy_joules_total",] == 77000.25
    assert ("pcie_errors_total", "correctable") not in found[3].values
    assert found[3].values["pcie_replays_total",] == 9.0


def test_fields_that_do_not_go_together_are_asked_for_apart(driver):
    """Each works alone: both are shown, in two calls from then on."""
    rules = ("clash 0 field4", "clash 0 field94")

    found = rounds(driver, (0, *rules), (15, *rules), (30, *rules, "log"), (45, *rules, "log"))
    calls = driver.calls()

    assert all(sample.failed == {} for sample in found)
    assert all(sample.values == OURS for sample in found)
    assert calls[1].count("fields") < 8
    assert calls[0].count("fields") == calls[1].count("fields")


def test_a_call_that_fails_once_changes_nothing(driver):
    """The next round asks for everything in one call again."""
    found = rounds(driver, (0,), (15, "poison 0 field76 999"), (30, "log"), (45, "log"))

    assert [calls.count("fields") for calls in driver.calls()] == [2, 2]
    assert [sample.failed for sample in found] == [{}, {"unknown": 1}, {}, {}]
    assert [OURS.keys() - sample.values.keys() for sample in found] == [
        set(),
        {("clock_limited_seconds_total", "sync_boost")},
        set(),
        set(),
    ]


def test_a_field_is_tried_again_with_a_new_handle(driver):
    """After the device was reset the field may work."""
    poison = "poison 0 field76 999"

    found = rounds(driver, (0, poison), (15, poison), (30,), (32, "return 0 utilization 15"), (34,))

    assert [family(sample, "clock_limited_seconds_total").get("sync_boost") for sample in found] == [
        None,
        None,
        4.5,
        None,
        0.25,
    ]


def test_a_driver_that_fails_every_such_call_is_not_asked_without_end(driver):
    """When no field can be read at all, the splitting rests for a while."""
    found = rounds(driver, (0, "return 0 fields 999"), *((2 * i, "return 0 fields 999", "log") for i in range(1, 15)))
    counts = [calls.count("fields") for calls in driver.calls()]

    assert all(sample.up for sample in found)
    assert found[0].values["utilization_ratio",] == 0.9
    assert not family(found[0], "power_watts")
    assert sum(counts) < 30


def test_a_lost_device_is_known_from_a_field(driver):
    """A code of one field can mean the whole device."""
    found = rounds(driver, (0,), (2, "return 0 field186 15"), (4,))

    assert [(sample.up, sample.reason) for sample in found] == [(True, ""), (False, "lost"), (True, "")]


def test_a_lost_device_is_known_from_the_call(driver):
    """No splitting for a device that is gone."""
    rounds(driver, (0,), (15, "return 0 fields 15", "log"))

    assert driver.calls()[0].count("fields") == 1


def test_a_value_of_an_unknown_type_costs_itself(driver):
    """A field in a form that nvml.h did not have when this was written is counted, not fatal."""
    driver.behave("value 1 field82_type 12")

    device = driver.message().devices[1]

    assert device.up
    assert device.failed == {"not_understood": 1}
    assert family(device, "temperature_celsius") == {"gpu": 51.0}
