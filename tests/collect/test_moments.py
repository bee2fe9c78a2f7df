"""Times that stay right when the time of day is set."""

from __future__ import annotations

import time

from trainvitals.collect.moments import Moments


class Clocks:
    """A time of day that can be set, and one that goes on."""

    def __init__(self):
        self.day, self.steady = 1_700_000_000.0, 500.0

    def make(self):
        """Return moments on these clocks."""
        return Moments(lambda: self.day, lambda: self.steady)

    def go(self, seconds):
        """Let time pass."""
        self.day += seconds
        self.steady += seconds


def test_a_time_comes_back_as_it_was_told():
    """To a microsecond, however much later."""
    clocks = Clocks()
    moments = clocks.make()
    kept = moments.keep(1_699_999_990.123457)
    clocks.go(86_400)

    assert moments.show(kept) == 1_699_999_990.123457


def test_a_clock_that_is_set_takes_it_along():
    """Forth and back; what is told after it is dated by the new time."""
    clocks = Clocks()
    moments = clocks.make()
    kept = moments.keep(1_699_999_990.0)
    clocks.day += 7200
    later = moments.keep(clocks.day)

    assert (moments.show(kept), moments.show(later)) == (1_700_007_190.0, 1_700_007_200.0)
    clocks.day -= 9000
    assert (moments.show(kept), moments.show(later)) == (1_699_998_190.0, 1_699_998_200.0)


def test_a_clock_that_is_steered_leaves_it_alone():
    """A series that changes with every scrape would say nothing."""
    clocks = Clocks()
    moments = clocks.make()
    kept = moments.keep(1_699_999_990.0)
    seen = set()
    for _ in range(9):
        clocks.day += 0.1
        seen.add(moments.show(kept))

    assert seen == {1_699_999_990.0}


def test_the_clocks_of_this_machine():
    """Now stays now."""
    moments = Moments()
    now = time.time()

    assert abs(moments.show(moments.keep(now)) - now) < 1.5
