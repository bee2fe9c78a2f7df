"""What a failing call of the NVIDIA library costs: its own values, and nothing else."""

from __future__ import annotations

import pytest
from tests.devices.nvidia_values import DEVICE_0

from trainvitals.collect.base import Sink, Tally
from trainvitals.collect.devices import DevicesCollector
from trainvitals.devices.base import Reading
from trainvitals.devices.nvidia.errors import ERRORS, Effect
from trainvitals.devices.simulated import SimulatedDevices

#: Each call, and the families or single values that come from it.
LOST = {
    "utilization": ["utilization_ratio", "memory_activity_ratio"],
    "memory_v2": ["memory_used_bytes", "memory_total_bytes", "memory_reserved_bytes"],
    "limit": ["power_limit_watts"],
    "limits": ["power_limit_bound_watts min", "power_limit_bound_watts max"],
    "default_limit": ["power_limit_bound_watts default"],
    "sm_clock": ["clock_hertz sm"],
    "memory_clock": ["clock_hertz memory"],
    "max_sm_clock": ["clock_max_hertz sm"],
    "max_memory_clock": ["clock_max_hertz memory"],
    "reasons": ["clock_limited"],
    "performance_state": ["performance_state"],
    "temperature_v": ["temperature_celsius gpu"],
    "margin": ["temperature_margin_celsius"],
    "fans": [],
    "ecc_mode": ["ecc_enabled"],
    "sram": ["ecc_sram_threshold_exceeded"],
    "histogram": ["row_remap_banks"],
    "repair": ["repair_pending"],
    "generation": ["pcie_generation"],
    "width": ["pcie_width"],
    "max_generation": ["pcie_max_generation"],
    "max_width": ["pcie_max_width"],
    "field3": ["ecc_errors_total corrected"],
    "field4": ["ecc_errors_total uncorrected"],
    "field5": ["ecc_lifetime_errors_total corrected"],
    "field6": ["ecc_lifetime_errors_total uncorrected"],
    "field74": ["clock_limited_seconds_total sw_power_cap"],
    "field76": ["clock_limited_seconds_total sync_boost"],
    "field82": ["temperature_celsius memory"],
    "field83": ["energy_joules_total"],
    "field94": ["pcie_replays_total"],
    "field142": ["remapped_rows correctable"],
    "field143": ["remapped_rows uncorrectable"],
    "field144": ["row_remap_pending"],
    "field145": ["row_remap_failed"],
    "field173": [],
    "field185": ["power_watts average"],
    "field186": ["power_watts instant"],
    "field193": ["temperature_margin_limit_celsius shutdown"],
    "field194": ["temperature_margin_limit_celsius slowdown"],
    "field195": ["temperature_margin_limit_celsius memory_max"],
    "field196": ["temperature_margin_limit_celsius gpu_max"],
    "field197": ["pcie_transmit_bytes_total"],
    "field198": ["pcie_receive_bytes_total"],
    "field230": ["recovery_needed"],
    "field269": ["clock_limited_seconds_total sw_thermal"],
    "field270": ["clock_limited_seconds_total hw_thermal"],
    "field271": ["clock_limited_seconds_total hw_power_brake"],
}
#: What an older call has to say instead, where a newer one is not supported.
INSTEAD = {
    "memory_v2": {("memory_used_bytes",): 65498251264.0, ("memory_total_bytes",): 107374182400.0},
    "reasons": {
        ("clock_limited", reason): float(reason == "sw_thermal")
        for name, reason in (key for key in DEVICE_0 if key[0] == "clock_limited")
    },
    "temperature_v": {("temperature_celsius", "gpu"): 49.0},
    "field3": {("ecc_errors_total", "corrected"): 21.0},
    "field4": {("ecc_errors_total", "uncorrected"): 22.0},
    "field5": {("ecc_lifetime_errors_total", "corrected"): 31.0},
    "field6": {("ecc_lifetime_errors_total", "uncorrected"): 32.0},
    "field74": {("clock_limited_seconds_total", "sw_power_cap"): 1.5},
    "field76": {("clock_limited_seconds_total", "sync_boost"): 4.5},
    "field83": {("energy_joules_total",): 77000.25},
    "field94": {("pcie_replays_total",): 8.0},
    "field142": {("remapped_rows", "correctable"): 6.0},
    "field143": {("remapped_rows", "uncorrectable"): 7.0},
    "field144": {("row_remap_pending",): 1.0},
    "field145": {("row_remap_failed",): 0.0},
    "field193": {("temperature_limit_celsius", "shutdown"): 92.0},
    "field194": {("temperature_limit_celsius", "slowdown"): 89.0},
    "field195": {("temperature_limit_celsius", "memory_max"): 95.0},
    "field196": {("temperature_limit_celsius", "gpu_max"): 85.0},
}
OURS = {name for name, *_ in DEVICE_0} | {"temperature_limit_celsius", "pcie_errors_total", "fan_ratio"}


def without(call):
    """Return the values of a healthy device but those of a call."""
    lost = [name.split() for name in LOST[call]]
    return {key: value for key, value in DEVICE_0.items() if list(key) not in lost and [key[0]] not in lost}


def each_call_fails(driver, code):
    """Return what is read while one call after the other fails with ``code``: all tiers each time."""
    found = driver.rounds(*((10_000 * i, f"return 0 {call} {code}") for i, call in enumerate(LOST)))
    return dict(zip(LOST, found, strict=True))


def values(sample):
    """Return the values that these tests are about."""
    return {key: value for key, value in sample.values.items() if key[0] in OURS}


@pytest.mark.parametrize("code", [code for code, (_, effect) in ERRORS.items() if effect is Effect.FIELD if code >= 0])
def test_a_failing_call_costs_its_own_values_and_is_counted(driver, code):
    """Whatever the code, the other values stay; no older call is asked, whose number may mean something else."""
    reason = ERRORS[code][0]

    for call, sample in each_call_fails(driver, code).items():
        assert sample.up, call
        if call.startswith("field") and code == 2:
            # An older driver calls a field that it does not know so.
            continue
        assert values(sample) == without(call), call
        assert sample.failed == {reason: 1}, call


@pytest.mark.parametrize("code", [code for code, (_, effect) in ERRORS.items() if effect is Effect.ABSENT])
def test_what_a_device_does_not_have_is_absent(driver, code):
    """No number stands for it, and it is no failure; an older call answers where there is one."""
    for call, sample in each_call_fails(driver, code).items():
        assert sample.up, call
        assert sample.failed == {}, call
        assert values(sample) == without(call) | INSTEAD.get(call, {}), call


def test_a_code_without_a_name_is_counted_by_its_number(driver):
    """A code that came later costs one value too."""
    driver.behave("return 1 utilization 77", "return 1 sm_clock 999", "return 1 limit 4", "return 1 field82 4")

    device = driver.message().devices[1]

    assert device.up
    assert device.failed == {"no_permission": 2, "unknown": 1, "code_77": 1}
    assert device.values["memory_used_bytes",] == 61 * 2**30


def test_any_call_can_tell_that_the_device_is_lost(driver):
    """The device is down with its identity and without values, and up again when it answers."""
    steps = [(20_000 * i + after, *rules) for i, call in enumerate(LOST) for after, *rules in [(0, lost(call)), (9,)]]
    found = driver.rounds(*steps)

    for i, call in enumerate(LOST):
        down, again = found[2 * i : 2 * i + 2]
        assert (down.up, down.reason, down.uuid) == (False, "lost", "GPU-5eed0000-0000-4000-8000-000000000000"), call
        assert (down.values, down.failed) == ({}, {"gpu_is_lost": 1}), call
        assert (again.up, values(again)) == (True, DEVICE_0), call


def lost(call):
    """Return the rule that a call finds the device off the bus."""
    return f"return 0 {call} 15"


def test_a_device_that_answers_nothing_is_down(driver):
    """When every single call fails the device is not up, whatever the code."""
    driver.behave("return 4 * 999", *(f"return 4 {call} 0" for call in ("handle", "uuid", "name", "pci")))

    device = driver.message().devices[4]

    assert not device.up
    assert device.failed["unknown"] > 40
    assert device.uuid == "GPU-5eed0000-0000-4000-8000-000000000004"


# Numbers that are none ----------------------------------------------------------------------------------------------

#: All bits set in 32 bits; DCGM's blanks of 32 bits; what was seen in the field instead of a percentage.
BLANKS_32 = [2**32 - 1, 0x7FFFFFF0, 0x7FFFFFF2]
#: All bits set in 64 bits with and without sign; DCGM's blanks of 64 bits and of floating point.
BLANKS_64 = [2**64 - 1, 2**63 - 1, 2**63 - 14, 2**63 - 16, 140737488355328, *BLANKS_32]
WIDE = {"memory_v2", "reasons", *(f"field{number}" for number in (3, 4, 5, 6, 74, 76, 83, 269, 270, 271))}
#: Where a blank is taken for a set of reasons, it is told apart before it becomes a number.
BEFORE = {"reasons": "not_understood"}
#: Margins: with all bits set they are one degree below zero, which is a reading.
SIGNED = {"margin", "field193", "field194", "field195", "field196"}
#: Calls whose rules have other names than the call.
NUMBERS = {"limits": ["lowest_limit", "highest_limit"], "repair": ["repair", "tpc_repair"], "fans": ["fan"]}


def series(sample):
    """Return the samples of a device as the exporter shows them, and what it rejected."""

    class Fixed(SimulatedDevices):
        def latest(self):
            return Reading(vendor="nvidia", up=True, devices=[sample], age=0.0)

    tally = Tally()
    sink = Sink(tally, limit=10_000, collector="devices")
    DevicesCollector([Fixed(0)]).collect(sink)
    shown = {
        (one.name.removeprefix("trainvitals_device_"), *list(one.labels.values())[2:]): one.value
        for family in sink.families()
        for one in family.samples
    }
    return {key: value for key, value in shown.items() if key[0] in OURS}, tally.rejected


@pytest.mark.parametrize("blank", sorted(set(BLANKS_64)))
def test_a_blank_never_becomes_a_series(driver, blank):
    """A number that means "not supported" is rejected and counted in whatever unit; the other values stay."""
    calls = [call for call in LOST if LOST[call] and (blank in BLANKS_32 or call in WIDE)]
    calls = [call for call in calls if call not in SIGNED or blank != 2**32 - 1]
    steps = []
    for i, call in enumerate(calls):
        rules = [f"value 0 {name} {blank}" for name in NUMBERS.get(call, [call])]
        steps.append((10_000 * i, *rules, *([f"value 0 memory_activity {blank}"] if call == "utilization" else [])))

    for call, sample in zip(calls, driver.rounds(*steps), strict=True):
        shown, rejected = series(sample)
        if call in BEFORE:
            assert sample.failed == {BEFORE[call]: 1}
            assert shown == without(call)
            continue
        lost = DEVICE_0.keys() - shown.keys()
        assert {key: DEVICE_0[key] for key in shown} == shown, call
        assert lost, call
        assert lost <= DEVICE_0.keys() - without(call).keys(), call
        assert sum(rejected.values()) == len(lost), call


@pytest.mark.parametrize("percent", [101, 1980, 2619, 686103, 808334905, 4294967295])
def test_a_share_above_all_is_rejected(driver, percent):
    """Seen among millions of readings (dcgm-exporter#418): not even a per cent above 100 is shown."""
    driver.behave(f"value 0 utilization {percent}", "value 0 fans 1", f"value 0 fan {percent}")

    shown, rejected = series(driver.message().devices[0])

    assert ("utilization_ratio",) not in shown
    assert shown["memory_activity_ratio",] == 0.4
    assert rejected == {"trainvitals_device_utilization_ratio": 1, "trainvitals_device_fan_ratio": 1}


@pytest.mark.parametrize(
    ("rule", "family"),
    [
        ("generation 11", "pcie_generation"),
        ("generation 0", "pcie_generation"),
        ("max_generation 255", "pcie_max_generation"),
        ("width 65", "pcie_width"),
        ("width 0", "pcie_width"),
        ("max_width 128", "pcie_max_width"),
        ("performance_state 32", "performance_state"),
        ("ecc_mode 2", "ecc_enabled"),
        ("sram 2", "ecc_sram_threshold_exceeded"),
        ("repair 3", "repair_pending"),
        ("field142 1000001", "remapped_rows"),
        ("field144 2", "row_remap_pending"),
        ("field145 2", "row_remap_failed"),
        ("histogram 4294967294", "row_remap_banks"),
        ("field230 64", "recovery_needed"),
        ("temperature_v 251", "temperature_celsius"),
        ("margin 2147483647", "temperature_margin_celsius"),
        ("field193 2147483647", "temperature_margin_limit_celsius"),
        ("limit 100000001", "power_limit_watts"),
        ("sm_clock 30001", "clock_hertz"),
        ("max_sm_clock 65535", "clock_max_hertz"),
    ],
)
def test_what_no_device_can_reach_is_rejected(driver, rule, family):
    """Each unit has its bounds."""
    driver.behave(f"value 0 {rule}")

    shown, rejected = series(driver.message().devices[0])

    assert rejected == {f"trainvitals_device_{family}": 1}
    assert len(DEVICE_0.keys() - shown.keys()) == 1
