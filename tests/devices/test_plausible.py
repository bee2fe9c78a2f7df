"""Marks of "cannot read", and bounds: what is no value never becomes one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.devices.plausible import Values, is_mark, number
from trainvitals.telemetry import DeviceSample

GIB = 2.0**30


def values():
    """Return an empty sample's values."""
    return Values(DeviceSample(index=0, uuid="A", vendor="x"))


@pytest.mark.parametrize(
    "text", ["", "  ", "-", "N/A", "n/a", "NA", "[N/A]", "nan", "None", "unknown", "Not Supported", "[Not Supported]"]
)
def test_marks_are_absent_and_no_failure(text):
    """A device that does not have a value says so in many ways."""
    found = values()

    assert is_mark(text)
    assert found.put("power_watts", text) is False
    assert (found.sample.values, found.sample.failed) == ({}, {})


@pytest.mark.parametrize("text", ["-1", "-1.0", "65535", "4294967295", "18446744073709551615"])
def test_numbers_that_are_marks_are_absent(text):
    """All bits set, and -1."""
    found = values()

    assert found.put("ecc_errors_total", text, "corrected") is False
    assert (found.sample.values, found.sample.failed) == ({}, {})


def test_a_size_may_be_65535():
    """The units of memory are MiB: 65535 of them are a value."""
    found = values()

    assert found.memory("65535", "65536", 2.0**20)
    assert found.sample.values == {
        ("memory_total_bytes",): 64 * GIB,
        ("memory_used_bytes",): 64 * GIB - 2.0**20,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("34", 34.0), ("34.5", 34.5), ("34.0c", 34.0), ("34℃", 34.0), (" 75 %", 75.0), ("97.2W", 97.2), ("1e3", 1000.0)],
)
def test_numbers_may_have_a_unit_behind_them(text, value):
    """Whoever asked knows which it is."""
    assert number(text) == value


@pytest.mark.parametrize("text", ["OK", "0x10", "1 2", "12/34", "Error 5", "1,5", "²", "1" * 400])
def test_what_is_no_number_is_not_understood(text):
    """It is counted, and costs itself."""
    found = values()

    assert number(text) is None
    assert found.put("power_watts", text) is False
    assert found.sample.failed == {"not_understood": 1}


@pytest.mark.parametrize(
    ("family", "text", "unit"),
    [
        ("temperature_celsius", "0", 1.0),
        ("temperature_celsius", "151", 1.0),
        ("temperature_celsius", "-40", 1.0),
        ("power_watts", "65535", 1.0),
        ("power_watts", "3001", 1.0),
        ("power_watts", "-5", 1.0),
        ("utilization_ratio", "101", 0.01),
        ("clock_hertz", "20001", 1e6),
        ("memory_total_bytes", "0", 1.0),
        ("retired_pages", "1000001", 1.0),
        ("ecc_errors_total", "-3", 1.0),
    ],
)
def test_what_no_device_can_have_is_counted_and_left_out(family, text, unit):
    """Bounds are in the unit of the family."""
    found = values()

    assert found.put(family, text, unit=unit) is False
    assert (found.sample.values, found.sample.failed) == ({}, {"implausible": 1})


def test_more_memory_in_use_than_there_is_leaves_both_out():
    """Nobody knows which of them is wrong; a little more is a matter of rounding."""
    found, rounded = values(), values()

    assert found.memory("70000", "65536", 2.0**20) is False
    assert rounded.memory("65540", "65536", 2.0**20) is True
    assert found.sample.values == {}
    assert len(rounded.sample.values) == 2


def test_a_dead_card_that_answers_is_known():
    """0 C and 65535 W; one of them alone is a sensor."""
    dead, sensor = values(), values()
    for text in ("0", "65535"):
        dead.put("temperature_celsius" if text == "0" else "power_watts", text, "gpu")
    sensor.put("temperature_celsius", "0", "gpu")
    sensor.put("power_watts", "80", "instant")

    assert dead.is_dead
    assert not sensor.is_dead


@given(st.text(max_size=40), st.sampled_from(["temperature_celsius", "power_watts", "utilization_ratio", "x_total"]))
def test_any_text_is_a_plausible_value_or_none(text, family):
    """Nothing raises, and nothing out of bounds passes."""
    found = values()
    found.put(family, text)

    highest = {"temperature_celsius": 150.0, "power_watts": 3000.0, "utilization_ratio": 1.0, "x_total": 2.0**63}
    assert all(math.isfinite(value) and 0 <= value <= highest[family] for value in found.sample.values.values())
