"""Logs of a few losses: what can be said at their end, and what cannot."""

from __future__ import annotations

import math

import pytest
from tests.diagnose.helpers import report

from trainvitals import detect
from trainvitals.diagnose.short import look

STUCK = [13.6, 12.7, 12.7, 12.1, 12.5, 12.6, 12.2, 11.9, 12.2, 12.5, 12.5, 12.5, 12.6, 11.9]


def seen(signal, losses, names=("loss",), stride=1, first=1):
    """Look at losses."""
    steps = [first + stride * place for place in range(len(losses))]
    return look(signal, steps, losses, names)


@pytest.mark.parametrize(
    ("losses", "since"),
    [
        ([6.4, 11.4, 7.2], 2),
        ([2.67, 2.67, 4.37, 4.37, 4.39, 4.4, 4.4, 4.1, 4.14], 3),
        ([2.67, 2.67, 4.37, 2.5], None),
        ([2.67, 2.67, 3.4, 3.4], None),
        ([2.0, 2.5, 4.1, 4.2], None),
        ([2.67, math.nan, 4.37, 4.37], 3),
        ([9.0, 6.0, 4.0], None),
        ([-1.0, 2.0, 8.0, 8.0], None),
        ([2.0], None),
        ([], None),
    ],
)
def test_a_jump_is_seen(losses, since):
    """By half above what was before, which must have agreed, and not back below it at the end."""
    found = seen("loss_diverged", losses)
    assert (found and found.since) == since


def test_a_jump_is_told_in_numbers():
    """Since which step, from where to where, and that it is a short log."""
    found = seen("loss_diverged", [2.67, 2.68, 4.37, 4.4], stride=10, first=100)
    assert found.evidence == "since step 120: loss jumped from 2.68 to 4.37, in a log of 4 losses"
    assert found.action.startswith("data: look at the batches of that step")


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        (STUCK, True),
        ([11.10, 11.50, 11.44, 11.20, 11.45, 10.97, 11.23], True),
        ([11.10, 11.50, 11.44, 11.20, 11.45, 10.97], False),
        ([2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4], False),
        ([2.0, 1.98, 1.96, 1.94, 1.92, 1.90, 1.88, 1.86], False),
        ([2.0, 1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0], False),
        ([1.0, 1.02, 0.99, 1.01, 0.98, 1.02, 1.5, 1.6, 1.7], False),
    ],
)
def test_no_fall_yet_is_seen(losses, found):
    """Seven losses and more that are no tenth below the first and go nowhere."""
    assert (seen("loss_not_falling", losses) is not None) is found


def test_a_log_that_begins_late_says_nothing_of_the_beginning():
    """It may have fallen for long."""
    assert seen("loss_not_falling", STUCK, first=5000) is None
    assert seen("loss_not_falling", STUCK, first=50, stride=50) is not None


def test_twenty_losses_rewards_and_steps_that_begin_again_are_not_looked_at():
    """The detectors, the reward and the second attempt say more."""
    assert seen("loss_not_falling", [*STUCK, *STUCK[:6]]) is None
    assert seen("loss_not_falling", STUCK, names=("loss", "reward")) is None
    assert look("loss_not_falling", [1, 2, 3, 4, 1, 2, 3, 4], [1.0] * 8, ("loss",)) is None
    assert seen("overfitting", STUCK) is None


def test_the_check_up_shows_it_as_something_to_watch(tmp_path):
    """Never as a warning; and what a detector can say by itself is left alone."""
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in enumerate(STUCK, 1)))
    rows = {row.signal: row for row in report(path, detectors=detect.DETECTORS).runs[0].signals}
    assert (rows["loss_not_falling"].state.value, rows["loss_not_falling"].severity) == ("watch", "info")
    assert rows["loss_not_falling"].evidence == (
        "since step 1: the loss is still near 13.6 after 14 losses, which are few"
    )
    assert rows["loss_diverged"].state.value == "fine"
    assert rows["loss_nonfinite"].state.value == "fine"
