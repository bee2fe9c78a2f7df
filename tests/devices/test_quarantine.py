"""Devices that are left alone."""

from __future__ import annotations

from trainvitals.devices.quarantine import Quarantine


def test_tries_are_spread_out():
    """The pause doubles with every try that does not return, up to the longest."""
    held = Quarantine(30.0, 200.0)
    held.put(3, 1000.0)

    assert held.indices == {3}
    assert (held.due(1029.9), held.due(1030.0)) == (None, 3)
    assert held.next_due() == 1030.0
    due = []
    for now in (1030.0, 1100.0, 1300.0, 1600.0):
        held.failed(3, now)
        due.append(held.next_due() - now)
    assert due == [60.0, 120.0, 200.0, 200.0]


def test_a_device_that_hangs_again_goes_on_where_it_was():
    """One that answers a scout and hangs soon after does not begin with short pauses, one that was well does."""
    held = Quarantine(30.0, 200.0)
    held.put(3, 1000.0)
    held.failed(3, 1030.0)
    held.release(3, 1090.0)
    assert held.indices == set()

    held.put(3, 1100.0)
    assert held.next_due() == 1220.0
    held.release(3, 1220.0)
    held.put(3, 1420.0)
    assert held.next_due() == 1450.0


def test_one_that_answers_lets_the_others_be_tried():
    """What held one device may have held all; the one that has waited longest is first."""
    held = Quarantine(30.0, 200.0)
    held.put(3, 1000.0)
    held.put(5, 1010.0)
    held.put(1, 1005.0)
    assert held.oldest() == 3
    assert held.due(1050.0) == 3

    held.release(5, 1020.0)

    assert held.indices == {1, 3}
    assert held.next_due() == 1020.0


def test_another_driver_begins_anew():
    """Nothing is held and nothing remembered after a reload."""
    held = Quarantine(30.0, 200.0)
    held.put(3, 1000.0)
    held.release(3, 1001.0)
    held.put(4, 1002.0)

    held.clear()

    assert (held.indices, held.due(9999.0), held.next_due(), held.oldest()) == (frozenset(), None, float("inf"), None)
    held.put(3, 1003.0)
    assert held.next_due() == 1033.0


def test_one_that_is_not_held_is_no_error():
    """A scout may report after the quarantine was dropped."""
    held = Quarantine(30.0, 200.0)
    held.failed(3, 1000.0)
    held.release(3, 1000.0)

    assert held.indices == set()
