"""What is decided after a failure: a table, and rules over what happened before."""

from __future__ import annotations

import pytest

from trainvitals.follow.errors import CAUSES
from trainvitals.supervise import cause
from trainvitals.supervise.decide import POLICIES, Past, decide
from trainvitals.supervise.settings import Limits

LIMITS = Limits(max_restarts=5, no_progress=3, pause=2.0)


def failed(name="process_killed", *, step=7, progress=True, **more):
    """Return a failure as it is remembered."""
    return Past(cause=name, signature=more.pop("signature", name), step=step, progress=progress, **more)


def test_every_cause_of_the_table_of_errors_has_a_policy():
    """A new row of the followers' table must be thought of here."""
    own = {cause.HANG, cause.NONFINITE, cause.LOST_DEVICE, cause.UNKNOWN}

    assert own | {row.name for row in CAUSES} == set(POLICIES)


def test_a_transient_failure_with_progress_is_restarted_at_once():
    """Somebody waits: a pause is for what does not get better."""
    decision = decide([failed()], LIMITS, 0)

    assert (decision.action, decision.pause, decision.before) == ("restart", 0.0, None)


def test_pauses_double_without_progress():
    """The first pause is the one that is set."""
    past = [failed(step=None, progress=False) for _ in range(2)]

    assert [decide(past[:1], LIMITS, 0).pause, decide(past, LIMITS, 1).pause] == [2.0, 4.0]


def test_pauses_have_an_end():
    """Nobody waits for days."""
    past = [failed(step=None, progress=False) for _ in range(40)]

    assert decide(past, Limits(max_restarts=100, no_progress=50, pause=2.0), 39).pause == 300.0


def test_attempts_without_progress_end_the_run():
    """Three in a row, by whatever they failed."""
    past = [failed("hang", step=9), failed(step=8, progress=False), failed("hang", step=7, progress=False)]

    assert decide(past, LIMITS, 2).action == "restart"
    decision = decide([*past, failed("segfault", step=6, progress=False)], LIMITS, 3)

    assert (decision.action, decision.why) == ("stop", "3 attempts in a row without progress")


def test_the_same_failure_at_the_same_step_twice_ends_the_run():
    """It is no accident, also where something else came between."""
    past = [failed("exception", step=18, category="parameter"), failed(step=12), failed("exception", step=18)]

    decision = decide(past, LIMITS, 2)

    assert decision.action == "stop"
    assert decision.why == "the same failure at step 18 twice (exception): it is no accident"


def test_other_words_are_another_failure():
    """Two exceptions at one step need not be the same."""
    past = [failed("exception", signature="a"), failed("exception", signature="b")]

    assert decide(past, LIMITS, 1).action == "restart"


def test_the_data_are_named_when_they_fail_twice():
    """The same file at the same place."""
    past = [failed("image_unreadable", data="/data/7.jpg", category="data")] * 2

    assert decide(past, LIMITS, 1).why.endswith("it is no accident; the data there: /data/7.jpg")


def test_before_the_first_step_networks_get_more_chances_than_programs():
    """A rendezvous may fail twice; an exception that comes twice comes again."""
    network = [failed("rendezvous_failed", step=None, progress=False)] * 2
    program = [failed("exception", step=None, progress=False, category="parameter")] * 2

    assert decide(network, LIMITS, 1).action == "restart"
    assert decide(program, LIMITS, 1).why == (
        "the same failure before the first step twice (exception): it is no accident"
    )


def test_no_restart_is_left():
    """As many as were allowed, in all."""
    decision = decide([failed()], Limits(max_restarts=2), 2)

    assert (decision.action, decision.why) == ("stop", "no restart is left of 2")


@pytest.mark.parametrize("name", ["import_failed", "arguments_wrong", "state_mismatch", "permission_denied"])
def test_what_fails_the_same_way_again_ends_the_run_at_once(name):
    """Nobody gains by a second attempt."""
    assert decide([failed(name)], LIMITS, 0).action == "stop"


@pytest.mark.parametrize(
    ("name", "action"),
    [("disk_full", "wait_space"), ("lost_device", "wait_devices"), ("hang", "restart"), ("unknown", "restart")],
)
def test_what_is_waited_for(name, action):
    """Space and devices come back when somebody has acted."""
    assert decide([failed(name)], LIMITS, 0).action == action


def test_a_loss_that_is_no_number_goes_back_before_its_onset():
    """The newest checkpoint may hold the damage already."""
    decision = decide([failed(cause.NONFINITE, step=19, onset=17, resumed=10)], LIMITS, 0)

    assert (decision.action, decision.before) == ("roll_back", 17)


def test_a_program_that_stops_for_nan_without_a_loss_of_ours_is_restarted():
    """Without an onset there is nothing to go back before."""
    assert decide([failed("nan_detected", onset=None)], LIMITS, 0).action == "restart"


def test_the_first_step_behind_a_checkpoint_condemns_it():
    """It held weights that were no numbers; the second time the step itself is to blame."""
    first = failed(cause.NONFINITE, step=19, onset=17, resumed=16)
    again = failed(cause.NONFINITE, step=19, onset=17, resumed=12)

    assert decide([first], LIMITS, 0).before == 16
    assert decide([first, again], LIMITS, 1).before == 17
    assert decide([first, again, again], LIMITS, 2).action == "stop"


def test_a_restart_never_resumes_from_behind_an_onset():
    """A rank that was killed while its loss was no number has saved nothing of use since."""
    assert decide([failed(onset=5)], LIMITS, 0).before == 5
