"""The splitting of batches of numbered fields, for any set of fields that spoil them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.devices.nvidia.fields import Fields

NOT_SUPPORTED = 3
UNKNOWN = 999
LOST = 15


class NVMLError(Exception):
    """As pynvml's."""

    def __init__(self, value):
        super().__init__(value)
        self.value = value


class FakeNvml:
    """A driver whose batches fail with a field of ``poison`` in them, or with two of ``clash``."""

    NVMLError = NVMLError
    NVML_ERROR_INVALID_ARGUMENT = 2

    def __init__(self, poison=(), clash=(), absent=()):
        self.poison, self.clash, self.absent = set(poison), set(clash), set(absent)
        self.calls = 0
        self.dead = 0

    def nvmlDeviceGetFieldValues(self, handle, keys):  # noqa: N802  # Its name.
        """Answer with ten times the number of each field."""
        assert handle == "handle"
        self.calls += 1
        if self.dead:
            raise NVMLError(self.dead)
        numbers = {number for number, _ in keys}
        if numbers & self.poison or len(numbers & self.clash) > 1:
            raise NVMLError(UNKNOWN)
        return [
            SimpleNamespace(
                nvmlReturn=NOT_SUPPORTED if number in self.absent else 0,
                valueType=1,
                value=SimpleNamespace(uiVal=10 * number),
            )
            for number, _ in keys
        ]


def ask(nvml, fields, keys):
    """Return the answers and the number of calls."""
    nvml.calls = 0
    return fields.ask(keys), nvml.calls


NUMBERS = st.sets(st.integers(1, 40), min_size=1, max_size=40)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_good_fields_always_have_their_values(numbers, poison, absent):
    """Whatever spoils the batch, the others are read, and in one call from the third time on."""
    keys = [(number, 0) for number in sorted(numbers)]
    good = numbers - poison - absent
    nvml = FakeNvml(poison, absent=absent)
    fields = Fields(nvml, "handle")

    for time in range(8):
        answers, calls = ask(nvml, fields, keys)
        assert list(answers) == keys
        for (number, _), answer in answers.items():
            assert isinstance(answer, float) == (number in good)
            if number in good:
                assert answer == 10.0 * number
        if time > 2 and good:
            assert calls == 1
        assert calls <= 2 * len(keys)


@given(NUMBERS, NUMBERS)
def test_fields_that_clash_all_have_their_values(numbers, clash):
    """However many do not go together, each is read, in no more calls than fields."""
    keys = [(number, 0) for number in sorted(numbers)]
    nvml = FakeNvml(clash=clash)
    fields = Fields(nvml, "handle")

    for time in range(6):
        answers, calls = ask(nvml, fields, keys)
        assert answers == {(number, 0): 10.0 * number for number in numbers}
        if time > 2:
            assert calls <= max(1, 2 * len(numbers & clash) - 1) * 6


def test_a_driver_that_answers_nothing_is_split_seldom():
    """One attempt to split in sixteen calls."""
    nvml = FakeNvml()
    nvml.dead = UNKNOWN
    fields = Fields(nvml, "handle")
    keys = [(number, 0) for number in range(1, 9)]

    counts = [ask(nvml, fields, keys)[1] for _ in range(18)]

    assert counts == [15, *[1] * 15, 15, 1]


def test_nothing_wanted_is_no_call():
    """An empty batch does not reach the driver."""
    nvml = FakeNvml()

    assert ask(nvml, Fields(nvml, "handle"), []) == ({}, 0)


def test_a_field_wanted_twice_is_asked_for_once():
    """Two readers may want the same."""
    nvml = FakeNvml()
    fields = Fields(nvml, "handle")

    fields.prepare([(7, 0), (7, 0), (8, 2)])

    assert (fields.get((7, 0)), fields.get((8, 2)), nvml.calls) == (70.0, 80.0, 1)
    assert (fields.get((9, 0)), nvml.calls) == (90.0, 2)


def test_a_lost_device_is_not_split():
    """Neither is what was asked before still said."""
    nvml = FakeNvml()
    fields = Fields(nvml, "handle")
    fields.prepare([(7, 0), (8, 0)])
    nvml.dead = LOST

    for attempt in (fields.prepare, fields.ask):
        with pytest.raises(NVMLError):
            attempt([(7, 0), (8, 0)])
    with pytest.raises(NVMLError):
        fields.get((7, 0))
    assert nvml.calls == 4


def test_what_is_absent_is_asked_for_again_when_it_is_forgotten():
    """A device may get what it did not have."""
    nvml = FakeNvml(absent=[8])
    fields = Fields(nvml, "handle")
    keys = [(7, 0), (8, 0)]
    assert fields.ask(keys) == {(7, 0): 70.0, (8, 0): NOT_SUPPORTED}
    nvml.absent.clear()

    assert fields.ask(keys) == {(7, 0): 70.0, (8, 0): NOT_SUPPORTED}
    fields.forget_absent()
    assert fields.ask(keys) == {(7, 0): 70.0, (8, 0): 80.0}
