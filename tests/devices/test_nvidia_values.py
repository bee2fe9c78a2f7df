"""What is read of an NVIDIA device, in our units: the real nvidia-ml-py on a stub of the driver's library."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.devices.nvidia_values import DEVICE_0, family
from tests.fixtures.nvml.driver import Driver, compile_stub

from trainvitals.metrics import FAMILIES, PREFIX

GIB = 2**30
MIB = 2**20
ALL_ONES = 2**32 - 1


@pytest.fixture
def old(tmp_path):
    """Give a driver without the calls and fields that came late."""
    return Driver(compile_stub(tmp_path, "-DOLD_DRIVER"), tmp_path)


def test_a_healthy_device_has_every_value(driver):
    """Each value is in base units, under a family and labels of the catalogue."""
    device = driver.message().devices[0]

    ours = {name for name, *_ in DEVICE_0}
    assert {key: value for key, value in device.values.items() if key[0] in ours} == DEVICE_0
    assert device.failed == {}
    for name, *labels in device.values:
        assert len(FAMILIES[f"{PREFIX}device_{name}"].labels) == 2 + len(labels)


def test_each_device_has_its_own_values(driver):
    """Nothing is read of the neighbour."""
    devices = driver.message().devices

    assert [device.values["utilization_ratio",] for device in devices] == [
        0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97,
    ]  # fmt: skip
    assert [device.values["power_watts", "average"] for device in devices[:3]] == [490.25, 491.25, 492.25]
    assert [device.values["energy_joules_total",] for device in devices[:3]] == [5000.25, 5001.25, 5002.25]
    assert [device.values["ecc_errors_total", "corrected"] for device in devices[:3]] == [11.0, 12.0, 13.0]
    assert [device.values["temperature_margin_celsius",] for device in devices[:3]] == [26.0, 27.0, 28.0]
    assert [device.values["ecc_sram_threshold_exceeded",] for device in devices[:4]] == [0.0, 0.0, 1.0, 0.0]
    assert [key[4] for device in devices for key in device.values if key[0] == "hardware_info"] == list("76543210")


def test_an_older_driver_is_read_through_the_older_calls(old):
    """Without the calls and fields that came late the same values come from their predecessors, or are absent."""
    device = old.message().devices[0]

    assert device.failed == {}
    assert device.values["memory_used_bytes",] == 61.0 * GIB
    assert ("memory_reserved_bytes",) not in device.values
    assert family(device, "temperature_celsius") == {"gpu": 49.0, "memory": 70.0}
    assert family(device, "power_watts") == {"default": 480.25}
    assert family(device, "clock_limited") == {
        "idle": 0.0,
        "sw_power_cap": 0.0,
        "hw_slowdown": 0.0,
        "sw_thermal": 1.0,
    }
    assert family(device, "clock_limited_seconds_total") == {"sw_power_cap": 2.5, "sync_boost": 0.25, "thermal": 3.0}
    assert family(device, "temperature_limit_celsius") == {
        "shutdown": 92.0,
        "slowdown": 89.0,
        "memory_max": 95.0,
        "gpu_max": 85.0,
    }
    assert {name for name, *_ in DEVICE_0} - {name for name, *_ in device.values} == {
        "memory_reserved_bytes",
        "temperature_margin_celsius",
        "temperature_margin_limit_celsius",
        "pcie_transmit_bytes_total",
        "pcie_receive_bytes_total",
        "ecc_sram_threshold_exceeded",
        "repair_pending",
        "recovery_needed",
    }


def test_an_older_binding_is_enough(driver):
    """What nvidia-ml-py 12.560 cannot ask for is absent, or asked for with the older call, and is no failure."""
    driver.environ["PYTHONPATH"] = str(Path(__file__).parent.parent / "fixtures" / "nvml" / "older")

    found = driver.rounds((0,), (15,), (60,))

    for sample in found:
        assert (sample.up, sample.failed) == (True, {})
        assert sample.values["temperature_celsius", "gpu"] == 49.0
        assert DEVICE_0.keys() - sample.values.keys() == {
            ("temperature_margin_celsius",),
            ("repair_pending", "channel"),
            ("repair_pending", "tpc"),
        }


def test_a_split_device_keeps_the_values_of_its_board(driver):
    """With MIG there is no utilization and no remapping; temperature, power and clocks stay (dcgm-exporter#561)."""
    driver.behave("return 0 utilization 3", "return 0 remapped_rows 3", "return 0 histogram 3", "return 0 field142 3")

    device = driver.message().devices[0]

    assert (device.up, device.failed) == (True, {})
    assert {key for key in DEVICE_0 if key not in device.values} == {
        ("utilization_ratio",),
        ("memory_activity_ratio",),
        ("remapped_rows", "correctable"),
        *(("row_remap_banks", spares) for spares in ("max", "high", "partial", "low", "none")),
    }


def test_unified_memory_is_absent(driver):
    """A device that uses the memory of the host has none of its own to show (GB10)."""
    driver.behave("return 0 memory_v2 3", "return 0 memory 3")

    device = driver.message().devices[0]

    assert (device.up, device.failed) == (True, {})
    assert not [key for key in device.values if key[0].startswith("memory_") and key[0].endswith("_bytes")]
    assert device.values["memory_activity_ratio",] == 0.4


@pytest.mark.parametrize(("number", "kind"), [(-8, 5), (2**32 - 8, 1), (-8, 4)], ids=["int", "uint", "llong"])
def test_a_limit_as_a_margin_keeps_its_sign(driver, number, kind):
    """Other programs read it as signed, whatever type the driver gives it."""
    driver.behave(f"value 0 field193 {number}", f"value 0 field193_type {kind}")

    assert driver.message().devices[0].values["temperature_margin_limit_celsius", "shutdown"] == -8.0


@pytest.mark.parametrize("celsius", [0, -5])
def test_a_margin_may_be_used_up(driver, celsius):
    """No degree left, and less than none, are readings (gpud#1208)."""
    driver.behave(f"value 0 margin {celsius}")

    assert driver.message().devices[0].values["temperature_margin_celsius",] == celsius


@pytest.mark.parametrize(
    ("rules", "watts"),
    [
        ([], {"average": 490.25, "instant": 500.5}),
        (["return 0 field185 3"], {"instant": 500.5}),
        (["return 0 field186 3"], {"average": 490.25}),
        (["return 0 field185 3", "return 0 field186 3"], {"default": 480.25}),
        (["return 0 field185 999", "return 0 field186 3"], {}),
        (["return 0 field186 999"], {"average": 490.25}),
    ],
)
def test_each_kind_of_power_is_called_by_its_name(driver, rules, watts):
    """Average and instant are different numbers; what the driver chooses is shown only where there is neither."""
    driver.behave(*rules)

    assert family(driver.message().devices[0], "power_watts") == watts


def test_only_reasons_that_the_device_can_tell_are_shown(driver):
    """A reason that is not supported has no series, unless it is told all the same."""
    driver.behave(
        "value 0 supported_reasons 13",  # 0x1 + 0x4 + 0x8
        "value 0 reasons 9",  # 0x1 + 0x8
        "value 1 supported_reasons 1",
        "value 1 reasons 64",
        "return 2 supported_reasons 3",
        "return 2 old_supported_reasons 3",
    )

    devices = driver.message().devices

    assert family(devices[0], "clock_limited") == {"idle": 1.0, "sw_power_cap": 0.0, "hw_slowdown": 1.0}
    assert family(devices[1], "clock_limited") == {"idle": 0.0, "hw_thermal": 1.0}
    assert sum(family(devices[2], "clock_limited").values()) == 1.0
    assert len(family(devices[2], "clock_limited")) == 9


@pytest.mark.parametrize(
    ("bit", "reason"),
    [
        (0x1, "idle"),
        (0x2, "application_clocks"),
        (0x4, "sw_power_cap"),
        (0x8, "hw_slowdown"),
        (0x10, "sync_boost"),
        (0x20, "sw_thermal"),
        (0x40, "hw_thermal"),
        (0x80, "hw_power_brake"),
        (0x100, "display_clocks"),
    ],
)
def test_each_reason_has_its_word(driver, bit, reason):
    """The bits are those of nvmlClocksEventReasons."""
    driver.behave(f"value 0 reasons {bit}")

    limited = family(driver.message().devices[0], "clock_limited")

    assert [name for name, value in limited.items() if value] == [reason]


@pytest.mark.parametrize(
    ("action", "needed", "words"),
    [
        (0, 0.0, []),
        (1, 1.0, ["gpu_reset"]),
        (2, 1.0, ["node_reboot"]),
        (3, 1.0, ["drain_p2p"]),
        (4, 1.0, ["drain_and_reset"]),
        (5, 1.0, ["recover_imex_domain"]),
        (6, 1.0, ["bus_reset"]),
        (7, 1.0, ["system_reboot"]),
        (8, 1.0, ["unknown"]),
    ],
)
def test_the_action_that_the_driver_asks_for(driver, action, needed, words):
    """No action, one by its word in nvml.h, or one that came later."""
    driver.behave(f"value 0 field230 {action}")

    device = driver.message().devices[0]

    assert device.values["recovery_needed",] == needed
    assert [key[1] for key in device.values if key[0] == "recovery_action_info"] == words


def test_kinds_of_pcie_errors_are_shown_once_they_happened(driver):
    """Twelve kinds that never happen would be a hundred series on a node."""
    driver.behave("value 0 field95 1", "value 0 field169 2", *(f"value 0 field{173 + i} {10 + i}" for i in range(11)))

    devices = driver.message().devices

    assert family(devices[0], "pcie_errors_total") == {
        "replay_rollover": 1.0,
        "link_recovery": 2.0,
        "correctable": 10.0,
        "naks_received": 11.0,
        "receiver": 12.0,
        "bad_tlp": 13.0,
        "naks_sent": 14.0,
        "bad_dllp": 15.0,
        "non_fatal": 16.0,
        "fatal": 17.0,
        "unsupported_request": 18.0,
        "lcrc": 19.0,
        "lane": 20.0,
    }
    assert family(devices[1], "pcie_errors_total") == {"correctable": 3.0}


def test_retired_pages_of_an_older_board(driver):
    """Before Ampere pages are taken out of use, and rows are not replaced."""
    absent = [f"return 0 {call} 3" for call in ("field142", "field143", "field144", "field145", "remapped_rows")]
    driver.behave(*absent, "return 0 histogram 3", "known 0 field29 5", "known 0 field30 2", "known 0 field31 1")

    device = driver.message().devices[0]

    assert family(device, "retired_pages") == {"corrected": 5.0, "uncorrected": 2.0}
    assert device.values["retired_pages_pending",] == 1.0
    assert not [key for key in device.values if key[0].startswith(("remapped", "row_remap"))]


def test_a_board_with_fans(driver):
    """Each fan has its own series."""
    driver.behave("value 0 fans 3", "value 0 fan 41")

    assert family(driver.message().devices[0], "fan_ratio") == {"0": 0.41, "1": 0.42, "2": 0.43}


def test_a_corrupted_inforom_costs_what_it_holds(driver):
    """Serial and board number are empty and counted, the other labels and values stay."""
    driver.behave("return 0 serial 14", "return 0 board 14", "return 0 ecc_mode 14")

    device = driver.message().devices[0]

    assert device.up
    assert device.failed == {"corrupted_inforom": 3}
    assert ("hardware_info", "", "", "96.00.5E.00.00", "7", "9.0") in device.values
    assert {key for key in DEVICE_0 if key not in device.values if key[0] != "hardware_info"} == {("ecc_enabled",)}


def test_hardware_that_fails_once_is_asked_for_again(driver):
    """The labels are whole a minute later; what is known is not asked for again, so that it does not change."""
    found = driver.rounds((0, "return 0 minor 10"), (58,), (60,), (120, "return 0 serial 999", "value 0 minor 3"))

    def hardware(sample):
        return next(key[1:] for key in sample.values if key[0] == "hardware_info")

    whole = ("1650000000000", "900-5EED-0000-000", "96.00.5E.00.00", "7", "9.0")
    assert [hardware(sample) for sample in found] == [(*whole[:3], "", "9.0")] * 2 + [whole] * 2
    assert [sample.failed for sample in found] == [{"timeout": 1}, {}, {}, {}]


def test_hardware_that_is_not_told_is_empty(driver):
    """A board without a serial number, bytes that are no text, and a number that is none."""
    driver.behave("return 0 serial 3", "board 0 damaged", f"value 0 minor {ALL_ONES}")

    device = driver.message().devices[0]

    assert device.failed == {}
    assert ("hardware_info", "", "NVIDIA \ufffd\ufffd", "96.00.5E.00.00", "", "9.0") in device.values


def test_without_any_identity_there_is_no_info(driver):
    """A series without a label says nothing."""
    driver.behave(*(f"return 0 {call} 3" for call in ("serial", "board", "firmware", "minor", "capability")))

    device = driver.message().devices[0]

    assert not [key for key in device.values if key[0] == "hardware_info"]
    assert device.failed == {}


# Over time ----------------------------------------------------------------------------------------------------------


def test_energy_begins_anew_with_the_driver(driver):
    """The counter is the driver's: it falls when that is loaded again, as counters do."""
    found = driver.rounds((0, "value 0 field83 9000500"), (20, "value 0 field83 9100500"), (40, "value 0 field83 250"))

    assert [sample.values["energy_joules_total",] for sample in found] == [9000.5, 9100.5, 0.25]


def test_bytes_over_pcie_are_counted_over_the_wrap(driver):
    """The device's counter has 32 bits; ours goes on."""
    sent = [4294967000, 4294967290, 5, 5, 1005]
    received = [100, 300, 700, 1500, 3100]

    found = driver.rounds(
        *((2 * i, f"value 0 field197 {sent[i]}", f"value 0 field198 {received[i]}") for i in range(5))
    )

    assert [sample.values["pcie_transmit_bytes_total",] for sample in found] == [0.0, 290.0, 301.0, 301.0, 1301.0]
    assert [sample.values["pcie_receive_bytes_total",] for sample in found] == [0.0, 200.0, 600.0, 1400.0, 3000.0]


def test_bytes_that_cannot_be_counted_are_absent(driver):
    """When half the range of the device's counter passes in one round, a whole one may have been missed."""
    sent = [1000, 1500, 1500 + 2**31, 1500 + 2**31 + 700, 900]
    quiet = [900 + 10 * i for i in range(1, 31)]

    found = driver.rounds(*((2 * i, f"value 0 field197 {count}") for i, count in enumerate([*sent, *quiet])))

    counts = [sample.values.get(("pcie_transmit_bytes_total",)) for sample in found]
    # The step back to 900 is 2**31 - 1300 bytes over the wrap: less than half.
    assert counts[:5] == [0.0, 500.0, None, None, None]
    assert counts[5:32] == [None] * 27
    assert counts[32:] == [500.0, 510.0, 520.0]
    assert all(sample.failed == {} for sample in found)


def test_a_wide_counter_of_bytes_does_not_wrap_at_32_bits(driver):
    """A device that counts beyond 4 GiB and then less was reset."""
    sent = [9000000000, 9000000500, 70, 90]
    rules = [(f"value 0 field197 {count}", "value 0 field197_type 3") for count in sent]

    found = driver.rounds(*((2 * i, *rules[i]) for i in range(4)))

    assert [sample.values["pcie_transmit_bytes_total",] for sample in found] == [0.0, 500.0, 570.0, 590.0]


def test_a_blank_does_not_move_the_counter_of_bytes(driver):
    """An all-ones answer is handed on, to be rejected, and is no wrap."""
    sent = [1000, ALL_ONES, 1500]

    found = driver.rounds(*((2 * i, f"value 0 field197 {sent[i]}") for i in range(3)))

    assert [sample.values["pcie_transmit_bytes_total",] for sample in found] == [0.0, ALL_ONES, 500.0]


def test_a_failure_does_not_move_the_counter_of_bytes(driver):
    """What could not be read once is counted the next time."""
    found = driver.rounds((0, "value 0 field197 1000"), (2, "return 0 field197 999"), (4, "value 0 field197 1800"))

    assert [sample.values.get(("pcie_transmit_bytes_total",)) for sample in found] == [0.0, None, 800.0]


def test_tiers_are_read_at_their_pace(driver):
    """Utilization every round, temperature after 15 s, the mode of ECC after 60 s."""
    changed = ("value 0 utilization 7", "value 0 temperature_v 33", "value 0 ecc_mode 0")

    found = driver.rounds((0,), (2, *changed), (14.9, *changed), (15, *changed), (60, *changed))

    assert [
        (
            sample.values["utilization_ratio",],
            sample.values["temperature_celsius", "gpu"],
            sample.values["ecc_enabled",],
        )
        for sample in found
    ] == [(0.9, 50.0, 1.0), (0.07, 50.0, 1.0), (0.07, 50.0, 1.0), (0.07, 33.0, 1.0), (0.07, 33.0, 0.0)]
