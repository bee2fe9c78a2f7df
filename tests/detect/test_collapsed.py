"""A loss of exactly 0: from far above it is a fault, by and by it is success."""

from __future__ import annotations

import math

import pytest
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.collapsed import LossCollapsed


@pytest.fixture
def tape() -> Tape:
    """Give a training with a loss of 0.8, at step 45."""
    tape = Tape(LossCollapsed())
    tape.play(noise(45, level=0.8, sigma=0.03), grad_norm=0.9)
    return tape


def test_five_zeros_after_a_loss_that_was_far_from_it_are_found(tape):
    """Gradient norms that move say nothing more."""
    norms = (0.5, 0.4, 0.7, 0.6, 0.3)
    verdicts = [tape.play([0.0], grad_norm=norm)[0] for norm in norms]
    assert [verdict.active for verdict in verdicts] == [False] * 4 + [True]
    assert (verdicts[-1].since_step, verdicts[-1].severity) == (46, "critical")
    assert verdicts[-1].evidence.startswith("since step 46: loss is exactly 0, from 0.")


@pytest.mark.parametrize(("norm", "text"), [(1.0, "stands still"), (math.nan, "is not finite")])
def test_three_are_enough_when_the_gradient_norm_is_odd(tape, norm, text):
    """Pinned at its clip, or NaN."""
    verdicts = tape.play([0.0] * 20, grad_norm=norm)
    assert first_active(verdicts) == 2
    assert verdicts[-1].evidence.endswith(text)
    assert len({verdict.evidence for verdict in verdicts[2:]}) == 1


def test_a_loss_that_comes_down_by_and_by_is_quiet():
    """In a log with four decimals, a model that knows its data by heart is at 0."""
    losses = [round(0.9 * math.exp(-i / 6), 4) for i in range(100)]
    assert losses[-1] == 0.0
    assert first_active(Tape(LossCollapsed()).play(losses)) is None


def test_single_zeros_are_quiet(tape):
    """A batch whose labels all are masked."""
    assert first_active(tape.play([0.0, 0.8, 0.0, 0.0, 0.7, *noise(10, level=0.8)])) is None


def test_a_loss_that_begins_at_zero_is_not_judged():
    """Some rewards do."""
    assert Tape(LossCollapsed()).play([0.0] * 50) == [None] * 50


def test_it_ends_with_the_first_loss_that_is_none(tape):
    """Nothing is held: zeros last."""
    tape.play([0.0] * 10)
    assert tape.verdict.active
    assert not tape.play([0.8])[0].active


@pytest.mark.parametrize(("before", "found"), [(0.1, False), (0.2, False), (0.5, True), (0.12, True)])
def test_a_neighbour_of_0_in_a_log_with_few_decimals_is_no_collapse(before, found):
    """From 0.1 and 0.2 to 0.0 is one digit or two; from 0.5, and from 0.12 with two decimals, it is far."""
    tape = Tape(LossCollapsed())
    tape.play([before] * 12)
    assert tape.play([0.0] * 8)[-1].active is found
