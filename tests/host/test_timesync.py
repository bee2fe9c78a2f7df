"""The clock of the node."""

from __future__ import annotations

import time

import pytest

from trainvitals.host import timesync
from trainvitals.host.timesync import Clock


def answering(state, **fields):
    """Return a call of the kernel that fills in these fields, after it saw that nothing is to be changed."""

    def call(timex):
        assert timex.modes == 0
        for name, value in fields.items():
            setattr(timex, name, value)
        return state

    return call


def test_an_offset_in_nanoseconds():
    """STA_NANO (0x2000) says which unit the offset has; the error stays in microseconds."""
    call = answering(0, status=0x2001, offset=-1_500_000, maxerror=2500)

    assert timesync.read(call) == Clock(synchronized=True, offset=-0.0015, max_error=0.0025)


def test_an_offset_in_microseconds():
    """Without STA_NANO the same number is a thousand times as much."""
    call = answering(0, status=0x0001, offset=-1_500_000, maxerror=2500)

    assert timesync.read(call) == Clock(synchronized=True, offset=-1.5, max_error=0.0025)


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        (0, 0x2001, True),
        (1, 0x2011, True),  # A leap second is announced.
        (5, 0x2041, False),
        (5, 0x2001, False),  # TIME_ERROR for another reason: a lost pulse.
        (0, 0x2041, False),  # STA_UNSYNC
    ],
)
def test_a_clock_is_right_when_somebody_vouches_for_it(state, status, expected):
    """The state of the kernel must be no error, and it must not say "unsynchronized"."""
    assert timesync.read(answering(state, status=status, offset=0, maxerror=16_000_000)).synchronized is expected


def test_a_question_that_is_forbidden_is_an_error():
    """A container's profile may forbid it."""

    def call(_):
        raise PermissionError(1, "Operation not permitted")

    with pytest.raises(PermissionError):
        timesync.read(call)


def test_the_layout_is_that_of_the_kernel():
    """208 bytes on a 64-bit Linux."""
    import ctypes

    assert ctypes.sizeof(timesync.Timex) == 208
    assert (timesync.Timex.status.offset, timesync.Timex.time.offset, timesync.Timex.tai.offset) == (40, 72, 160)


def test_this_machine_answers():
    """The kernel's time is the time, and asking twice changes nothing."""
    timex = timesync.Timex(modes=0)
    timesync.adjtimex(timex)
    assert abs(timex.time[0] - time.time()) < 5.0

    first, second = timesync.read(), timesync.read()
    assert first.synchronized == second.synchronized
    assert 0.0 <= first.max_error <= 16.0
