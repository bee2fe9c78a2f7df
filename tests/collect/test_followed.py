"""A run that is known from a log goes through the pipeline of the probe: series, detectors, states, errors."""

from __future__ import annotations

import math

import pytest

from trainvitals import detect
from trainvitals.collect.followed import FollowedLog, Rhythm, spread_evenly
from trainvitals.collect.runs import Runs
from trainvitals.follow.base import Facts, Row
from trainvitals.follow.run import FollowedRun
from trainvitals.telemetry import Event, Step

#: When the logs of these tests were written, and how late it is.
THEN = 1_700_000_000.0
NOW = THEN + 30.0


class Log:
    """A followed run into which a test writes items, and the pipeline behind it."""

    def __init__(self, name="llama"):
        self.run = FollowedRun(name, paths=("/logs/train.log",), formats=("nanogpt",))
        self.log = None
        self.runs = Runs(detect.build)

    def write(self, *items, changed=THEN):
        """Tell the next items, as one poll."""
        self.run.begin()
        self.run.take(items)
        self.run.settle(changed)
        if self.log is None:
            self.log = FollowedLog(self.run, owner=1000)
        self.log.push(self.run)

    def show(self, now=NOW, limit=1000):
        """Hand on what is new, and return the rank."""
        self.log.take(limit, now)
        self.runs.update([self.log], now)
        return self.runs.by_run()[self.run.name][0]

    def findings(self, now=NOW):
        """Return the active findings by signal."""
        found = self.runs.findings(self.runs.ranks(), now)
        return {finding.signal: finding for finding in found if finding.verdict.active}


@pytest.fixture
def log():
    """A log that nobody has written to."""
    return Log()


def error(cause="device_out_of_memory", category="resource", level=1, step=-1, **fields):
    """Return an error as the reader of errors tells it."""
    fields = {"cause": cause, "category": category, "level": level, "text": "it broke", "place": "", **fields}
    return Event(0.0, "log_error", step, fields)


def test_steps_of_a_log_are_steps_of_rank_0(log):
    """Step, loss, target and framework are those of the log, and its counters count what it told."""
    log.write(
        Facts(framework="nanogpt", target_steps=500),
        Row(7, {"loss": 2.5, "tokens": 1000.0}),
        Row(8, {"loss": 2.25, "tokens": 1000.0, "learning_rate": 0.5}),
    )

    rank = log.show()

    assert ("llama", 0, "nanogpt", 500) == (
        rank.identity.run,
        rank.identity.rank,
        rank.identity.framework,
        rank.target_steps,
    )
    assert 8 == rank.last_step.step
    assert {"loss": 2.25, "tokens": 1000.0, "learning_rate": 0.5} == rank.values
    assert {"steps": 2.0, "skipped": 0.0, "nonfinite": 0.0, "tokens": 2000.0} == rank.counters
    assert ("running", True) == (rank.state, rank.up)


def test_a_log_with_a_line_in_ten_steps_counts_ten(log):
    """Steps are optimizer steps, not lines; of the first line nobody knows what was before it."""
    log.write(Row(10, {"loss": 3.0}), Row(20, {"loss": 2.9}), Row(30, {"loss": 2.8}))

    assert 21.0 == log.show().counters["steps"]


def test_what_waits_is_told_later_and_nothing_twice(log):
    """A long log is handed on in slices, in order."""
    log.write(*(Row(number, {"loss": 1.0 + number}) for number in range(10)))

    first = log.show(limit=4)
    assert (3, 6) == (first.last_step.step, log.log.pending)
    log.show(limit=4)
    last = log.show(limit=4)
    again = log.show(limit=4)

    assert (9, 0) == (last.last_step.step, log.log.pending)
    assert 10.0 == again.counters["steps"] == last.counters["steps"]
    assert 10.0 == again.values["loss"]


def test_a_nan_in_a_log_is_a_finding(log):
    """The detectors of the probe judge the steps of a log as well."""
    log.write(*(Row(number, {"loss": 2.0}) for number in range(50)), Row(50, {"loss": math.nan}))

    rank = log.show()

    assert 1.0 == rank.counters["nonfinite"]
    assert math.isnan(rank.values["loss"])
    assert ("rank 0", 50) == (
        log.findings()["loss_nonfinite"].location,
        log.findings()["loss_nonfinite"].verdict.since_step,
    )


def test_history_is_judged_and_not_counted(log):
    """After a restart of the exporter, steps that were told before it make the same finding and no count."""
    steps = [Step(number, number, THEN + number, {"loss": 2.0}) for number in range(1, 20)]
    steps.append(Step(20, 20, THEN + 20, {"loss": math.inf}))
    log.run.history, log.run.last_step = steps, steps[-1]
    log.log = FollowedLog(log.run, owner=1000)
    log.log.push(log.run)

    rank = log.show()

    assert (0.0, 0.0) == (rank.counters["steps"], rank.counters["nonfinite"])
    assert (20, math.inf) == (rank.last_step.step, rank.values["loss"])
    assert "loss_nonfinite" in log.findings()


def test_a_step_that_goes_back_is_another_attempt(log):
    """A resumed run goes on under its name; the change is told, the curve is not a spike."""
    log.write(Facts(target_steps=1000), *(Row(number, {"loss": 300 / number}) for number in range(1, 291)))
    log.show()

    log.write(*(Row(number, {"loss": 300 / number}) for number in range(21, 25)), changed=THEN + 20)
    rank = log.show()

    assert (1, 24) == (rank.identity.attempt, rank.last_step.step)
    assert 1 == rank.changes.watch.counts["attempt"]
    assert (("attempt", "0", "1"),) == rank.changes.watch.last["attempt"].differences
    assert 294.0 == rank.counters["steps"]
    assert {} == log.findings()


def test_durations_are_those_that_the_log_tells(log):
    """Where it says how long a step took, that is the duration; one for each line."""
    log.write(
        Row(1, {"loss": 2.0, "step_seconds": 0.3}),
        Row(2, {"loss": 2.0, "step_seconds": 0.3}),
        Row(3, {"loss": 2.0, "step_seconds": 7.0}),
    )

    rank = log.show()

    assert (2, pytest.approx(7.3)) == (sum(rank.buckets), rank.bucket_sum)


def test_durations_come_from_times_that_the_log_tells(log):
    """Ten steps in five seconds are half a second each."""
    log.write(Row(10, {"loss": 2.0}, time=THEN - 10), Row(20, {"loss": 2.0}, time=THEN - 5))

    rank = log.show()

    assert (1, 0.5) == (sum(rank.buckets), rank.bucket_sum)
    assert THEN - 5 == rank.last_step.time


def test_without_times_there_are_no_durations(log):
    """When lines were read says nothing about when they were written."""
    log.write(*(Row(number, {"loss": 2.0}) for number in range(5)))

    assert 0 == sum(log.show().buckets)


def test_steps_without_times_are_spread():
    """So a finding that was over before the log was read ends."""
    steps = [Step(number, number, 100.0, {}) for number in (1, 2, 3, 4)]

    assert [97.0, 98.0, 99.0, 100.0] == [step.time for step in spread_evenly(steps, None)]
    before = Step(0, 0, 92.0, {})
    assert [94.0, 96.0, 98.0, 100.0] == [step.time for step in spread_evenly(steps, before)]
    assert [] == list(spread_evenly([], None))


# States -------------------------------------------------------------------------------------------------------------


def test_a_quiet_log_is_never_dead(log):
    """After ten minutes it is silent: it may have ended, hang, or buffer."""
    log.write(Row(1, {"loss": 2.0}))

    assert "running" == log.show(THEN + 600).state
    rank = log.show(THEN + 601)
    assert ("silent", False) == (rank.state, rank.up)


def test_a_log_that_grows_again_runs_again(log):
    """Its silence was a buffer's; from then on its pauses are expected to be as long."""
    log.write(Row(1, {"loss": 2.0}))
    assert "silent" == log.show(THEN + 1500).state

    log.write(Row(2, {"loss": 2.0}), changed=THEN + 1500)

    assert "running" == log.show(THEN + 1500).state
    assert "running" == log.show(THEN + 1500 + 5 * 1500).state
    assert "silent" == log.show(THEN + 1500 + 5 * 1500 + 1).state


def test_a_log_that_grows_without_steps_runs(log):
    """Its steps are old, its newest datum is not: what the rule of a stall goes by."""
    log.write(Row(1, {"loss": 2.0}, time=THEN - 40))
    log.show()
    log.write(changed=THEN + 3000)

    rank = log.show(THEN + 3010)

    assert "running" == rank.state
    assert THEN - 40 == rank.last_step.time
    assert THEN - 40 + 3000 == log.log.newest


def test_a_buffered_log_ages_no_step(log):
    """Where the log does not grow, the newest datum is the step, however late it is."""
    log.write(Row(1, {"loss": 2.0}, time=THEN - 40))

    log.show(THEN + 500)

    assert THEN - 40 == log.log.newest


def test_a_log_says_when_it_has_finished(log):
    """And goes on when it is resumed."""
    log.write(Row(1, {"loss": 2.0}), Facts(finished=0.0))
    assert "finished" == log.show().state

    log.write(Row(2, {"loss": 2.0}), changed=THEN + 9)
    assert "running" == log.show().state


def test_a_run_that_reached_its_target_has_finished(log):
    """Most programs say nothing at their end; silence after the last step is no trouble."""
    log.write(Facts(target_steps=3), *(Row(number, {"loss": 2.0}) for number in (0, 1, 2)))

    assert "running" == log.show(THEN + 5).state
    assert "finished" == log.show(THEN + 5000).state


def test_a_log_that_ends_with_an_error_has_failed(log):
    """After a minute without another word."""
    log.write(Row(1, {"loss": 2.0}), error())

    assert "running" == log.show(THEN + 60).state
    assert "failed" == log.show(THEN + 61).state


def test_an_error_that_the_run_survives_is_no_failure(log):
    """Steps after it tell that it goes on, also where they come in the same poll; a few may mean nothing."""
    log.write(Row(1, {"loss": 2.0}), error(), Row(2, {"loss": 2.0}))
    assert "running" == log.show(THEN + 600).state
    assert "failed" == log.show(THEN + 601).state

    log.write(*(Row(number, {"loss": 2.0}) for number in range(3, 13)))
    assert "silent" == log.show(THEN + 601).state


# Errors -------------------------------------------------------------------------------------------------------------


def test_an_error_is_counted_and_found(log):
    """By category and cause; the finding says where and which words told it."""
    log.write(Row(5, {"loss": 2.0}), error(place="rank 3, node n7", rank=3))

    rank = log.show()
    finding = log.findings()["log_error"]

    assert {("resource", "device_out_of_memory"): 1} == dict(rank.log_errors.counts)
    assert ("resource", "rank 3, node n7", 5) == (finding.category, finding.location, finding.verdict.since_step)
    assert "device out of memory: it broke" == finding.verdict.evidence


def test_the_root_is_shown_and_not_its_cascade(log):
    """What is nearest to the cause wins, whatever came first."""
    log.write(
        Row(5, {"loss": 2.0}),
        error("collective_timeout", level=3),
        error("sample_undecodable", "data", level=1, place="file a.tar"),
        error("child_failed", level=4),
    )

    log.show()
    finding = log.findings()["log_error"]

    assert ("data", "file a.tar") == (finding.category, finding.location)
    assert 3.0 == finding.verdict.ratio


def test_a_place_that_is_not_told_is_the_rank_of_the_log(log):
    """Better than nothing."""
    log.write(Row(5, {"loss": 2.0}), error())

    log.show()

    assert "rank 0" == log.findings()["log_error"].location


def test_a_notice_is_counted_only(log):
    """A retry of an allocation is no finding."""
    log.write(Row(5, {"loss": 2.0}), error("nccl_warning", level=5))

    rank = log.show()

    assert {} == log.findings()
    assert {("resource", "nccl_warning"): 1} == dict(rank.log_errors.counts)


def test_an_error_is_over_after_more_than_ten_steps(log):
    """A run that went on has survived it, also where error and steps are read at one go."""
    log.write(Row(0, {"loss": 2.0}), error(), *(Row(number, {"loss": 2.0}) for number in range(1, 11)))
    log.show()
    assert "log_error" in log.findings()

    log.write(Row(11, {"loss": 2.0}), changed=THEN + 2)
    log.show()
    assert "log_error" not in log.findings()

    log.write(error(), *(Row(number, {"loss": 2.0}) for number in range(12, 30)), changed=THEN + 3)
    log.show()
    assert "log_error" not in log.findings()


@pytest.mark.parametrize("fields", [{}, {"level": "1"}, {"level": 1}, {"level": [1], "cause": 5}, {"level": None}])
def test_an_event_that_is_no_error_of_ours_makes_no_finding(log, fields):
    """A training may report anything under this name."""
    log.write(Row(0, {"loss": 2.0}), Event(THEN, "log_error", 0, fields))

    rank = log.show()

    assert {} == log.findings()
    assert (0, 1) == (rank.broken, rank.kinds["log_error"])


# Rhythm -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pauses", "silence"),
    [((), 600.0), ((1, 2, -9), 600.0), ((200,), 1000.0), ((7, 200, 3), 1000.0), ((90_000,), 21_600.0)],
)
def test_a_silence_is_several_pauses_long(pauses, silence):
    """At least ten minutes and at most six hours."""
    rhythm = Rhythm()
    for seconds in pauses:
        rhythm.pause(float(seconds))

    assert silence == rhythm.silence
