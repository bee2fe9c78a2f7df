"""``trainvitals incidents``: what broke, what it cost, where the time went, how often to save."""

from __future__ import annotations

import json
import math

import pytest
from tests.history import story as stories
from tests.history.story import RUN

from trainvitals.history import command, costs, line, reckon
from trainvitals.history.books import Books
from trainvitals.history.lives import interruptions, lives
from trainvitals.journal import Attempt, Entry, Incident, Journal


@pytest.fixture
def path(tmp_path):
    """Give a journal with a story."""
    stories.write(tmp_path / "journal.db")
    return str(tmp_path / "journal.db")


def attempt(began, ended, state="finished", number=0, *steps, rank=0, **phases):
    """Return a process of a run; ``steps`` are its first and its last."""
    first, last = steps or (None, None)
    return Attempt(
        run=RUN, node="n1", rank=rank, attempt=number, began=began, seen=ended, ended=ended, state=state,
        first_step=first, last_step=last, phases=phases,
    )  # fmt: skip


def incident(detected, **more):
    """Return an incident."""
    return Incident(id=int(detected), run=RUN, **{"cause": "killed", "attempt": 0, "detected": detected, **more})


def saves(every, seconds, count=20):
    """Return so many checkpoints."""
    return [
        Entry(
            kind="checkpoint",
            run=RUN,
            time=n * every,
            step=n,
            details={"seconds": seconds, "ok": True, "action": "save"},
        )
        for n in range(count)
    ]


# Mean time to failure ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probability", "half", "expected"),
    # Abramowitz and Stegun, table 26.8, for 2, 8, 10, 20, 22 and 100 degrees of freedom.
    [
        (0.975, 1, 7.37776),
        (0.025, 4, 2.17973),
        (0.975, 5, 20.4832),
        (0.025, 10, 9.59078),
        (0.975, 11, 36.7807),
        (0.5, 50, 99.3341),
    ],
)
def test_quantiles_are_those_of_the_table(probability, half, expected):
    """The exact distribution, without a library for it."""
    assert expected == pytest.approx(reckon.chi_squared(probability, half), rel=1e-5)


def test_the_interval_is_the_exact_one():
    """k=0: at least 0.27 T; k=3: 0.114 T to 1.62 T; k=10: 0.0544 T to 0.209 T."""
    none, three, ten = (reckon.mttf(failures, 1000.0) for failures in (0, 3, 10))

    assert (None, None) == (none.mean, none.high)
    assert 271.1 == pytest.approx(none.low, rel=1e-3)
    assert (114.06, 1000 / 3, 1616.4) == pytest.approx((three.low, three.mean, three.high), rel=1e-3)
    assert (54.38, 100.0, 208.5) == pytest.approx((ten.low, ten.mean, ten.high), rel=1e-3)
    assert None is reckon.mttf(3, 0.0).mean


# Where the time went -------------------------------------------------------------------------------------------------


def test_the_parts_add_up_to_the_wall_time():
    """Two lives with a pause between them, and work that was done again."""
    found = lives(
        [
            attempt(0.0, 100.0, "died", 0, 0, 49, init=10.0, train=70.0, data=5.0, checkpoint=10.0),
            attempt(0.0, 100.0, "failed", 0, 0, 49, rank=1, init=10.0, forward=60.0, data=15.0, checkpoint=10.0),
            attempt(130.0, 230.0, "finished", 1, 40, 99, init=10.0, train=80.0, evaluation=10.0),
        ]
    )
    spent = reckon.buckets(found, [incident(100.0, seconds_lost=12.0)])

    expected = {
        "productive": 133.0, "repeated": 12.0, "data": 10.0, "checkpoint": 10.0, "evaluation": 10.0, "start": 20.0,
        "other": 5.0, "down": 30.0,
    }  # fmt: skip
    assert expected == pytest.approx(spent)
    assert 230.0 == pytest.approx(math.fsum(spent.values()))


def test_phases_that_claim_more_than_there_was_are_cut_to_it():
    """A file is whatever a user wrote into it: the sum stays the wall time."""
    spent = reckon.buckets(lives([attempt(0.0, 10.0, train=900.0, data=100.0)]), [incident(1.0, seconds_lost=1e9)])

    assert 10.0 == pytest.approx(math.fsum(spent.values()))
    assert (9.0, 0.0, 1.0) == pytest.approx((spent["repeated"], spent["productive"], spent["data"]))
    assert min(spent.values()) >= 0.0


def test_a_log_without_phases_is_other_time():
    """Nobody knows what it was spent on, and nobody says so."""
    spent = reckon.buckets(lives([attempt(0.0, 50.0)]), [])

    assert (50.0, 0.0) == (spent["other"], spent["productive"])


def test_attempts_that_overlap_count_once():
    """A rank that hangs in its end while the next attempt trains."""
    found = lives([attempt(0.0, 100.0, "died", 0, train=100.0), attempt(90.0, 190.0, "running", 1, train=100.0)])
    spent = reckon.buckets(found, [])

    assert 2 == len(found)
    assert (190.0, 0.0) == pytest.approx((math.fsum(spent.values()), spent["down"]))


# Interruptions that nobody recorded ----------------------------------------------------------------------------------


def test_a_death_that_was_recorded_is_there_once():
    """By its time, for a script that is started by hand counts no attempts; one that nobody recorded is derived."""
    found = lives(
        [attempt(0.0, 100.0, "died", 0), attempt(130.0, 200.0, "died", 0), attempt(900.0, 950.0, "running", 0)]
    )

    one, other = incident(105.0), incident(205.0, attempt=7)
    assert [True, True] == [bool(found.details) for found in interruptions(found, [])]
    assert [False, True] == [bool(found.details) for found in interruptions(found, [one])]
    assert [False, False] == [bool(found.details) for found in interruptions(found, [one, other])]


def test_the_step_at_which_the_run_went_on_is_believed():
    """A supervisor that knows of no checkpoint thinks that all is lost; the training found one at step 99."""
    found = lives([attempt(0.0, 100.0, "died", 0, 0, 120), attempt(102.0, 200.0, "running", 1, 100, 150)])
    planned = incident(100.5, last_step=120, resume_step=0, steps_lost=120, seconds_lost=60.0)
    (one,) = interruptions(found, [planned])

    assert (100, 21, 10.5) == (one.resume_step, one.steps_lost, one.seconds_lost)


def test_two_interruptions_of_one_attempt_are_both_there():
    """A restart that failed before its first process is an interruption too."""
    found = lives([attempt(0.0, 100.0, "died", 0), attempt(200.0, 300.0, "running", 2)])
    recorded = [incident(100.0), incident(150.0, attempt=1, cause="no device")]

    assert ["killed", "no device"] == [one.cause for one in interruptions(found, recorded)]


def test_what_people_wanted_is_no_failure(tmp_path, capsys):
    """A pause that was ordered and a Ctrl-C are listed, and count in no mean time to failure."""
    path = str(tmp_path / "journal.db")
    journal = Journal(path)
    journal.record_attempt(attempt(0.0, 3600.0))
    for cause, moment in (("ordered_pause", 10.0), ("interrupted", 20.0), ("preempted", 30.0)):
        journal.record_incident(RUN, cause, detected=moment)
    journal.close()

    assert 0 == command.incidents([RUN, "--journal", path])
    out = capsys.readouterr().out
    assert "ordered pause" in out
    assert "1 interruption (2 more were wanted) in 1 h of work: mean time to failure 1 h" in out
    kinds = [row.kind for row in line.tell(Books([path]).story(RUN)).rows]
    assert (2, 1) == (kinds.count("command"), kinds.count("incident"))


def test_what_two_supervisors_recorded_is_one_interruption():
    """Each node has its own journal; the one that knows the rank is believed."""
    found = [incident(100.0, node="n1"), incident(103.0, node="n2", rank=5), incident(104.0, node="n2", rank=6)]

    assert [(103.0, 5), (104.0, 6)] == [(one.detected, one.rank) for one in interruptions([], found)]


def test_a_death_that_nobody_recorded_is_told_by_the_attempts():
    """Where the next one goes on says what was lost."""
    found = lives([attempt(0.0, 100.0, "died", 0, 0, 49, init=50.0), attempt(110.0, 200.0, "running", 1, 40, 90)])
    (one,) = interruptions(found, [])

    assert ("died", 100.0, 0, 49, 40, 10, "n1") == (
        *(one.cause, one.detected, one.rank, one.last_step, one.resume_step, one.steps_lost, one.node),
    )
    assert 10.0 == pytest.approx(one.seconds_lost)


# Advice --------------------------------------------------------------------------------------------------------------


def test_advice_is_that_of_daly():
    """M = 2.78 h and a save of 30 s: 12.6 minutes; M = 24 h and 60 s: 53.0 minutes, reckoned by hand."""
    assert 12.58 == pytest.approx(reckon.daly(30.0, 2.78 * 3600) / 60.0, rel=0.001)
    assert 53.0 == pytest.approx(reckon.daly(60.0, 86400.0) / 60.0, rel=0.001)
    assert 100.0 == reckon.daly(500.0, 100.0)


def test_who_saves_too_seldom_is_told():
    """20 failures in 60 hours, a save of 30 s every three hours: every 13 minutes is better, by 43 %."""
    advised = reckon.advice(reckon.mttf(20, 60 * 3600.0), saves(3 * 3600.0, 30.0))

    assert (30.0, 10_800.0) == (advised.cost, advised.present)
    assert 785.1 == pytest.approx(advised.better, rel=0.001)
    # 30/10800 + 10800/21600 = 0.5028 now; 30/785 + 785/21600 = 0.0746 then.
    assert 0.4282 == pytest.approx(advised.saving, abs=0.0005)


@pytest.mark.parametrize(
    ("failures", "hours", "saved"),
    [
        pytest.param(4, 12.0, saves(3 * 3600.0, 30.0), id="too few failures"),
        pytest.param(20, 60.0, saves(3 * 3600.0, 30.0, 2), id="too few saves"),
        pytest.param(20, 60.0, saves(3 * 3600.0, None), id="the cost of a save is not known"),
        pytest.param(20, 60.0, saves(900.0, 30.0), id="well chosen already"),
        pytest.param(5, 5000.0, saves(1800.0, 0.001), id="nothing to win"),
    ],
)
def test_without_grounds_there_is_no_advice(failures, hours, saved):
    """Silence where the data cannot carry it."""
    assert reckon.advice(reckon.mttf(failures, hours * 3600.0), saved) is None


def test_the_slowest_rank_holds_up_the_others():
    """Of each save the longest counts, then the median; nonsense does not."""

    def entry(step, seconds):
        return Entry(kind="checkpoint", run=RUN, time=0.0, step=step, details={"seconds": seconds})

    ranks = [entry(step, 10.0 + step + rank) for step in range(3) for rank in range(4)]
    assert 14.0 == reckon.blocking([*ranks, entry(9, "long"), entry(10, float("inf")), entry(11, -5.0)])


# The command ---------------------------------------------------------------------------------------------------------


def test_the_account_of_a_run(path, capsys):
    """One interruption, its cost, its mean time with bounds, and parts that add up."""
    assert 0 == command.incidents([RUN, "--journal", path])
    out = capsys.readouterr().out

    assert "killed" in out
    assert "90 steps / 3 min 8" in out
    assert "1 interruption in 2 h 28 min of work: mean time to failure 2 h 28 min (95 %: 26 min 37 s to 4 d 1 h)" in out
    assert "wall time             2 h 30 min  100.0%" in out
    assert max(map(len, out.splitlines())) <= 120


def test_json_has_all_of_it(path, capsys):
    """The sum of the parts is the wall time there too."""
    assert 0 == command.incidents(["--json", "--by", "cause", "--journal", path])
    found = json.loads(capsys.readouterr().out)

    assert [RUN] == found["runs"]
    assert 9000.0 == pytest.approx(found["wall_seconds"])
    assert found["wall_seconds"] == pytest.approx(math.fsum(found["spent_seconds"].values()))
    assert [("killed", 1, 90, 188.0, 160.0)] == [
        (one["name"], one["count"], one["steps_lost"], one["seconds_lost"], one["seconds_to_recover"])
        for one in found["groups"]
    ]
    assert {} == found["advice"]
    assert 1 == found["mttf"]["failures"]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("cause", [("killed", 2, 12, 3.5), ("hang", 1, None, None)]),
        ("node", [("n1", 2, 12, 3.5), ("n2", 1, None, None)]),
        ("device", [("unknown", 2, 5, 3.5), ("n1 3", 1, 7, None)]),
    ],
)
def test_interruptions_are_put_together(by, expected):
    """What nobody knows is not 0; the most frequent first."""
    found = [
        incident(1.0, node="n1", steps_lost=5, seconds_lost=3.5), incident(2.0, node="n1", device="3", steps_lost=7),
        incident(3.0, node="n2", cause="hang"),
    ]  # fmt: skip
    assert expected == [(one.name, one.count, one.steps_lost, one.seconds_lost) for one in costs.groups(found, by)]


def test_hours_are_in_the_order_of_the_day():
    """Each with the interruptions of all days in it."""
    found = [incident(hour * 3600.0 + day * 86400.0 + 60.0) for day in range(2) for hour in (5, 3)]
    names = [one.name for one in costs.groups(found, "hour")]

    assert names == sorted(names)
    assert [2, 2] == [one.count for one in costs.groups(found, "hour")]


def test_without_an_interruption_it_says_so(tmp_path, capsys):
    """And an unknown run is one line."""
    path = str(tmp_path / "journal.db")
    journal = Journal(path)
    journal.record("note", "quiet", text="x")
    journal.close()

    assert 0 == command.incidents(["--journal", path])
    assert "No interruption in the journal.\n" == capsys.readouterr().out
    assert 2 == command.incidents(["other", "--journal", path])
    assert "trainvitals incidents: no run 'other' in the journal: known are 'quiet'\n" == capsys.readouterr().err


def test_several_runs_are_accounted_together(path, tmp_path):
    """Incidents in the order of their times; the times add up."""
    stories.write(tmp_path / "journal-n2.db", node="n2", ranks=2)
    one, both = Books([path]), Books([path, str(tmp_path / "journal-n2.db")])

    assert 1 == len(costs.account([one.story(RUN)]).incidents)
    assert 1 == len(costs.account([both.story(RUN)]).incidents)
