"""What every source ends in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.telemetry import Step, Steps, pci_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:05:00.0", "0000:05:00.0"),
        ("0000:05:00", "0000:05:00.0"),
        ("PCI:0000:05:00", "0000:05:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:D2:00.1\n", "0000:d2:00.1"),
        ("0018:01:00", "0018:01:00.0"),
        ("00010000:e1:00.0", "10000:e1:00.0"),
        ("e1:00.0", "0000:e1:00.0"),
        ("5:0", "0000:05:00.0"),
        ("", ""),
        ("GPU-1234", ""),
        ("0000:05:00.8", ""),
        ("0000:05:00.0 and more", ""),
        ("0" * 400 + ":05:00.0", ""),
    ],
)
def test_every_spelling_of_a_pci_address_becomes_one(text, address):
    """The kernel, NVML and the driver's messages write it differently."""
    assert pci_address(text) == address


@given(st.text(max_size=60))
def test_no_text_makes_it_raise(text):
    """What is no address is empty, and an address stays what it is."""
    address = pci_address(text)

    assert pci_address(address) == address


def steps_in_columns():
    """Return three steps of which the first has count 7."""
    return Steps([10, 20, 30], 7, [1.5, 2.5, 3.5], {"loss": [4.0, 3.0, 3.5], "learning_rate": [0.1, 0.1, 0.2]})


def test_steps_in_columns_are_a_sequence_of_steps():
    """Each is made when it is asked for, from either end."""
    steps = steps_in_columns()

    assert len(steps) == 3
    assert list(steps)[1] == Step(20, 8, 2.5, {"loss": 3.0, "learning_rate": 0.1})
    assert steps[-1] == Step(30, 9, 3.5, {"loss": 3.5, "learning_rate": 0.2})
    assert list(steps[1:]) == list(steps)[1:]
    with pytest.raises(ValueError, match="others between"):
        steps[::2]


def test_steps_without_values_are_steps():
    """A row may say nothing but its number."""
    assert list(Steps([3, 4], 1, [0.0, 1.0], {})) == [Step(3, 1, 0.0, {}), Step(4, 2, 1.0, {})]


def test_a_column_knows_its_extent():
    """NaN anywhere is NaN; infinity is one end of it."""
    steps = Steps([1, 2], 1, [0.0, 1.0], {"a": [2.0, 1.0], "b": [1.0, math.nan], "c": [1.0, -math.inf]})

    assert steps.extent("a") == (1.0, 2.0)
    assert steps.is_finite("a")
    assert all(math.isnan(end) for end in steps.extent("b"))
    assert not steps.is_finite("b")
    assert steps.extent("c") == (-math.inf, 1.0)
    assert not steps.is_finite("c")
