"""One rank and its orders: what becomes of those whose giver is gone, that come at once, or while it is paused."""

from __future__ import annotations

import json
import os
import stat
import threading

import pytest
from tests.helpers import wait_until

from trainvitals import orders
from trainvitals.orders import Mail, Order
from trainvitals.probe import knobs
from trainvitals.probe import orders as module
from trainvitals.probe.recorder import Recorder
from trainvitals.steer.giving import Giver, NotDoneError
from trainvitals.steer.ranks import Answer


class Obedient:
    """A rank of the run "test", and the hand that gives it orders."""

    def __init__(self, spool, known):
        self.recorder = Recorder(str(spool), {"run": "test", "rank": 0, "attempt": 0, "world_size": 1})
        self.knobs = known
        self.obedience = module.begin(self.recorder, str(spool))
        self.mail = Mail(orders.path_of(str(spool), "test"), {os.getuid()}, write=True)
        self.thread = None

    def order(self, what, at, *, decision="do", **values):
        """Give one, which is decided at once unless ``decision`` is None; return its number."""
        number = self.mail.give(Order(number=0, run="test", what=what, at=at, values=values)).number
        if decision is not None:
            self.mail.decide(number, decision)
        return number

    def step(self, number):
        """End a step, and obey."""
        self.recorder.step(number, {})
        self.obedience.look()

    def pause(self, **values):
        """Be paused behind step 2, in another thread, for a rank that is paused does not come back from a step.

        ``values`` are to be set behind the same step; return the number of that order.
        """
        number = self.order("pause", 2)
        setting = self.order("set", 2, **values) if values else 0
        self.step(1)
        self.thread = threading.Thread(target=self.step, args=(2,), daemon=True)
        self.thread.start()
        wait_until(lambda: self.said(number) == ["seen", "done"], timeout=30.0)
        return setting

    def goes_on(self):
        """Wait for the end of the pause; return whether it came."""
        self.thread.join(timeout=30.0)
        return not self.thread.is_alive()

    def said(self, number):
        """Return what it said of an order."""
        path = self.recorder.writer.path.removesuffix(".rank") + ".events"
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        return [row["state"] for row in rows if row["kind"] == "order" and row["order"] == number]


@pytest.fixture
def rank(spool, monkeypatch):
    """Give one that looks for orders every millisecond while it is paused."""
    known = knobs.Knobs()
    monkeypatch.setattr(module, "KNOBS", known)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.001)
    made = Obedient(spool, known)
    yield made
    made.recorder.finish("ok")


def test_a_paused_rank_goes_on_though_who_gave_an_order_is_gone(rank, monkeypatch):
    """A command that was killed before it decided must not hold the training for ever."""
    monkeypatch.setattr(module, "DECIDED_SECONDS", 0.05)
    rank.pause()
    lost = rank.order("resume", 2, decision=None)
    wait_until(lambda: rank.said(lost) == ["seen", "left"], timeout=30.0)

    last = rank.order("resume", 2)

    assert rank.goes_on()
    assert rank.said(last) == ["seen", "done"]


def test_a_paused_rank_that_is_told_to_stop_does_not_stay(rank):
    """It ends as one that is not paused."""
    rank.pause()
    number = rank.order("stop", 2)

    assert rank.goes_on()
    assert rank.said(number) == ["seen", "done"]
    assert rank.obedience.must_end


def test_what_is_due_with_a_pause_is_obeyed_once(rank):
    """Whether it is obeyed while the rank is held or behind it, nothing goes wrong."""
    rates = []
    rank.knobs.declare("lr", rates.append, least=None, most=None)
    number = rank.order("set", 3, lr=0.5)
    later = rank.pause(lr=0.25)
    wait_until(lambda: rank.said(later) == ["seen", "done"], timeout=30.0)
    rank.order("resume", 2)

    assert rank.goes_on()
    rank.step(3)
    assert rank.said(later) == ["seen", "done"]
    assert rank.said(number) == ["seen", "done"]
    assert rates == [0.25, 0.5]
    assert rank.recorder.state.errors == 0


def test_a_second_pause_that_was_ordered_at_once_does_not_hold_again(rank):
    """Whoever says "resume" means that the training goes on."""
    second = rank.order("pause", 3)
    rank.pause()
    rank.order("resume", 2)
    assert rank.goes_on()

    rank.step(3)

    assert rank.said(second) == ["seen", "left"]


def test_an_order_is_not_read_again_when_the_number_goes_back(rank):
    """Of two commands at once, the first may write its number last."""
    saved = []
    rank.knobs.declare_save(saved.append)
    rank.order("checkpoint", 5)
    second = rank.order("checkpoint", 5)
    rank.step(1)
    rank.mail.word[0] = second - 1
    rank.step(2)
    rank.mail.word[0] = second
    rank.step(3)
    rank.step(5)

    assert saved == [5, 5]


def test_what_root_writes_can_be_read_by_the_ranks_of_a_user(rank):
    """An order and its decision hold no secrets, and the mask of root must not hide them."""
    before = os.umask(0o077)
    try:
        number = rank.order("checkpoint", 5)
    finally:
        os.umask(before)

    for path in (f"{rank.mail.path}.{number}", f"{rank.mail.path}.{number}.go"):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o644


class Live:
    """A live rank, as a command sees it, of 1 ms steps and one that took ten seconds."""

    def __init__(self, mail, number=0, says="seen"):
        self.rank, self.owner, self.phase, self.is_alive, self.step = number, os.getuid(), "train", True, 100
        self.answers, self.given, self._mail, self._says = {}, [], mail, says

    def seconds_per_step(self):
        """Return the longest."""
        return 10.0

    def skip(self):
        """Forget."""
        self.answers.clear()

    def listen(self):
        """Answer the newest order."""
        number = self._mail.word[0]
        if number and number not in self.answers and self._says:
            self.given.append(self._mail.read(number).at)
            self.answers[number] = Answer(self._says, 100)


def test_an_order_that_came_too_late_gets_more_steps_each_time(rank, spool):
    """One long step among quick ones says nothing of the next."""
    live = Live(rank.mail, says="late")
    with pytest.raises(NotDoneError, match="too quick 6 times"):
        Giver(str(spool), "test", [live], wait=lambda _: None).give("pause", {})
    assert live.given == [102, 104, 108, 116, 132, 164]


def test_a_rank_that_answers_with_its_last_breath_is_heard(rank, spool):
    """Between the last look at what it said and at its life, it may have said "done" and ended."""
    number = rank.order("stop", 202, decision=None)

    class Dying(Live):
        def __init__(self):
            super().__init__(rank.mail, says="")

        @property
        def is_alive(self):
            self._says = "done"
            return False

        @is_alive.setter
        def is_alive(self, _):
            pass

    giver = Giver(str(spool), "test", [Dying()])

    assert giver._hear(number, {"done"}) == {0: Answer("done", 100)}


def test_a_command_that_is_broken_off_decides_against_its_order(rank, spool):
    """Ranks that are paused need not wait for it."""

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Giver(str(spool), "test", [Live(rank.mail, says="")], wait=interrupt).give("pause", {})

    assert rank.mail.decision(1) == "leave"


def test_an_order_that_is_too_long_is_refused_in_one_line(rank, spool):
    """Nothing is put up."""
    giver = Giver(str(spool), "test", [Live(rank.mail)])
    with pytest.raises(NotDoneError, match=r"^the order cannot be given: the order is too long$"):
        giver.give("set", {"name": "x" * 5000})
    assert rank.mail.word[0] == 0


def test_two_processes_of_one_number_are_no_run(rank, spool):
    """Two trainings that were started under one name are told neither."""
    with pytest.raises(NotDoneError, match="several processes are rank 0 of test: give each run a name of its own"):
        Giver(str(spool), "test", [Live(rank.mail), Live(rank.mail)])
