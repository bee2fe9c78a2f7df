"""Several optimizer steps that make one step of a training count as one."""

from __future__ import annotations

import pytest

from trainvitals.frameworks.cycle import Cycle


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        ("A" * 50, 50),
        ("AB" * 50, 50),
        # One optimizer that is stepped once for each group of parameters, as ZeRO does.
        ("ABCD" * 50, 50),
        # Two groups of different length.
        ("ABAC" * 50, 100),
        # One that is not used any more, and another in its place.
        ("A" * 50 + "B" * 50, 100),
        # One that joins later.
        ("A" * 50 + "AB" * 50, 100),
    ],
)
def test_a_step_is_one_round(order, steps):
    """Counted where the first part of a round comes again after others; a change may be one step off."""
    cycle = Cycle()

    assert abs(sum(cycle.begins(part) for part in order) - steps) <= 1


@pytest.mark.parametrize(
    ("order", "rounds"),
    [
        # A discriminator that learns five times for each step of the generator, and the other way round.
        ("AAAAAB" * 50, 50),
        ("ABBBBB" * 50, 50),
    ],
)
def test_rows_within_a_round_are_learnt(order, rounds):
    """Which part is the first is known after one round: that round may count as several steps."""
    cycle = Cycle()
    for part in order[:6]:
        cycle.begins(part)

    assert abs(sum(cycle.begins(part) for part in order[6:]) - (rounds - 1)) <= 4
    assert sum(cycle.begins(part) for part in order) == rounds


def test_a_row_that_once_was_longer_is_still_one_round():
    """Rows within a round may grow to four times the longest so far; above that, the part is taken to be alone."""
    cycle = Cycle()
    for part in "AAAB" * 20:
        cycle.begins(part)

    assert sum(cycle.begins(part) for part in "AAAAAAAAAAAAB" * 10) == 10
    assert sum(cycle.begins(part) for part in "A" * 1000) > 900
