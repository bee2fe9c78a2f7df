"""What every source ends in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.telemetry import Step, StepList, Steps, parts_of, pci_address


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


def steps_in_parts():
    """Return six steps: three in columns, a late value of the last of them, and two more in columns."""
    late = Step(30, 9, 3.5, {"grad_norm": 0.5})
    return StepList([steps_in_columns(), [], [late], Steps([40, 60], 10, [4.5, 6.5], {"loss": [3.25, 3.0]})])


def test_parts_are_one_sequence():
    """Steps in columns and single ones have one order, and are found at their places from either end."""
    steps = steps_in_parts()
    single = list(steps)

    assert [(step.step, step.count) for step in single] == [(10, 7), (20, 8), (30, 9), (30, 9), (40, 10), (60, 11)]
    assert [steps[place] for place in range(-6, 6)] == single + single
    assert (len(steps), len(steps.parts())) == (6, 3)
    with pytest.raises(IndexError):
        steps[6]
    with pytest.raises(IndexError):
        steps[-7]
    assert steps == single
    assert steps != single[:5]
    assert StepList() == []


def test_a_piece_of_parts_is_in_parts():
    """Wherever they are cut, the steps are the same, and what is in columns stays so."""
    steps = steps_in_parts()
    single = list(steps)

    for begin in range(7):
        for end in range(begin, 7):
            assert list(steps[begin:end]) == single[begin:end]
            assert list(steps[:begin] + steps[begin:]) == single
    assert [type(part) for part in steps[1:5].parts()] == [Steps, list, Steps]
    assert list(steps[4:2]) == []
    with pytest.raises(ValueError, match="others between"):
        steps[::2]


def test_parts_with_other_times_and_counts():
    """Times follow from the count, so a late value has the time of its step."""
    steps = steps_in_parts()

    assert [step.time for step in steps.evenly(8, 100.0, 2.5)] == [97.5, 100.0, 102.5, 102.5, 105.0, 107.5]
    assert [step.count for step in steps.counted(-6)] == [1, 2, 3, 3, 4, 5]
    assert [step.time for step in steps] == [1.5, 2.5, 3.5, 3.5, 4.5, 6.5]


def test_any_steps_have_parts():
    """Those of the probe are a list, and so one part; no steps are none."""
    single = list(steps_in_columns())

    assert parts_of(single) == (single,)
    assert [type(part) for part in parts_of(steps_in_columns())] == [Steps]
    assert len(parts_of(steps_in_parts())) == 3
    assert parts_of([]) == parts_of(steps_in_columns()[:0]) == ()
