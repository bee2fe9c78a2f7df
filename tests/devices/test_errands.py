"""Costly questions, spread over the rounds."""

from __future__ import annotations

from trainvitals.devices.errands import Errands


class Clock:
    """A clock that a test sets, and questions that take their time."""

    def __init__(self):
        self.now = 0.0
        self.asked = []

    def __call__(self):
        """Return the time."""
        return self.now

    def question(self, answer, cost=0.0):
        """Return a question with this answer that takes so long."""

        def ask():
            self.asked.append(answer)
            self.now += cost
            return answer

        return ask


def test_an_answer_is_kept_until_it_is_due():
    """The question is asked once in its time."""
    clock = Clock()
    errands = Errands(clock=clock)

    for clock.now in (0.0, 59.0, 60.0, 61.0):
        errands.begin()
        assert errands.ask("a", 60.0, clock.question("x")) == "x"

    assert clock.asked == ["x", "x"]


def test_a_round_ends_when_its_time_is_used_up():
    """What was not asked comes in the next round, and is absent until then."""
    clock = Clock()
    errands = Errands(budget=2.0, clock=clock)

    errands.begin()
    first = [errands.ask(key, 900.0, clock.question(key, 1.5)) for key in "abc"]
    errands.begin()
    second = [errands.ask(key, 900.0, clock.question(key, 1.5)) for key in "abc"]

    assert first == ["a", "b", None]
    assert second == ["a", "b", "c"]
    assert clock.asked == ["a", "b", "c"]


def test_a_question_that_takes_long_is_asked_seldom():
    """Five hundred times as long as it takes, whatever was wished."""
    clock = Clock()
    errands = Errands(clock=clock)

    for clock.now in (0.0, 400.0, 502.0):
        errands.begin()
        errands.ask("a", 60.0, clock.question("x", 1.0))

    assert clock.asked == ["x", "x"]


def test_a_question_that_fails_rests_longer_each_time():
    """And has no answer meanwhile, not even the old one."""
    clock = Clock()
    errands = Errands(clock=clock)
    answers = []

    for clock.now, answer in ((0.0, "x"), (60.0, None), (89.0, "x"), (90.0, None), (149.0, "x"), (150.0, "x")):
        errands.begin()
        answers.append(errands.ask("a", 60.0, clock.question(answer)))

    assert answers == ["x", None, None, None, None, "x"]
    assert clock.asked == ["x", None, None, "x"]


def test_an_urgent_question_is_asked_without_time_unless_one_failed():
    """So that a tool that hangs for every device does not hold up the round."""
    clock = Clock()
    errands = Errands(budget=1.0, clock=clock)

    errands.begin()
    answers = [errands.ask(key, 900.0, clock.question(key, 2.0), urgent=True) for key in "ab"]
    answers.append(errands.ask("c", 900.0, clock.question(None, 5.0), urgent=True))
    answers.append(errands.ask("d", 900.0, clock.question("d"), urgent=True))

    assert answers == ["a", "b", None, None]
    assert clock.asked == ["a", "b", None]


def test_questions_of_devices_that_are_gone_are_forgotten():
    """Memory does not grow with what comes and goes."""
    clock = Clock()
    errands = Errands(clock=clock)
    errands.begin()
    errands.ask(("gone", "x"), 900.0, clock.question("1"))

    errands.begin(lambda key: key[0] != "gone")

    assert errands.ask(("gone", "x"), 900.0, clock.question("2")) == "2"
