"""Whatever the tools print, nothing raises and no value is out of bounds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.devices.ascend.tools import Tools, read, text

from trainvitals.devices.base import SourceDownError
from trainvitals.devices.wire import Message, decode, encode

TABLES = ("info-310", "info-910a", "info-910b", "info-a3")
ANSWERS = {
    "common": "common-910b",
    "usages": "usages-910b",
    "ecc": "ecc",
    "health": "health-alarm",
    "hccs": "hccs",
    "board": "board",
    "-stat": "stat",
}
#: Highest value by the end of a family's name, as no card can have more.
HIGHEST = {"_celsius": 150.0, "_watts": 3000.0, "_ratio": 1.0, "_hertz": 2e10, "_bytes": 2.0**50, "_pages": 1e6}


@st.composite
def damaged(draw, names):
    """Return a fixture with a cut and with some bytes replaced."""
    data = bytearray(text(draw(st.sampled_from(names))).encode())
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(data) - 1))
        data[place : place + draw(st.integers(0, 30))] = draw(st.binary(max_size=12))
        data = data or bytearray(b"x")
    begin = draw(st.integers(0, len(data)) | st.just(0))
    end = draw(st.integers(begin, len(data)) | st.just(len(data)))
    return bytes(data[begin:end]).decode(errors="replace")


def check(samples):
    """No value is out of bounds, and what is read can be handed over."""
    handed = decode(encode(Message(devices=list(samples.values()), count=len(samples))), "ascend").devices
    assert handed == list(samples.values())
    for sample in samples.values():
        for (family, *_), value in sample.values.items():
            highest = next((most for end, most in HIGHEST.items() if family.endswith(end)), 2.0**63)
            assert 0 <= value <= highest


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged(TABLES))
def test_a_damaged_table(table):
    """It has fewer chips, or is none."""
    try:
        check(read(Tools(table)))
    except SourceDownError:
        return


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.fixed_dictionaries({kind: damaged([name]) for kind, name in ANSWERS.items()}))
def test_damaged_answers(answers):
    """The table is read all the same."""
    found = read(Tools(text("info-910b"), answers))

    check(found)
    assert len(found) == 3


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_no_table(noise):
    """Nor an answer."""
    with pytest.raises(SourceDownError):
        Tools(noise).reader()
    check(read(Tools(text("info-910b"), dict.fromkeys(ANSWERS, noise))))
