"""Is the clock of this node right?  Asks the kernel, as ntpd and chronyd told it; never changes the clock.

Source: adjtimex(2).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass

_TIME_ERROR = 5
_STA_NANO = 0x2000
_STA_UNSYNC = 0x40


class Timex(ctypes.Structure):
    """struct timex of a 64-bit Linux."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", ctypes.c_long * 2),
        ("tick", ctypes.c_long),
        ("ppsfreq", ctypes.c_long),
        ("jitter", ctypes.c_long),
        ("shift", ctypes.c_int),
        ("stabil", ctypes.c_long),
        ("jitcnt", ctypes.c_long),
        ("calcnt", ctypes.c_long),
        ("errcnt", ctypes.c_long),
        ("stbcnt", ctypes.c_long),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    )


@dataclass(frozen=True)
class Clock:
    """What the kernel knows of its clock, in seconds.

    ``offset`` is what is still to be corrected: an NTP daemon that steers by the frequency leaves it near 0.
    ``max_error`` is the bound that the daemon vouches for; it grows by itself while nobody does, to 16 s.
    """

    synchronized: bool
    offset: float
    max_error: float


def adjtimex(timex: Timex) -> int:
    """Ask the kernel and return its state of the clock.  Raises OSError."""
    state = int(ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)))
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return state


def read(call: Callable[[Timex], int] = adjtimex) -> Clock:
    """Return the state of the clock.  Raises OSError: a container may forbid the question."""
    # With no bit of modes set nothing is changed, and no privilege is needed.
    timex = Timex(modes=0)
    state = call(timex)
    unit = 1e9 if timex.status & _STA_NANO else 1e6
    synchronized = state != _TIME_ERROR and not timex.status & _STA_UNSYNC
    # The bound is in microseconds whatever the unit of the offset is.
    return Clock(synchronized, timex.offset / unit, timex.maxerror / 1e6)
