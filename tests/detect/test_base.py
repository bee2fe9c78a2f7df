"""The hold of a signal, and telling late values from a run that went back."""

from __future__ import annotations

import pytest

from trainvitals.detect.base import Latch, Timeline
from trainvitals.telemetry import Step, Steps


def at(count: int, time: float) -> Step:
    """Return a step without values."""
    return Step(step=count, count=count, time=time, values={})


def released_after(latch: Latch, *, seconds: float, most: int = 100_000) -> int:
    """Return how many quiet steps of ``seconds`` the latch needs after one excess at count 0."""
    latch.update(2.0, at(0, 0.0))
    return next(count for count in range(1, most) if latch.update(0.0, at(count, count * seconds)) == 0.0)


@pytest.mark.parametrize(
    ("seconds", "steps"),
    [
        (0.001, 300_000),  # fast: the 300 seconds decide
        (1.0, 300),
        (10.0, 100),  # the 100 steps decide
        (106.0, 34),  # slow: an hour is enough
        (7200.0, 1),
    ],
)
def test_a_signal_is_held_by_time_and_by_steps(seconds, steps):
    """Fast steps do not end it before a scrape, slow steps do not keep it for hours."""
    latch = Latch(hold_seconds=300.0, hold_steps=100)
    assert released_after(latch, seconds=seconds, most=400_000) == steps


def test_the_peak_is_shown_while_the_signal_is_held():
    """A scrape that comes late sees how bad it was."""
    latch = Latch(hold_seconds=10.0, hold_steps=1)
    assert [latch.update(ratio, at(i, float(i))) for i, ratio in enumerate([0.5, 1.5, 4.0, 2.0, 0.1])] == [
        0.5,
        1.5,
        4.0,
        4.0,
        4.0,
    ]


def test_a_new_excess_prolongs_the_hold():
    """The wait begins again with each excess."""
    latch = Latch(hold_seconds=10.0, hold_steps=1)
    latch.update(1.0, at(1, 0.0))
    latch.update(1.0, at(2, 9.0))
    assert latch.update(0.0, at(3, 18.0)) == 1.0
    assert latch.update(0.0, at(4, 19.0)) == 0.0


def test_a_settled_signal_waits_for_seconds_alone():
    """After a rollback the count says nothing any more."""
    latch = Latch(hold_seconds=10.0, hold_steps=100)
    latch.update(3.0, at(500, 0.0))
    latch.settle()
    assert (latch.held, latch.open) == (True, False)
    assert latch.update(0.0, at(1, 5.0)) == 3.0
    assert latch.update(0.0, at(2, 11.0)) == 0.0


def test_an_excess_after_settling_begins_another_episode():
    """The peak of what was forgiven is not carried over."""
    latch = Latch(hold_seconds=10.0, hold_steps=1)
    latch.update(9.0, at(500, 0.0))
    latch.settle()
    assert latch.update(1.5, at(1, 1.0)) == 1.5
    assert latch.open


def test_a_clock_that_goes_back_holds_no_longer_than_once_more():
    """A new process may sit on another clock: the hold counts from its first step."""
    latch = Latch(hold_seconds=10.0, hold_steps=1)
    latch.update(1.0, at(1, 1000.0))
    assert latch.update(0.0, at(2, 0.0)) == 1.0
    assert latch.update(0.0, at(3, 9.0)) == 1.0
    assert latch.update(0.0, at(4, 10.0)) == 0.0


def timeline(*steps: tuple[int, int, str]) -> list[bool]:
    """Return what a timeline says to steps of (count, step, names of the values)."""
    line = Timeline()
    return [
        line.begins_anew(Step(step, count, float(index), dict.fromkeys(names.split(), 1.0)))
        for index, (count, step, names) in enumerate(steps)
    ]


def test_values_that_come_late_are_no_new_beginning():
    """A loss that is known two steps later repeats count and step of its own step."""
    steps = [
        (1, 11, "learning_rate"),
        (2, 12, "learning_rate"),
        (1, 11, "loss"),
        (3, 13, "learning_rate"),
        (2, 12, "loss"),
        (3, 13, "loss"),
    ]
    assert timeline(*steps) == [False] * 6


def test_a_step_in_two_records_is_one_step():
    """A step with many values comes as two Steps with an equal count."""
    assert timeline((1, 1, "a b"), (1, 1, "loss"), (2, 2, "a b")) == [False] * 3


def test_a_late_value_whose_step_was_lost_is_no_new_beginning():
    """The record of the step itself may have been overwritten."""
    assert timeline((7, 107, "loss"), (9, 109, "loss"), (8, 108, "loss")) == [False] * 3


def test_a_rollback_within_a_process_is_a_new_beginning():
    """The count goes on, the step falls."""
    assert timeline((1, 101, "loss"), (2, 102, "loss"), (3, 51, "loss"), (4, 52, "loss")) == [False, False, True, False]


def test_late_values_from_before_a_rollback_are_no_second_one():
    """The loss of the last step before a rollback arrives after it."""
    steps = [(1, 101, "a"), (2, 102, "a"), (3, 51, "a"), (2, 102, "loss"), (4, 52, "a"), (3, 51, "loss")]
    assert timeline(*steps) == [False, False, True, False, False, False]


@pytest.mark.parametrize("step", [801, 1001, 2000])
def test_another_process_is_a_new_beginning_wherever_it_starts(step):
    """The count begins again, whether the step falls, goes on or jumps ahead."""
    assert timeline((999, 999, "loss"), (1000, 1000, "loss"), (1, step, "loss"), (2, step + 1, "loss")) == [
        False,
        False,
        True,
        False,
    ]


def test_a_process_that_dies_in_its_first_steps_is_told_from_late_values():
    """The loss of a step is not reported twice: this is step 1 of the next process."""
    assert timeline((1, 1, "loss"), (2, 2, "loss"), (1, 1, "loss"), (2, 2, "loss")) == [False, False, True, False]


def test_a_repeated_step_number_is_no_rollback():
    """Some loops report several times within one step."""
    assert timeline((1, 5, "loss"), (2, 5, "loss"), (3, 6, "loss")) == [False] * 3


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 40, 2), (20, 1, 16)])
def test_steps_in_blocks_leave_a_timeline_as_single_ones_do(sizes):
    """Late values behind a block are told from a new beginning as far back as 16 steps, and no further."""
    singly, at_once = Timeline(), Timeline()
    first = 1
    for size in sizes:
        numbers = list(range(first + 100, first + 100 + size))
        block = Steps(numbers, first, [float(number) for number in numbers], {"learning_rate": [1.0] * size})
        first += size
        assert at_once.leads_to(block)
        began = at_once.begins_anew(block[0])
        at_once.go_on(block, size)
        assert began == ([singly.begins_anew(step) for step in block].count(True) > 0)
    late = [Step(count + 100, count, 0.0, {"loss": 1.0}) for count in range(max(1, first - 15), first)]
    for line in (singly, at_once):
        assert [line.begins_anew(step) for step in late] == [False] * len(late)
        assert line.begins_anew(late[-1])


def test_a_block_of_values_that_may_be_late_leads_nowhere():
    """A process that began again within its first steps, whose records were lost, looks like late values."""
    line = Timeline()
    line.begins_anew(Step(107, 7, 1.0, {"loss": 1.0}))
    block = Steps([103, 104], 3, [2.0, 3.0], {"loss": [1.0, 1.0]})
    assert not line.leads_to(block)
    assert line.leads_to(Steps([103, 104], 8, [2.0, 3.0], {"loss": [1.0, 1.0]}))
