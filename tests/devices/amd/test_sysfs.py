"""Cards of AMD as the driver amdgpu shows them in sysfs."""

from __future__ import annotations

import errno
import os

import pytest
from tests.devices.amd.machine import INSTINCT, RADEON, Machine, read

from trainvitals.devices.amd import cards, signals
from trainvitals.devices.base import NoLibraryError, SourceDownError


@pytest.fixture
def machine(tmp_path):
    """Return a machine without a card."""
    return Machine(tmp_path)


def test_every_value_of_a_newer_accelerator(machine):
    """Each file in our units and words; the hottest spot is the chip's temperature where the edge has no sensor."""
    machine.add("0000:15:00.0", 1)

    (sample,) = read(machine.reader()).values()

    assert (sample.up, sample.uuid, sample.name) == (True, "GPU-5c1e90ab34d7f602", "AMD Instinct Example 3")
    assert (sample.pci_bus_id, sample.failed) == ("0000:15:00.0", {})
    assert sample.values == {
        ("utilization_ratio",): 0.87,
        ("memory_activity_ratio",): 0.34,
        ("memory_total_bytes",): 206141652992.0,
        ("memory_used_bytes",): 171900993536.0,
        ("temperature_celsius", "gpu"): 71.0,
        ("temperature_celsius", "memory"): 63.0,
        ("power_watts", "instant"): 641.5,
        ("clock_hertz", "sm"): 1.34e9,
        ("clock_hertz", "memory"): 1.3e9,
        ("pcie_generation",): 5.0,
        ("pcie_width",): 16.0,
        ("pcie_replays_total",): 3.0,
        ("ecc_errors_total", "uncorrected"): 1.0,
        ("ecc_errors_total", "corrected"): 47.0,
        ("ecc_errors_total", "deferred"): 2.0,
        ("power_limit_watts",): 750.0,
        ("pcie_max_generation",): 5.0,
        ("pcie_max_width",): 16.0,
        ("clock_max_hertz", "sm"): 2.1e9,
        ("clock_max_hertz", "memory"): 1.3e9,
        ("temperature_limit_celsius", "slowdown"): 100.0,
        ("temperature_limit_celsius", "shutdown"): 105.0,
        ("temperature_limit_celsius", "memory_max"): 105.0,
        ("power_limit_bound_watts", "min"): 0.0,
        ("power_limit_bound_watts", "max"): 750.0,
        ("power_limit_bound_watts", "default"): 750.0,
        ("retired_pages", "uncorrected"): 2.0,
        ("retired_pages_pending",): 1.0,
        ("hardware_info", "692345001177", "102-E31407-20", "113-E3140700-102", "131", ""): 1.0,
    }


def test_every_value_of_an_older_card(machine):
    """The edge is the chip's temperature, the hottest spot has its own; what is not there is absent."""
    machine.add("0000:c3:00.0", 0, RADEON)
    (machine.root / "module" / "amdgpu").mkdir(parents=True)
    (machine.root / "module" / "amdgpu" / "version").write_text("6.8.5\n")

    (sample,) = read(machine.reader()).values()

    assert (sample.name, sample.driver_version) == ("AMD 0x7448", "6.8.5")
    assert sample.values == {
        ("utilization_ratio",): 0.0,
        ("memory_activity_ratio",): 0.0,
        ("memory_total_bytes",): 48301604864.0,
        ("memory_used_bytes",): 29163520.0,
        ("temperature_celsius", "gpu"): 39.0,
        ("temperature_celsius", "hotspot"): 44.0,
        ("temperature_celsius", "memory"): 52.0,
        ("power_watts", "average"): 18.0,
        ("clock_hertz", "sm"): 1.2e7,
        ("clock_hertz", "memory"): 9.6e7,
        ("pcie_generation",): 1.0,
        ("pcie_width",): 16.0,
        ("power_limit_watts",): 241.0,
        ("pcie_max_generation",): 4.0,
        ("pcie_max_width",): 16.0,
        ("temperature_limit_celsius", "slowdown"): 100.0,
        ("temperature_limit_celsius", "shutdown"): 105.0,
    }


def test_a_card_with_one_sensor_without_a_name(machine):
    """The oldest ones do not label what they measure."""
    files = {"vendor": "0x1002", "hwmon/hwmon0/temp1_input": "55000", "hwmon/hwmon0/freq1_input": "852000000"}
    machine.add("0000:05:00.0", 0, files)

    (sample,) = read(machine.reader()).values()

    assert sample.values == {("temperature_celsius", "gpu"): 55.0, ("clock_hertz", "sm"): 8.52e8}
    assert sample.uuid == "0000:05:00.0"


@pytest.mark.parametrize("mark", ["", "N/A", "-1", "unknown", "NA", "-"])
def test_no_mark_becomes_a_number(machine, mark):
    """Whatever stands for "cannot read" is absent, and nothing has failed."""
    machine.add("0000:05:00.0", 0, dict.fromkeys(RADEON, mark), vendor="0x1002", device=None)

    (sample,) = read(machine.reader()).values()

    assert sample.values == {}
    assert sample.failed == {}
    assert sample.uuid == "0000:05:00.0"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("gpu_busy_percent", "255", "implausible"),
        ("gpu_busy_percent", "65535", ""),
        ("gpu_busy_percent", "busy", "not_understood"),
        ("mem_info_vram_used", "206141652992000", "implausible"),
        ("mem_info_vram_total", "0", "implausible"),
        ("hwmon/hwmon7/temp2_input", "0", "implausible"),
        ("hwmon/hwmon7/temp2_input", "-273150", "implausible"),
        ("hwmon/hwmon7/temp2_input", "65535000", "implausible"),
        ("hwmon/hwmon7/power1_input", "65535000000", "implausible"),
        ("hwmon/hwmon7/power1_input", "0", ""),
        ("hwmon/hwmon7/freq1_input", "99999999999999", "implausible"),
        ("current_link_width", "17", "implausible"),
        ("current_link_width", "0", ""),
        ("current_link_speed", "Unknown", ""),
        ("current_link_speed", "7.0 GT/s PCIe", ""),
        ("pcie_replay_count", "-4", "implausible"),
        ("ras/umc_err_count", "unhappy", "not_understood"),
        ("ras/gpu_vram_bad_pages", "lots", "not_understood"),
    ],
)
def test_what_no_card_can_have_is_no_value(machine, name, text, reason):
    """It is left out and counted, and the rest of the card stays."""
    machine.add("0000:15:00.0", 1, {**INSTINCT, name: text})
    family = {
        "gpu_busy_percent": "utilization_ratio",
        "mem_info_vram_used": "memory_used_bytes",
        "mem_info_vram_total": "memory_total_bytes",
        "hwmon/hwmon7/temp2_input": "temperature_celsius",
        "hwmon/hwmon7/power1_input": "power_watts",
        "hwmon/hwmon7/freq1_input": "clock_hertz",
        "current_link_width": "pcie_width",
        "current_link_speed": "pcie_generation",
        "pcie_replay_count": "pcie_replays_total",
        "ras/umc_err_count": "ecc_errors_total",
        "ras/gpu_vram_bad_pages": "retired_pages",
    }[name]

    (sample,) = read(machine.reader()).values()

    left = {key for key in sample.values if key[0] == family}
    assert left <= {("temperature_celsius", "memory"), ("clock_hertz", "memory")}
    assert sample.failed == ({reason: 1} if reason else {})
    assert sample.up
    assert len(sample.values) >= 25


def test_a_dead_card_that_still_answers_is_down(machine):
    """Neither its temperature nor its power can be, so nothing of it is believed."""
    machine.add(
        "0000:15:00.0",
        1,
        hwmon__hwmon7__temp2_input="0",
        hwmon__hwmon7__power1_input="65535000000",
        gpu_busy_percent="100",
    )

    (sample,) = read(machine.reader()).values()

    assert (sample.up, sample.reason, sample.values) == (False, "implausible", {})
    assert sample.failed == {"implausible": 2}


def test_a_card_that_does_not_answer_on_the_bus_is_lost(machine):
    """All bits of its link's width are set."""
    machine.add("0000:15:00.0", 1, current_link_width="63", current_link_speed="Unknown")

    (sample,) = read(machine.reader()).values()

    assert (sample.up, sample.reason, sample.uuid) == (False, "lost", "GPU-5c1e90ab34d7f602")


def test_a_card_that_left_keeps_nobody_from_being_read(machine):
    """The others have their own names whatever number they have now, and values of their own."""
    machine.add("0000:15:00.0", 1)
    machine.add("0000:65:00.0", 2, unique_id="00000000000000a2", gpu_busy_percent="2")
    machine.add("0000:95:00.0", 3, unique_id="00000000000000a3", gpu_busy_percent="3")
    reader = machine.reader()
    assert [sample.uuid for sample in read(reader).values()] == [
        "GPU-5c1e90ab34d7f602",
        "GPU-00000000000000a2",
        "GPU-00000000000000a3",
    ]

    machine.remove("0000:65:00.0", 2)
    samples = read(reader)

    assert {index: (sample.uuid, sample.pci_bus_id) for index, sample in samples.items()} == {
        0: ("GPU-5c1e90ab34d7f602", "0000:15:00.0"),
        1: ("GPU-00000000000000a3", "0000:95:00.0"),
    }
    assert samples[1].values["utilization_ratio",] == 0.03


def test_another_card_at_the_same_place_begins_anew(machine):
    """What was read of the one before is not of this one."""
    machine.add("0000:15:00.0", 1)
    reader = machine.reader()
    read(reader)
    machine.remove("0000:15:00.0", 1)
    (machine.root / "devices/pci0000:00/0000:15:00.0/ras/umc_err_count").unlink()
    machine.add("0000:15:00.0", 1, unique_id="77", ras__umc_err_count=None)

    (sample,) = read(reader).values()

    assert sample.uuid == "GPU-77"
    assert sample.values["ecc_errors_total", "corrected"] == 7.0


def test_cards_of_others_and_parts_of_cards_are_left_alone(machine):
    """An integrated display of another maker, a virtual function, and a part of a split card are no cards of AMD."""
    machine.add("0000:02:00.0", 0, vendor="0x102b")
    virtual = machine.add("0000:15:02.0", 1)
    (virtual / "physfn").symlink_to("../0000:15:00.0")
    machine.add("amdgpu_xcp_1", 2, {"modalias": "platform:amdgpu_xcp"})
    machine.add("0000:15:00.0", 3)
    (machine.root / "class" / "drm" / "card3-DP-1").mkdir()

    assert [sample.pci_bus_id for sample in read(machine.reader()).values()] == ["0000:15:00.0"]


@pytest.mark.parametrize("unique", ["0000000000000000", "0x0000000000000000", "N/A", "", None, "not hex"])
def test_a_card_without_a_number_is_known_by_its_address(machine, unique):
    """It stays the same when others vanish."""
    machine.add("0000:15:00.0", 1, unique_id=unique)

    assert [sample.uuid for sample in read(machine.reader()).values()] == ["0000:15:00.0"]


def test_a_number_that_two_cards_have_names_none(machine):
    """Both are known by their addresses."""
    machine.add("0000:15:00.0", 1)
    machine.add("0000:16:00.0", 2)

    assert [sample.uuid for sample in read(machine.reader()).values()] == ["0000:15:00.0", "0000:16:00.0"]


def test_a_sleeping_card_is_not_woken(machine):
    """Its values are absent, it is up, and what stays the same is still told."""
    device = machine.add("0000:c3:00.0", 0, RADEON, power__runtime_status="active")
    reader = machine.reader()
    read(reader)
    (device / "power" / "runtime_status").write_text("suspended\n")
    machine.now += 100

    (sample,) = read(reader).values()

    assert sample.up
    assert ("utilization_ratio",) not in sample.values
    assert sample.values["pcie_max_width",] == 16.0


def test_slow_values_are_read_seldom(machine):
    """Errors every 15 s, limits every minute; what is fast in every round."""
    device = machine.add("0000:15:00.0", 1)
    reader = machine.reader()
    read(reader)
    (device / "gpu_busy_percent").write_text("5\n")
    (device / "pcie_replay_count").write_text("4\n")
    (device / "max_link_width").write_text("8\n")

    def seen(after):
        machine.now += after
        values = read(reader)[0].values
        return values["utilization_ratio",], values["pcie_replays_total",], values["pcie_max_width",]

    assert seen(2) == (0.05, 3.0, 16.0)
    assert seen(14) == (0.05, 4.0, 16.0)
    assert seen(50) == (0.05, 4.0, 8.0)


@pytest.mark.parametrize(
    ("number", "reason", "down"),
    [
        (errno.EPERM, "not_ready", "unknown"),
        (errno.EACCES, "no_permission", "unknown"),
        (errno.EIO, "eio", "unknown"),
        (errno.ETIMEDOUT, "timeout", "unknown"),
        (errno.ENODEV, "gpu_is_lost", "lost"),
    ],
)
def test_a_card_of_which_nothing_can_be_read_is_down(machine, monkeypatch, number, reason, down):
    """The kernel's error says why; what the kernel knows by itself does not make it a living card."""
    machine.add("0000:15:00.0", 1)
    reader = machine.reader()
    reader.devices()
    real = open

    def fails(path, *args, **kwargs):
        if "hwmon7/" in str(path) or str(path).endswith("busy_percent"):
            raise OSError(number, os.strerror(number))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(cards, "open", fails, raising=False)
    sample = reader.read(0)

    assert (sample.up, sample.reason, sample.values) == (False, down, {})
    assert set(sample.failed) == {reason}


def test_errors_are_not_counted_while_a_part_of_them_cannot_be_read(machine, monkeypatch):
    """A sum without one block would look like a counter that began anew."""
    machine.add("0000:15:00.0", 1)
    reader = machine.reader()
    reader.devices()
    real = open

    def fails(path, *args, **kwargs):
        if str(path).endswith("gfx_err_count"):
            raise OSError(errno.EIO, "broken")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(cards, "open", fails, raising=False)
    sample = reader.read(0)

    assert sample.up
    assert sample.failed == {"eio": 1}
    assert not any(family == "ecc_errors_total" for family, *_ in sample.values)


def test_a_card_that_vanishes_between_two_looks_is_lost(machine):
    """It was listed a moment ago."""
    machine.add("0000:15:00.0", 1)
    reader = machine.reader()
    reader.devices()
    (machine.root / "devices" / "pci0000:00" / "0000:15:00.0").rename(machine.root / "gone")

    sample = reader.read(0)

    assert (sample.up, sample.reason, sample.pci_bus_id) == (False, "lost", "0000:15:00.0")


def test_without_a_card_there_is_nothing_to_read(machine):
    """That is no fault."""
    with pytest.raises(NoLibraryError, match="no AMD device on the PCI bus"):
        machine.reader()


def test_a_card_that_nobody_drives_is_a_driver_that_is_not_loaded(machine):
    """It is on the bus, and sysfs has no folder of amdgpu for it."""
    machine.add("0000:15:00.0", 1)
    (machine.root / "class/drm/card1/device").unlink()

    with pytest.raises(SourceDownError) as caught:
        machine.reader()

    assert caught.value.reason == "driver_not_loaded"


def test_when_the_last_card_leaves_there_are_none(machine):
    """The exporter knows which were here."""
    machine.add("0000:15:00.0", 1)
    reader = machine.reader()
    read(reader)
    machine.remove("0000:15:00.0", 1)

    assert list(reader.devices()) == []
    assert list(reader.faults()) == []


@pytest.mark.parametrize(
    ("speed", "expected"),
    [
        ("2.5 GT/s PCIe", 1),
        ("5.0 GT/s", 2),
        ("8.0 GT/s PCIe", 3),
        ("64.0 GT/s PCIe", 6),
        ("Unknown", None),
        (None, None),
    ],
)
def test_the_generation_of_a_link_is_known_by_its_speed(speed, expected):
    """As the kernel writes it."""
    assert signals.generation(speed) == expected
