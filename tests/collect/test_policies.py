"""Policies: a signal that has been on for so long gives an order, once to each attempt of a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.helpers import trainer, wait_until

from trainvitals.collect.policies import Policies
from trainvitals.collect.runs import Finding
from trainvitals.config import ConfigError, PolicySettings, load
from trainvitals.detect import Verdict
from trainvitals.steer.giving import NotDoneError
from trainvitals.steer.ranks import live
from trainvitals.steer.steering import Steering


class Given:
    """Stands for the ranks: keeps the orders, and obeys none of the first ``disobedient``."""

    def __init__(self, disobedient=0):
        self.orders = []
        self._disobedient = disobedient

    def give(self, run, what, values, *, by):
        """Keep an order, and obey or not."""
        self.orders.append((run, what, values, by))
        if len(self.orders) <= self._disobedient:
            raise NotDoneError("too quick")
        return SimpleNamespace(order=SimpleNamespace(at=7))


class Rounds:
    """Rounds of one run with one rank; the finding can be on, off or information."""

    def __init__(self, given, **policy):
        self.attempt = 0
        self.obeyed = {}
        self.policies = Policies([PolicySettings(signal="stop_loss", **policy)], given)

    def look(self, now, *, ratio=1.5, severity="warning", up=True):
        """Take one round, and wait until its order was obeyed or not."""
        identity = SimpleNamespace(run="a", attempt=self.attempt)
        rank = SimpleNamespace(identity=identity, started=float(self.attempt), up=up, obeyed=self.obeyed)
        finding = Finding("stop_loss", "parameter", Verdict(ratio=ratio, severity=severity), (0,))
        self.policies.observe({"a": [rank]}, {"a": [finding]}, now)
        for watch in self.policies._watches.values():
            wait_until(lambda watch=watch: watch.work is None or watch.work.done())


def test_an_exporter_that_was_started_again_gives_no_order_twice():
    """The rank has said that it obeyed this policy in this attempt; one of another policy, or an older one, is none."""
    given = Given()
    rounds = Rounds(given, order="pause", after="10m")
    rounds.attempt, rounds.obeyed = 3, {("policy stop_loss", "pause"): 5.0}
    for now in (10.0, 700.0, 1400.0):
        rounds.look(now)
    assert given.orders == []

    rounds.attempt, rounds.obeyed = 6, {("policy stop_loss", "pause"): 5.0, ("policy plateau", "pause"): 7.0}
    for now in (2000.0, 2700.0):
        rounds.look(now)
    assert len(given.orders) == 1


def test_an_order_is_given_once_when_the_signal_has_been_on_for_long_enough(caplog):
    """It says which policy gave it, and the log says so too."""
    given = Given()
    rounds = Rounds(given, order="stop", checkpoint=True, after="10m")
    for now in (0.0, 599.0):
        rounds.look(now)
    assert given.orders == []
    for now in (600.0, 605.0, 5000.0, 9000.0):
        rounds.look(now)

    assert given.orders == [("a", "stop", {"checkpoint": True}, "policy stop_loss")]
    assert caplog.messages == [
        "policy: stop_loss has been on in a for 600 s: stop is ordered",
        "policy: a obeyed stop behind step 7",
    ]


def test_a_signal_that_goes_off_or_becomes_information_begins_anew():
    """Only what is on without a break counts."""
    given = Given()
    rounds = Rounds(given, order="stop", after=100)
    rounds.look(0.0)
    rounds.look(90.0, ratio=0.9)
    rounds.look(95.0)
    rounds.look(150.0, severity="info")
    rounds.look(160.0)
    rounds.look(259.0)
    assert given.orders == []
    rounds.look(260.0)
    assert len(given.orders) == 1


def test_each_attempt_of_a_run_gets_its_own_order():
    """A run that was started again has not obeyed yet."""
    given = Given()
    rounds = Rounds(given, order="pause", after=0)
    rounds.look(0.0)
    rounds.look(1.0)
    rounds.attempt = 1
    rounds.look(2.0)
    rounds.look(3.0)
    assert given.orders == [("a", "pause", {}, "policy stop_loss")] * 2


def test_an_order_that_is_not_obeyed_is_given_three_times_in_all():
    """No endless loop, and no order lost to one long evaluation."""
    given = Given(disobedient=9)
    rounds = Rounds(given, order="stop", after=100)
    for now in range(0, 2000, 10):
        rounds.look(float(now))
    assert len(given.orders) == 3


def test_a_run_without_a_live_rank_gets_no_order():
    """Nobody is there to obey."""
    given = Given()
    Rounds(given, order="stop", after=0).look(0.0, up=False)
    assert given.orders == []


def test_a_real_training_stops_by_policy(spool):
    """The order reaches the ranks as one that a person gave does."""
    steering = Steering([str(spool)], patience=20.0)
    script = """
        import time, trainvitals
        trainvitals.init(run="a")
        print("ready", flush=True)
        while not trainvitals.should_stop():
            time.sleep(0.01)
            trainvitals.step(loss=1.0)
    """
    with trainer(script, spool) as process:
        wait_until(lambda: [rank.step for rank in live(str(spool), "a")] > [3])
        rounds = Rounds(steering, order="stop", after=0)
        rounds.look(0.0)
        assert process.wait(20) == 0
    rounds.policies.close()
    steering.close()


def test_a_signal_that_nobody_knows_is_named():
    """One line, with what may have been meant."""
    with pytest.raises(ConfigError, match=r"^orders\.policies\.0\.signal: unknown name 'stop_los', did you mean"):
        Policies([PolicySettings(signal="stop_los", order="stop")], Given())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{signal: stop_loss, order: explode}]", "orders.policies.0.order: expected 'stop', 'pause' or 'checkpoint'"),
        ("[{signal: stop_loss}]", "orders.policies.0.order: expected a value for it"),
        ("[{signal: stop_loss, order: stop, after: soon}]", "orders.policies.0.after: expected a duration such as"),
        ("[{signal: stop_loss, order: pause, checkpoint: true}]", "orders.policies.0: expected checkpoint: true with"),
        (
            "[{signal: stop_loss, order: stop, when: now}]",
            "orders.policies.0.when: unknown key, expected one of signal",
        ),
        ("[{", 'orders.policies: expected a list such as "[{signal'),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_in_one_line(text, said):
    """The line names the place."""
    with pytest.raises(ConfigError) as refused:
        load(None, {"TRAINVITALS_ORDERS_POLICIES": text}, {})

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
