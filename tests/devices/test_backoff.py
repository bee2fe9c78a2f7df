"""Pauses between attempts."""

from __future__ import annotations

from trainvitals.devices.backoff import Backoff


def test_pauses_double_up_to_the_longest_and_begin_anew():
    """However often something fails it is tried again, and soon after it has worked."""
    pauses = Backoff(1.5, 10.0)

    assert [pauses.next() for _ in range(5)] == [1.5, 3.0, 6.0, 10.0, 10.0]
    pauses.reset()
    assert [pauses.next() for _ in range(2)] == [1.5, 3.0]
