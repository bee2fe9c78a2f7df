"""From the items of logs to the steps of a run: attempts, ranks, late values, times."""

from __future__ import annotations

import math

import pytest

from trainvitals.follow.base import Facts, Row
from trainvitals.follow.ranks import SILENT_POLLS
from trainvitals.follow.run import FollowedRun
from trainvitals.telemetry import Event


def loss(step, value, rank=None, **more):
    """Return a row of the training."""
    return Row(step, {"loss": value, **more}, rank=rank)


def poll(run, *items, changed=1000.0, rank=None, **more):
    """Give a run the items of one poll; return its new steps as (step, count, values)."""
    run.begin()
    run.take(items, rank)
    run.settle(changed, **more)
    return [(step.step, step.count, step.values) for step in run.steps]


@pytest.fixture
def run():
    """Return a run of which nothing is known."""
    return FollowedRun("demo")


def test_steps_are_counted(run):
    """The count rises by one with each step that the log tells, whatever their numbers are."""
    assert poll(run, loss(10, 3.0), loss(20, 2.5)) == [(10, 1, {"loss": 3.0}), (20, 2, {"loss": 2.5})]
    assert poll(run, loss(30, 2.25)) == [(30, 3, {"loss": 2.25})]
    assert run.values == {"loss": 2.25}


def test_further_names_of_the_newest_step_are_late_values(run):
    """They have the count of their step, and names that it had do not come again."""
    found = poll(run, loss(10, 3.0), Row(10, {"loss": 3.0, "grad_norm": 1.5}), Row(None, {"tokens": 64.0}))

    assert found == [(10, 1, {"loss": 3.0}), (10, 1, {"grad_norm": 1.5}), (10, 1, {"tokens": 64.0})]


def test_values_before_the_first_step_are_dropped(run):
    """They belong to none."""
    assert poll(run, Row(None, {"tokens": 64.0}), loss(1, 4.0)) == [(1, 1, {"loss": 4.0})]


def test_going_back_is_a_new_attempt(run):
    """A resumed run goes on from its checkpoint: the count rises, the attempt too, and an event says so."""
    poll(run, *(loss(step, 5.0 - step / 100) for step in range(300)))
    found = poll(run, loss(200, 3.01), loss(201, 3.0))

    assert [(step, count) for step, count, _ in found] == [(200, 301), (201, 302)]
    assert run.attempt == run.identity.attempt == 1
    assert [(e.kind, e.step, e.fields) for e in run.events] == [("restart", 200, {"attempt": 1, "previous_step": 299})]


def test_going_back_a_little_is_decided_by_the_next_step(run):
    """A row that went back a few steps is a new attempt when the next one goes on from there."""
    poll(run, loss(100, 3.0), loss(101, 2.9), loss(102, 2.8))

    assert poll(run, loss(101, 2.95)) == []
    assert poll(run, loss(102, 2.85)) == [(101, 4, {"loss": 2.95}), (102, 5, {"loss": 2.85})]
    assert run.attempt == 1


def test_an_odd_row_between_others_is_no_attempt(run):
    """A row that went back, behind which the steps go on, was another rank's."""
    found = poll(run, loss(100, 3.0), loss(101, 2.9), loss(100, 3.1), loss(102, 2.8))

    assert [step for step, _, _ in found] == [100, 101, 102]
    assert run.attempt == 0


def test_a_doubtful_row_counts_at_the_end(run):
    """With nothing behind it, a row that went back began an attempt."""
    poll(run, loss(100, 3.0), loss(101, 2.9))

    assert poll(run, loss(100, 3.1), final=True) == [(100, 3, {"loss": 3.1})]
    assert run.attempt == 1


def test_ranks_that_do_not_say_so(run):
    """Lines of several ranks, mixed and without a prefix, are the steps of one."""
    lines = [(4, 7.5), (4, 7.5), (5, 7.25), (4, 7.5), (5, 7.25), (6, 7.0), (5, 7.25), (6, 7.0)]
    found = poll(run, *(loss(step, value) for step, value in lines))

    assert [(step, values["loss"]) for step, _, values in found] == [(4, 7.5), (5, 7.25), (6, 7.0)]
    assert run.attempt == 0


def test_nan_of_several_ranks_is_one(run):
    """NaN equals NaN here."""
    found = poll(run, loss(4, math.nan), loss(5, math.nan), loss(4, math.nan), loss(5, math.nan), loss(6, math.nan))

    assert [step for step, _, _ in found] == [4, 5, 6]


def test_of_ranks_one_is_heard(run):
    """The first rank with a loss speaks for the run; the others say the same."""
    rows = [loss(step, 3.0 - step / 8 + rank / 64, rank) for step in range(3) for rank in (2, 0, 1)]
    found = poll(run, *rows)

    assert [values["loss"] for _, _, values in found] == [3.03125, 2.90625, 2.78125]
    assert (run.identity.rank, run.identity.world_size) == (2, 3)


def test_a_rank_without_a_loss_gives_way(run):
    """In a pipeline only the last rank knows the loss; its steps are told from its first one on."""
    assert poll(run, Row(1, {"learning_rate": 0.5}), Row(2, {"learning_rate": 0.25}), rank=0)
    found = poll(run, loss(1, 4.0), loss(2, 3.5), rank=7)

    assert [(step, values) for step, _, values in found] == [(1, {"loss": 4.0}), (2, {"loss": 3.5})]
    assert run.identity.rank == 7
    assert run.attempt == 0


def test_another_rank_is_heard_when_one_falls_silent(run):
    """A node is lost and the run goes on without it."""
    poll(run, loss(1, 4.0, 0), loss(1, 4.1, 1))
    for step in range(2, 2 + SILENT_POLLS):
        assert poll(run, loss(step, 3.0, 1)) == []

    assert poll(run, loss(90, 2.0, 1)) == [(90, 2, {"loss": 2.0})]
    assert run.identity.rank == 1


def test_a_start_begins_an_attempt(run):
    """A program that says that it starts makes an attempt, though its steps go on; the first start makes none."""
    poll(run, Facts(started=0.0), loss(5, 3.0))
    poll(run, Facts(started=0.0), Facts(started=0.0), loss(6, 2.9))

    assert run.attempt == 1


def test_facts(run):
    """What the log says beside numbers is in the identity."""
    poll(run, Facts(framework="x"), Facts(target_steps=500, world_size=16), loss(5, 3.0), Facts(finished=1234.0))

    identity = run.identity
    assert (identity.run, identity.framework, identity.target_steps, identity.world_size) == ("demo", "x", 500, 16)
    assert run.finished == 1234.0


def test_evaluations_and_checkpoints_are_events(run):
    """They are what the probe writes; what a second rank says of them is left out."""
    saved = Event(0.0, "checkpoint", -1, {"action": "save", "ok": True, "path": "out"})
    poll(run, loss(5, 3.0), Row(5, {"loss": 3.25}, split="validation"), saved, saved, loss(6, 2.75), changed=77.0)

    assert run.events == [
        Event(77.0, "evaluation", 5, {"name": "validation", "values": {"loss": 3.25}}),
        Event(77.0, "checkpoint", 5, {"action": "save", "ok": True, "path": "out"}),
    ]


def test_times_of_the_log(run):
    """A log that says when is believed."""
    run.begin()
    run.take([Row(1, {"loss": 3.0}, 500.0), Row(2, {"loss": 2.0}, 510.0)])
    run.settle(2000.0)

    assert [step.time for step in run.steps] == [500.0, 510.0]
    assert (run.newest, run.timed, run.started) == (510.0, True, 500.0)


def test_times_by_durations(run):
    """A log that says how long is reckoned back from the last change of its file."""
    run.begin()
    run.take([loss(10, 3.0, step_seconds=2.0), loss(20, 2.5, step_seconds=3.0), loss(30, 2.25, step_seconds=0.5)])
    run.settle(1000.0)

    assert [step.time for step in run.steps] == [965.0, 995.0, 1000.0]
    assert (run.newest, run.timed) == (1000.0, False)


def test_times_by_what_elapsed(run):
    """So is one that says how long the training runs."""
    run.begin()
    run.take([loss(1, 3.0, elapsed_seconds=10.0), loss(2, 2.5, elapsed_seconds=14.0)])
    run.settle(1000.0)
    poll(run, loss(3, 2.0, elapsed_seconds=20.0), changed=1006.0)

    assert run.last_step is not None
    assert run.last_step.time == 1006.0


def test_times_do_not_go_back(run):
    """Steps that are read at one go later are not before those of the poll before."""
    poll(run, loss(1, 3.0, step_seconds=5.0))
    run.begin()
    run.take([loss(2, 3.0, step_seconds=5.0), loss(3, 3.0, step_seconds=5.0)])
    run.settle(1002.0)

    assert [step.time for step in run.steps] == [1002.0, 1002.0]


def test_goes_on_after_a_restart(run):
    """Count and attempt go on; what is read again is history, and its counts end where they ended."""
    poll(run, loss(7, 3.0), loss(8, 2.5), Facts(started=0.0), loss(9, 2.25))
    state = run.state()

    again = FollowedRun("demo")
    again.begin()
    again.begin_replay()
    again.take([loss(8, 2.5), loss(9, 2.25)])
    again.settle(900.0)
    again.end_replay(state)
    again.take([loss(10, 2.0)])
    again.settle(1001.0)

    assert [(step.step, step.count) for step in again.history] == [(8, 2), (9, 3)]
    assert [(step.step, step.count) for step in again.steps] == [(10, 4)]
    assert again.identity.attempt == 1
    assert again.events == []


@pytest.mark.parametrize("state", [None, {}, {"count": "x"}, {"step": [], "count": {}}])
def test_a_state_that_makes_no_sense_is_none(run, state):
    """A damaged file of positions costs what it knew."""
    run.begin()
    run.begin_replay()
    run.end_replay(state)

    run.take([loss(1, 2.0)])
    run.settle(5.0)
    assert [step.count for step in run.steps] == [1]


def test_some_lines_say_when(run):
    """The others follow those, and not the times of the file."""
    run.begin()
    run.take([loss(1, 3.0), Row(2, {"loss": 2.5}, 500.0), loss(3, 2.25, step_seconds=4.0)])
    run.settle(9000.0)

    assert [step.time for step in run.steps] == [500.0, 500.0, 504.0]
    assert (run.newest, run.timed) == (504.0, True)


@pytest.mark.parametrize("step", [None, 101])
def test_late_values_of_a_doubtful_row_are_its_own(run, step):
    """Further values of a row that went back wait with it."""
    poll(run, loss(100, 3.0), loss(101, 2.9), loss(102, 2.8))
    found = poll(run, loss(101, 9.0), Row(step, {"tokens": 64.0}), loss(102, 8.0))

    assert found == [(101, 4, {"loss": 9.0, "tokens": 64.0}), (102, 5, {"loss": 8.0})]
    assert run.attempt == 1


def test_names_without_end_do_not_fill_the_memory(run):
    """Of a log that calls its values anew in each line the first names are kept, not all."""
    for first in range(0, 9000, 3000):
        poll(run, *(loss(step, 2.5, **{f"made_up_{step}": 1.5}) for step in range(first, first + 3000)))
    poll(run, loss(9000, 2.25))

    assert len(run.values) == 4096
    assert run.values["loss"] == 2.25
