"""Runs and ranks over several attempts: what goes on, what is shown, and who speaks for whom."""

from __future__ import annotations

import itertools
import math

import pytest

from trainvitals import rankfile
from trainvitals.collect.rank import MAX_ATTEMPTS, MAX_KINDS, MAX_RESULTS, MAX_SPLITS
from trainvitals.collect.runs import FORGET_AFTER, MAX_ABSENT, Runs
from trainvitals.collect.spool import RankFile
from trainvitals.detect import Verdict
from trainvitals.telemetry import Event, Identity, Step

NOW = 1_700_000_000.0


class Watcher:
    """A detector that remembers what it was shown."""

    signal = "watcher"
    category = "data"

    def __init__(self):
        self.steps = []

    def observe(self, step):
        """Remember the step."""
        self.steps.append(step)

    def verdict(self):
        """Return the number of steps as the ratio."""
        return Verdict(ratio=float(len(self.steps)))


@pytest.fixture
def runs():
    """What is under test."""
    return Runs(lambda: [Watcher()])


inodes = itertools.count(1)


def make_file(rank=0, *, run="test", started=NOW, attempt=0, owner=1000, alive=True, steps=0, last=None, **counters):
    """Return a file as a poll of the spool gives it; its process started ``started`` and did ``steps`` steps since."""
    inode = next(inodes)
    state = rankfile.State(heartbeat=1.0, phase_since=1.0, count=steps, step=steps, **counters)
    file = RankFile(
        path=f"/spool/{run}.{rank}.{inode}.rank",
        inode=(1, inode),
        owner=owner,
        header=rankfile.Header("boot", 0.0, started),
        identity=Identity(run=run, rank=rank, attempt=attempt),
        names=["loss"],
        state=state,
        alive=alive,
        sequence=steps,
        count=steps,
    )
    file.steps = [make_step(file, number) for number in range(1, steps + 1)]
    file.last_record = last if last is not None else started + steps
    return file


def make_step(file, count, step=None, **values):
    """Return a step that ended ``count`` seconds after the start."""
    return Step(count if step is None else step, count, file.started + count, values or {"loss": 1.0 / count})


def seen(*files):
    """Take away what a poll has handed on, as the next poll does."""
    for file in files:
        file.steps, file.events = [], []


def die(file):
    """End the process of a file."""
    file.alive = False


def counters(runs):
    """Return steps_total by run and rank."""
    return {(rank.identity.run, rank.identity.rank): rank.counters["steps"] for rank in runs.ranks()}


# Counters over attempts ---------------------------------------------------------------------------------------------


def test_counters_go_on_across_attempts(runs):
    """A restart is a new file; the total is the sum, at every poll the same, and never falls."""
    first = make_file(steps=100, samples=10.0, skipped=2)
    runs.update([first], NOW)
    die(first)
    seen(first)
    runs.update([first], NOW)
    second = make_file(started=NOW + 200, steps=0)
    for _ in range(5):
        runs.update([first, second], NOW + 200)
        seen(first, second)
        assert counters(runs) == {("test", 0): 100.0}
    second.state.count = second.count = 30
    second.state.samples = 3.0
    for _ in range(5):
        runs.update([first, second], NOW + 230)

    (rank,) = runs.ranks()
    assert (rank.counters["steps"], rank.counters["samples"], rank.counters["skipped"]) == (130.0, 13.0, 2.0)


def test_counters_stay_when_the_file_of_an_old_attempt_is_removed(runs):
    """The exporter removes it after a while; what it counted stays counted."""
    first, second = make_file(steps=100, alive=False), make_file(started=NOW + 200, steps=5)
    runs.update([first, second], NOW + 205)
    seen(second)
    runs.update([second], NOW + 4000)
    runs.update([second], NOW + 4005)

    assert counters(runs) == {("test", 0): 105.0}


def test_an_exporter_that_was_restarted_comes_to_the_same_total(runs):
    """It reads all files that are there, oldest first."""
    runs.update([make_file(steps=100, alive=False), make_file(started=NOW + 200, steps=5)], NOW + 205)

    assert counters(runs) == {("test", 0): 105.0}
    assert [step.step for step in runs.ranks()[0].detectors[0].steps] == [*range(1, 101), *range(1, 6)]


def test_a_crash_loop_is_counted_to_its_end(runs):
    """More attempts than are remembered one by one: their sum is kept."""
    for attempt in range(3 * MAX_ATTEMPTS):
        file = make_file(started=NOW + attempt, steps=1, attempt=attempt)
        runs.update([file], NOW + attempt)
        assert counters(runs) == {("test", 0): attempt + 1.0}
        assert len(runs.ranks()[0]._attempts) <= MAX_ATTEMPTS + 1


def test_counters_of_phases_go_on_too(runs):
    """Also the phase that is going on now, until the process ends."""
    first = make_file(steps=1, phase=3, phase_seconds=[0.0, 5.0, 10.0, 2.0, *[0.0] * 12])
    runs.update([first], NOW + 11)
    assert runs.ranks()[0].phase_seconds == {"init": 5.0, "train": 10.0, "data": 12.0}
    die(first)
    runs.update([first], NOW + 100)
    assert runs.ranks()[0].phase_seconds == {"init": 5.0, "train": 10.0, "data": 12.0}

    second = make_file(started=NOW + 200, phase=1)
    runs.update([first, second], NOW + 204)
    assert runs.ranks()[0].phase_seconds == {"init": 8.0, "train": 10.0, "data": 12.0}


def test_a_counter_never_falls(runs):
    """A file that goes back, or says nonsense, is not followed."""
    file = make_file(steps=10, samples=5.0, phase_seconds=[1.0] * 16)
    runs.update([file], NOW + 10)
    before = dict(runs.ranks()[0].counters), dict(runs.ranks()[0].phase_seconds)
    for value in (0.0, -5.0, math.nan, math.inf, -math.inf):
        file.state.samples = file.state.tokens = value
        file.state.phase_seconds = [value] * 16
        file.state.count = 0
        runs.update([file], NOW + 10)
        assert (runs.ranks()[0].counters, runs.ranks()[0].phase_seconds) == before


def test_values_of_an_old_attempt_are_not_shown_for_the_new_one(runs):
    """A loss from before the crash is not the loss of now; evaluations and checkpoints stay."""
    first = make_file(steps=5, alive=False)
    first.events = [
        Event(NOW, "evaluation", 5, {"name": "validation", "values": {"accuracy": 0.5}}),
        Event(NOW, "checkpoint", 5, {"action": "save", "ok": True}),
    ]
    runs.update([first], NOW + 5)
    assert runs.ranks()[0].values == {"loss": 0.2}
    seen(first)
    runs.update([first, make_file(started=NOW + 100)], NOW + 100)

    (rank,) = runs.ranks()
    assert (rank.state, rank.values, rank.last_step, rank.started) == ("running", {}, None, NOW + 100)
    assert (rank.evaluations["validation"].values, rank.checkpoint.step) == ({"accuracy": 0.5}, 5)


# Two files of one rank ----------------------------------------------------------------------------------------------


def test_the_last_steps_of_an_attempt_come_before_those_of_the_next(runs):
    """When both are new in the same poll, and once only."""
    first, second = make_file(steps=3), make_file(started=NOW + 100, steps=2)
    die(first)
    for _ in range(3):
        runs.update([first, second], NOW + 102)
        seen(first, second)

    (rank,) = runs.ranks()
    assert [(step.count, step.time - NOW) for step in rank.detectors[0].steps] == [
        (1, 1.0),
        (2, 2.0),
        (3, 3.0),
        (1, 101.0),
        (2, 102.0),
    ]
    assert rank.last_step.time == NOW + 102
    assert sum(rank.buckets) == 3


def test_of_two_live_files_the_one_that_reports_steps_speaks(runs):
    """A child of multiprocessing that runs the script once more is newer, and silent; it is counted as a duplicate."""
    trainer, child = make_file(steps=10), make_file(started=NOW + 50)
    for _ in range(4):
        runs.update([trainer, child], NOW + 60)
        seen(trainer, child)
        (rank,) = runs.ranks()
        assert (rank.started, rank.last_step.step, rank.counters["steps"]) == (NOW, 10, 10.0)
        assert runs.duplicates == 1
    die(child)
    runs.update([trainer, child], NOW + 60)
    assert (runs.ranks()[0].state, runs.duplicates) == ("running", 0)


def test_of_two_live_files_that_report_steps_the_newer_speaks(runs):
    """A process that hangs in its end while its successor trains; the detectors see the steps of one at a time."""
    old, new = make_file(steps=10), make_file(started=NOW + 50)
    runs.update([old, new], NOW + 60)
    seen(old, new)
    assert runs.ranks()[0].started == NOW
    new.count = new.sequence = new.state.count = 1
    new.steps = [make_step(new, 1)]
    old.steps = [make_step(old, 11)]
    runs.update([old, new], NOW + 61)
    seen(old, new)

    (rank,) = runs.ranks()
    assert (rank.started, rank.last_step.time, runs.duplicates) == (NOW + 50, NOW + 51, 1)
    assert [step.time for step in rank.detectors[0].steps[-2:]] == [NOW + 10, NOW + 51]
    die(old)
    runs.update([old, new], NOW + 62)
    assert (runs.ranks()[0].state, runs.ranks()[0].started) == ("running", NOW + 50)


def step_on(file, *counts, **values):
    """Let a file report steps, of which count n ends n seconds after its start."""
    file.steps = [make_step(file, count, **values) for count in counts]
    file.count = file.state.count = file.sequence = counts[-1]
    file.last_record = file.steps[-1].time


def names(runs):
    """Return state and last step of each run."""
    return {rank.identity.run: (rank.state, rank.last_step and rank.last_step.step) for rank in runs.ranks()}


def test_two_jobs_of_one_name_are_two_runs(runs):
    """Both train: the older one keeps its name, and neither hides a finding of the other."""
    old, new = make_file(steps=60), make_file(started=NOW + 50, steps=5)
    for poll in range(1, 4):
        runs.update([old, new], NOW + 60 + poll)
        assert (names(runs), runs.duplicates) == (
            {"test": ("running", 59 + poll), "test~2": ("running", 4 + poll)},
            0,
        )
        step_on(old, 60 + poll)
        step_on(new, 5 + poll)
    assert counters(runs) == {("test", 0): 62.0, ("test~2", 0): 7.0}
    assert {rank.identity.run: len(rank.detectors[0].steps) for rank in runs.ranks()} == {"test": 62, "test~2": 7}


def test_a_job_keeps_its_name_when_the_other_ends(runs):
    """A series that changed its name would be another run."""
    old, new = make_file(steps=60), make_file(started=NOW + 50, steps=5)
    runs.update([old, new], NOW + 60)
    die(old)
    seen(old, new)
    for _ in range(3):
        runs.update([old, new], NOW + 70)
        assert names(runs) == {"test": ("died", 60), "test~2": ("running", 5)}
    restarted = make_file(started=NOW + 80, steps=1)
    runs.update([old, new, restarted], NOW + 90)

    assert names(runs) == {"test": ("running", 1), "test~2": ("running", 5)}
    assert counters(runs)["test", 0] == 61.0


def test_a_third_job_has_the_third_name(runs):
    """And one that is started anew goes on under the name that it had."""
    first, second, third = (make_file(started=NOW + index, steps=60, attempt=7) for index in range(3))
    runs.update([first, second, third], NOW + 60)
    assert list(names(runs)) == ["test", "test~2", "test~3"]
    seen(first, second, third)
    die(second)
    again = make_file(started=NOW + 100)
    step_on(first, 110)
    runs.update([first, second, third, again], NOW + 110)
    assert (names(runs)["test~2"][0], runs.duplicates) == ("died", 1)
    step_on(again, 1, 2)
    runs.update([first, second, third, again], NOW + 120)

    assert names(runs)["test~2"] == ("running", 2)
    assert counters(runs) == {("test", 0): 110.0, ("test~2", 0): 62.0, ("test~3", 0): 60.0}


def test_a_job_that_seemed_a_successor_gives_the_rank_back(runs):
    """Until the older of two steps again, nobody can tell it from one that hangs in its end."""
    old, new = make_file(steps=10), make_file(started=NOW + 50, steps=3)
    runs.update([old, new], NOW + 60)
    assert names(runs) == {"test": ("running", 3)}
    seen(old, new)
    step_on(old, 70, loss=math.nan)
    runs.update([old, new], NOW + 70)

    assert names(runs) == {"test": ("running", 70), "test~2": ("running", None)}
    assert math.isnan(runs.ranks()[0].values["loss"])


def test_the_second_name_is_not_taken_from_another_user(runs):
    """Nor does his file speak for it."""
    theirs = make_file(run="test~2", owner=2000, steps=1)
    old, new = make_file(steps=60), make_file(started=NOW + 50, steps=5)
    runs.update([theirs, old, new], NOW + 60)

    assert names(runs) == {"test~2": ("running", 1), "test": ("running", 60)}
    assert runs.duplicates == 1


def test_a_live_file_speaks_even_if_a_newer_one_died(runs):
    """A short-lived second start of the script beside the run."""
    alive, dead = make_file(steps=10), make_file(started=NOW + 50, steps=2, alive=False)
    runs.update([alive, dead], NOW + 60)

    (rank,) = runs.ranks()
    assert (rank.state, rank.started, rank.counters["steps"]) == ("running", NOW, 12.0)
    assert len(rank.detectors[0].steps) == 10


@pytest.mark.parametrize("seen_between", [False, True])
def test_a_helper_that_never_stepped_does_not_decide_the_state(runs, seen_between):
    """A child of the trainer that called init and was terminated is no successor that died, whoever ended first."""
    trainer = make_file(steps=100, flags=rankfile.FLAG_FINISHED)
    helper = make_file(started=NOW + 50)
    runs.update([trainer, helper], NOW + 100)
    seen(trainer, helper)
    die(trainer)
    if seen_between:
        runs.update([trainer, helper], NOW + 101)
    die(helper)
    for fresh in (runs, Runs(lambda: [Watcher()])):
        if fresh is not runs:
            trainer.steps = [make_step(trainer, 100)]
        fresh.update([trainer, helper], NOW + 102)
        (rank,) = fresh.ranks()
        assert (rank.state, rank.started, rank.last_step.step, rank.values) == ("finished", NOW, 100, {"loss": 0.01})


def test_a_successor_that_died_before_its_first_step_decides_the_state(runs):
    """The run was started anew after the end of its first attempt, and died while it loaded its data."""
    first = make_file(steps=100, flags=rankfile.FLAG_FINISHED, alive=False)
    second = make_file(started=NOW + 101, alive=False)
    runs.update([first, second], NOW + 110)

    assert (runs.ranks()[0].state, runs.ranks()[0].started) == ("died", NOW + 101)


# States -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "alive", "state"),
    [
        (0, True, "running"),
        (0, False, "died"),
        (rankfile.FLAG_FINISHED, False, "finished"),
        (rankfile.FLAG_FINISHED, True, "finished"),
        (rankfile.FLAG_FINISHED | rankfile.FLAG_FAILED, False, "failed"),
        (rankfile.FLAG_DISABLED, True, "running"),
        (rankfile.FLAG_DISABLED, False, "died"),
        (rankfile.FLAG_DISABLED | rankfile.FLAG_FINISHED, False, "finished"),
    ],
)
def test_the_state_comes_from_flags_and_lock(runs, flags, alive, state):
    """A free lock without the flag is a death."""
    runs.update([make_file(flags=flags, alive=alive)], NOW)

    assert runs.ranks()[0].state == state
    assert runs.ranks()[0].disabled == bool(flags & rankfile.FLAG_DISABLED)


def states(runs):
    """Return the state of each rank that is shown."""
    return {rank.identity.rank: rank.state for rank in runs.ranks()}


def test_a_rank_that_died_is_shown_although_others_started_later(runs):
    """Ranks of one attempt start at different times: rank 0 failed before rank 1 was there."""
    first = make_file(0, alive=False)
    others = [make_file(rank, started=NOW + 60 + rank, steps=3) for rank in (1, 2, 3)]
    runs.update([first, *others], NOW + 100)

    assert states(runs) == {0: "died", 1: "running", 2: "running", 3: "running"}


def test_a_rank_that_died_long_after_the_others_started_is_shown(runs):
    """Its last step counts, not its last state: steps write records only."""
    first = make_file(0, steps=1000, alive=False)
    runs.update([first, make_file(1, started=NOW + 60, steps=900)], NOW + 1001)

    assert states(runs) == {0: "died", 1: "running"}


def test_ranks_of_an_older_attempt_are_not_shown_as_died(runs):
    """A restart in a smaller world: ranks 2 and 3 ended with the first attempt and are gone."""
    old = [make_file(rank, steps=10, alive=False) for rank in range(4)]
    runs.update(old, NOW + 11)
    assert states(runs) == dict.fromkeys(range(4), "died")
    seen(*old)
    new = [make_file(rank, started=NOW + 100 + rank) for rank in range(2)]
    runs.update([*old, *new], NOW + 103)

    assert states(runs) == {0: "running", 1: "running"}


def test_ranks_that_moved_to_another_node_are_not_shown_as_died(runs):
    """The launcher's count says that the run is in a later attempt, here with other ranks."""
    old = [make_file(rank, steps=10, alive=False) for rank in (0, 1)]
    runs.update([*old, make_file(2, started=NOW + 100, attempt=1)], NOW + 101)

    assert states(runs) == {2: "running"}


def test_a_restart_does_not_hide_what_died_after_it(runs):
    """Rank 1 was restarted and died again."""
    old = [make_file(rank, steps=10, alive=False) for rank in (0, 1)]
    new = [make_file(0, started=NOW + 100, steps=20), make_file(1, started=NOW + 101, steps=10, alive=False)]
    runs.update([*old, *new], NOW + 130)

    assert states(runs) == {0: "running", 1: "died"}


def test_the_end_of_one_run_is_not_hidden_by_a_restart_of_another(runs):
    """Runs have nothing to do with each other."""
    runs.update(
        [
            make_file(run="a", alive=False, steps=5),
            make_file(run="b", alive=False, steps=5),
            make_file(run="b", started=NOW + 100, steps=5, attempt=3),
        ],
        NOW + 110,
    )

    assert {rank.identity.run: rank.state for rank in runs.ranks()} == {"a": "died", "b": "running"}


# What is remembered -------------------------------------------------------------------------------------------------


def test_a_rank_whose_file_was_unreadable_for_a_moment_goes_on(runs):
    """Its detectors, histogram and counters are those from before."""
    file = make_file(steps=10)
    runs.update([file], NOW + 10)
    seen(file)
    runs.update([], NOW + 15)
    assert runs.ranks() == []
    runs.update([file], NOW + 20)

    (rank,) = runs.ranks()
    assert (rank.counters["steps"], sum(rank.buckets), len(rank.detectors[0].steps)) == (10.0, 9, 10)


def test_a_rank_whose_files_are_gone_is_forgotten(runs):
    """After a minute; a run of the same name is then a new one."""
    runs.update([make_file(steps=10, alive=False)], NOW)
    runs.update([], NOW + FORGET_AFTER + 1)
    runs.update([make_file(started=NOW + 100, steps=1)], NOW + 101)

    assert counters(runs) == {("test", 0): 1.0}


def test_absent_ranks_do_not_pile_up(runs):
    """A file that changes its name at every poll."""
    for index in range(3 * MAX_ABSENT):
        runs.update([make_file(run=f"run-{index}", steps=1)], NOW + 0.01 * index)

    assert len(runs._ranks) <= MAX_ABSENT + 1
    assert len(runs._owners) == 1


# Users --------------------------------------------------------------------------------------------------------------


def test_a_run_belongs_to_the_user_who_had_its_name_first(runs):
    """Somebody else's file under the same name is left out and counted, whatever it says about its age."""
    mine = make_file(steps=10, owner=1000)
    runs.update([mine], NOW + 10)
    seen(mine)
    theirs = make_file(started=NOW - 1e6, steps=5, owner=2000)
    other_rank = make_file(rank=1, steps=5, owner=2000)
    runs.update([theirs, mine, other_rank], NOW + 11)

    assert counters(runs) == {("test", 0): 10.0}
    assert (runs.ranks()[0].started, runs.duplicates) == (NOW, 2)


def test_the_name_is_free_once_its_files_are_gone(runs):
    """The next user may have it."""
    runs.update([make_file(owner=1000)], NOW)
    runs.update([], NOW + 1)
    runs.update([make_file(owner=2000, steps=3)], NOW + 2)

    assert (runs.duplicates, len(runs.ranks())) == (0, 1)


def test_users_with_few_ranks_come_first(runs):
    """So whoever fills the spool uses up his own share of the series."""
    crowd = [make_file(rank, run=f"a-{rank % 3}", owner=2000) for rank in range(30)]
    few = [make_file(rank, run="z", owner=1000) for rank in range(2)]
    runs.update([*crowd, *few], NOW)

    assert list(runs.by_run()) == ["z", "a-0", "a-1", "a-2"]
    assert [rank.identity.rank for rank in runs.by_run()["z"]] == [0, 1]


def test_what_lives_comes_before_what_ended(runs):
    """Hundreds of ended runs of the same user leave a live one its series; the newest of them come first."""
    ended = [make_file(run=f"a-{index}", steps=index + 2, alive=False) for index in range(3)]
    live = [make_file(run="z", started=NOW - 100), make_file(run="y")]
    runs.update([*ended, *live], NOW + 10)

    assert list(runs.by_run()) == ["y", "z", "a-2", "a-1", "a-0"]


# Steps and events ---------------------------------------------------------------------------------------------------


def test_durations_are_those_between_neighbouring_steps(runs):
    """Late values are no steps, and across lost records there is no duration."""
    file = make_file()
    times = [(1, 10.0), (2, 10.2), (1, 10.3), (3, 10.7), (9, 20.0), (10, 20.005)]
    file.steps = [Step(count, count, NOW + moment, {}) for count, moment in times]
    file.count = 10
    runs.update([file], NOW + 21)

    (rank,) = runs.ranks()
    # 0.2 s, 0.5 s and 0.005 s in the buckets up to 0.01, 0.25 and 0.5.
    assert rank.buckets == [0, 1, 0, 0, 1, 1, *[0] * 7]
    assert math.isclose(rank.bucket_sum, 0.705, abs_tol=1e-6)
    assert rank.last_step.count == 10


def test_a_clock_that_was_set_is_no_duration_and_no_stall(runs):
    """The last step moves with the clock, whether or not another has followed."""
    file = make_file(steps=3)
    runs.update([file], NOW + 4)
    seen(file)
    file.correction = 3600.0
    runs.update([file], NOW + 3604)
    assert runs.ranks()[0].last_step.time == NOW + 3603
    file.steps = [make_step(file, 4)]
    runs.update([file], NOW + 3604)

    (rank,) = runs.ranks()
    assert (rank.started, rank.last_step.time, rank.bucket_sum) == (NOW + 3600, NOW + 3604, 3.0)


def test_late_values_do_not_turn_back_the_step(runs):
    """They are the last values all the same."""
    file = make_file()
    file.names = ["loss", "lr"]
    file.steps = [Step(7, 1, NOW, {}), Step(8, 2, NOW + 1, {"lr": 0.1}), Step(7, 1, NOW + 1, {"loss": 0.5})]
    file.count = 2
    runs.update([file], NOW + 2)

    (rank,) = runs.ranks()
    assert (rank.last_step.step, rank.values) == (8, {"lr": 0.1, "loss": 0.5})


def test_a_skipped_step_is_a_mark_and_no_curve(runs):
    """The detectors see it."""
    file = make_file()
    file.steps = [Step(7, 1, NOW, {"loss": math.inf, "skipped": 1.0})]
    runs.update([file], NOW)

    (rank,) = runs.ranks()
    assert rank.values == {"loss": math.inf}
    assert rank.detectors[0].steps[0].values == {"loss": math.inf, "skipped": 1.0}


def test_checkpoints_and_evaluations_are_the_last_of_their_kind(runs):
    """A failed save is counted and does not take the place of a good one; a load is no save."""
    file = make_file()
    file.events = [
        Event(NOW, "checkpoint", 1, {"action": "save", "ok": True}),
        Event(NOW, "checkpoint", 2, {"action": "save", "ok": False}),
        Event(NOW, "checkpoint", 3, {"action": "load", "ok": True}),
        Event(NOW, "evaluation", 1, {"name": "a", "values": {"loss": 1.0}}),
        Event(NOW, "evaluation", 2, {"name": "a", "values": {"accuracy": 2}}),
        Event(NOW, "evaluation", 3, {"name": "b", "values": {"loss": 3.0}}),
        Event(NOW, "evaluation", 4, {"values": {"text": "x", "huge": 10**400, "loss": 4.0}}),
    ]
    runs.update([file], NOW)

    (rank,) = runs.ranks()
    assert (rank.checkpoint.step, rank.checkpoints, rank.checkpoint_failures) == (1, 1, 1)
    assert {name: (found.step, found.values) for name, found in rank.evaluations.items()} == {
        "a": (2, {"accuracy": 2.0}),
        "b": (3, {"loss": 3.0}),
        "None": (4, {"loss": 4.0}),
    }
    assert rank.kinds == {"checkpoint": 3, "evaluation": 4}


def test_a_save_that_somebody_interrupted_is_no_failed_checkpoint(runs):
    """Ctrl-C inside a save is what somebody wanted; the event itself is counted."""
    file = make_file()
    file.events = [
        Event(NOW, "checkpoint", 1, {"action": "save", "ok": False, "error": "KeyboardInterrupt"}),
        Event(NOW, "checkpoint", 2, {"action": "save", "ok": False, "error": "OSError"}),
    ]
    runs.update([file], NOW)

    (rank,) = runs.ranks()
    assert (rank.checkpoint, rank.checkpoints, rank.checkpoint_failures) == (None, 0, 1)
    assert rank.kinds == {"checkpoint": 2}


def test_names_that_left_the_table_are_not_shown(runs):
    """A file may change its table at every poll: what is remembered is what is in it."""
    file = make_file()
    for poll in range(100):
        file.names = [f"v{poll}-{index}" for index in range(rankfile.MAX_NAMES)]
        file.steps = [Step(poll, poll + 1, NOW + poll, dict.fromkeys(file.names, 1.0))]
        runs.update([file], NOW + poll)

    assert list(runs.ranks()[0].values) == file.names


def test_what_one_rank_can_report_is_bounded(runs):
    """Kinds, splits, and results in all of them."""
    file = make_file()
    file.events = [Event(NOW, f"kind-{index}", 1, {}) for index in range(1000)]
    for index in range(100):
        values = {f"v{number}": 1.0 for number in range(50)}
        file.events.append(Event(NOW, "evaluation", 1, {"name": f"split-{index}", "values": values}))
    runs.update([file], NOW)

    (rank,) = runs.ranks()
    assert len(rank.kinds) == MAX_KINDS
    assert len(rank.evaluations) <= MAX_SPLITS
    assert sum(len(evaluation.values) for evaluation in rank.evaluations.values()) == MAX_RESULTS


def test_the_last_hour_of_a_file_is_judged_as_if_it_were_now(runs):
    """A late exporter must not swallow a finding; older steps, and those of later polls, keep their time."""
    file = make_file(steps=2)
    file.is_new = True
    file.steps = [Step(count, count, NOW + moment, {}) for count, moment in ((1, 0.0), (2, 5000.0), (3, 8000.0))]
    runs.update([file], NOW + 8100)
    file.is_new = False
    file.steps = [Step(4, 4, NOW + 8105, {})]
    runs.update([file], NOW + 8110)

    (rank,) = runs.ranks()
    assert [step.time - NOW for step in rank.detectors[0].steps] == [0.0, 8100.0, 8100.0, 8105.0]
    assert rank.last_step.time == NOW + 8105
    assert rank.bucket_sum == 5000.0 + 3000.0 + 105.0


# Detectors that fail ------------------------------------------------------------------------------------------------


class Faulty(Watcher):
    """A detector that fails at each step of its choice."""

    signal = "faulty"

    def observe(self, step):
        """Fail at even steps."""
        super().observe(step)
        if step.count % 2 == 0:
            raise ZeroDivisionError

    def verdict(self):
        """Fail."""
        raise ZeroDivisionError


def test_a_detector_that_fails_costs_only_itself(caplog):
    """The others see every step and have their verdicts; it is logged once and counted each time."""
    runs = Runs(lambda: [Faulty(), Watcher()])
    file = make_file(steps=10)
    runs.update([file], NOW + 10)

    (rank,) = runs.ranks()
    assert [len(detector.steps) for detector in rank.detectors] == [10, 10]
    assert [(finding.signal, finding.verdict.ratio, finding.ranks) for finding in runs.findings([rank], NOW)] == [
        ("stall", 0.0, ()),
        ("watcher", 10.0, (0,)),
    ]
    assert runs.broken == 6
    assert len(caplog.records) == 1


def test_a_file_that_makes_no_sense_costs_only_itself(runs, caplog, monkeypatch):
    """An error that nobody thought of: the rank is not shown, the others are."""
    good, bad = make_file(0, steps=3), make_file(1, steps=3)
    wall = RankFile.wall
    monkeypatch.setattr(RankFile, "wall", lambda self, moment: 1 / 0 if self is bad else wall(self, moment))
    for _ in range(3):
        runs.update([good, bad], NOW)

    assert counters(runs) == {("test", 0): 3.0}
    assert runs.broken == 3
    assert len(caplog.records) == 1


def test_a_finding_names_the_ranks(runs):
    """The worst rank's verdict, and all ranks on which the signal is active."""
    files = [make_file(rank, steps=rank % 3) for rank in range(12)]
    runs.update(files, NOW)
    _, finding = runs.findings(runs.ranks(), NOW)

    assert (finding.verdict.ratio, finding.ranks) == (2.0, (1, 2, 4, 5, 7, 8, 10, 11))
    assert finding.location == "ranks 1, 2, 4, 5, 7, 8, 10, 11"
    one_more = make_file(12, steps=1)
    runs.update([*files, one_more], NOW)
    assert runs.findings(runs.ranks(), NOW)[-1].location == "ranks 1, 2, 4, 5, 7, 8, 10, 11 and 1 more"
    assert runs.findings([rank for rank in runs.ranks() if rank.identity.rank == 4], NOW)[-1].location == "rank 4"


def test_a_rank_without_steps_is_stalled_until_it_has_ended(runs):
    """The age of its last step by the clock of the exporter; one that is done, and one that has ended, are not."""
    file = make_file(steps=10)
    runs.update([file], NOW + 10)
    found = {finding.signal: finding for finding in runs.findings(runs.ranks(), NOW + 3000)}
    assert found["stall"].verdict.severity == "critical"
    assert found["stall"].ranks == (0,)

    (rank,) = runs.ranks()
    rank.target_steps = rank.last_step.step + 1
    assert rank.stalled(NOW + 3000) is None
    rank.target_steps = None
    rank.state = "died"
    assert rank.stalled(NOW + 3000) is None


def test_a_run_with_a_target_has_a_forecast(runs):
    """While it lives."""
    runs.update([make_file(steps=400)], NOW + 400)
    (rank,) = runs.ranks()
    rank.target_steps = rank.last_step.step + 100
    seconds = rank.remaining()
    assert seconds.p10 < seconds.p50 < seconds.p90
    assert seconds.p50 == pytest.approx(100.0)
    rank.state = "finished"
    assert rank.remaining() is None


def test_ranks_of_a_run_are_compared(runs, monkeypatch):
    """What each waits for the others tells the one that is waited for."""
    seconds = {0: {"train": 0.0, "communication": 0.0}, 1: {"train": 0.0, "communication": 0.0}}
    files = [make_file(rank, steps=3) for rank in seconds]
    for file in files:
        told = seconds[file.identity.rank]
        monkeypatch.setattr(file, "phase_seconds", lambda now, told=told: dict(told))  # noqa: ARG005  its contract
    for number in range(90):
        seconds[0]["train"] += 5.0
        seconds[0]["communication"] += 5.0
        seconds[1]["train"] += 9.0
        seconds[1]["communication"] += 1.0
        runs.update(files, NOW + 10.0 * number)
    found = {finding.signal: finding for finding in runs.findings(runs.ranks(), NOW)}
    assert found["straggler"].ranks == (1,)
    assert found["straggler"].verdict.severity == "critical"
