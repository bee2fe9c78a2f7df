"""The engine that feeds detectors: order, isolation, and what is kept of signals that are over."""

from __future__ import annotations

from trainvitals.detect import Verdict
from trainvitals.detect.engine import Panel, Record, in_order, one_by_one
from trainvitals.telemetry import Event, Step, StepList, Steps


def step(number, time):
    """Return a step with a number and a time."""
    return Step(number, number, time, {"loss": 2.0})


def evaluation(number, time):
    """Return an evaluation at a step."""
    return Event(time, "evaluation", number, {"name": "validation", "values": {"loss": 3.0}})


class Deaf:
    """A detector without observe_event; it remembers the steps."""

    signal, category, needs = "deaf", "parameter", "a step"

    def __init__(self):
        self.heard = []

    def observe(self, item):
        """Remember a step."""
        self.heard.append(item.step)

    def verdict(self):
        """Cannot say."""


class Listener(Deaf):
    """It takes events as well, and is active at the steps that it is told."""

    signal = "listener"

    def __init__(self, active=(), severity="warning"):
        super().__init__()
        self.active, self.severity = active, severity

    def observe_event(self, event):
        """Remember an event, as minus its step."""
        self.heard.append(-event.step)

    def verdict(self):
        """Return a ratio of the step where it is active, from the second step on."""
        if len(self.heard) < 2:
            return None
        last = self.heard[-1]
        is_active = last in self.active
        return Verdict(ratio=float(abs(last) if is_active else 0), since_step=last, severity=self.severity)


class Broken(Listener):
    """It fails at everything."""

    signal = "broken"

    def observe(self, item):
        """Fail."""
        raise ValueError(item)

    observe_event = observe

    def verdict(self):
        """Fail."""
        raise ValueError


def test_steps_come_before_events_of_the_same_time():
    """Steps and events are merged by time."""
    steps = [step(1, 10.0), step(2, 20.0), step(3, 30.0)]
    events = [evaluation(0, 5.0), evaluation(2, 20.0), evaluation(9, 99.0)]

    assert [0, 1, 2, 2, 3, 9] == [item.step for item in in_order(steps, events)]


def test_known_places_decide_where_times_do_not():
    """Where a log tells no times, the place of an event among the steps is known otherwise."""
    steps = [step(number, 50.0) for number in (1, 2, 3)]
    events = [evaluation(11, 50.0), evaluation(12, 50.0), evaluation(13, 50.0)]

    assert [11, 1, 2, 12, 3, 13] == [item.step for item in in_order(steps, events, [0, 2, 3])]


def test_places_that_make_no_sense_lose_nothing():
    """A place beyond the steps, or one that goes back, still gives each step and event once."""
    steps, events = [step(1, 1.0), step(2, 2.0)], [evaluation(11, 1.0), evaluation(12, 1.0), evaluation(13, 9.0)]

    assert [1, 2, 11, 12, 13] == [item.step for item in in_order(steps, events, [7, -3])]


def test_a_detector_that_fails_costs_itself_only():
    """The others get the step, and each failure is told."""
    deaf, listener, told = Deaf(), Listener(), []
    panel = Panel([Broken(), deaf, listener], told.append)

    panel.observe(step(1, 1.0))
    panel.observe_event(evaluation(2, 2.0))
    verdicts = [(detector.signal, panel.verdict(detector) is None) for detector in panel.detectors]

    assert ([1], [1, -2]) == (deaf.heard, listener.heard)
    assert [("broken", True), ("deaf", True), ("listener", False)] == verdicts
    assert ["cannot take", "cannot take", "gives no verdict"] == [
        next(words for words in ("cannot take", "gives no verdict") if words in message) for message in told
    ]


def test_what_is_over_is_kept():
    """A signal that was on in the middle is in the outcome, with the verdict of that time."""
    panel = Panel([Deaf(), Listener(active=(8, 16))], [].append)
    record = Record(panel)

    record.feed(in_order([step(number, float(number)) for number in range(1, 30)], []))
    deaf, listener = record.outcomes()

    assert (None, None, False, "a step") == (deaf.last, deaf.worst, deaf.judged, deaf.needs)
    assert (0.0, 16.0, True) == (listener.last.ratio, listener.worst.ratio, listener.judged)


def test_what_is_held_is_seen_in_a_long_run():
    """Between two looks of a long run, a detector that holds its signal for eight steps is asked."""

    class Holder(Listener):
        @property
        def held(self):
            """Whether one of the last eight steps was odd."""
            return bool(set(self.active) & set(self.heard[-8:]))

        def verdict(self):
            """Say so."""
            return Verdict(ratio=float(self.held), since_step=19_001)

    record = Record(Panel([Holder(active=(19_001,))], [].append))

    record.feed(step(number, float(number)) for number in range(1, 20_000))
    (outcome,) = record.outcomes()

    assert (0.0, 1.0) == (outcome.last.ratio, outcome.worst.ratio)


def test_events_come_between_the_steps_of_a_block():
    """Order is kept where steps are handed on in blocks, over several feeds."""
    listener = Listener()
    record = Record(Panel([Deaf(), listener], [].append))

    record.feed([step(1, 1.0), step(2, 2.0), evaluation(2, 2.0), step(3, 3.0)])
    record.feed([step(4, 4.0), evaluation(4, 4.0)])

    assert [1, 2, -2, 3, 4, -4] == listener.heard


def test_the_gravest_verdict_wins():
    """A critical verdict is not replaced by a larger ratio that is a warning."""
    listener = Listener(active=(-3, -8), severity="critical")
    record = Record(Panel([listener], [].append))

    record.feed([step(2, 1.0), evaluation(3, 2.0)])
    listener.severity = "warning"
    record.feed([evaluation(8, 3.0), step(9, 4.0)])

    assert "critical" == record.outcomes()[0].worst.severity
    assert -3 == record.outcomes()[0].worst.since_step


def test_each_time_that_a_signal_was_on_is_an_episode():
    """A detector that is held for two times says after which steps each was known and over, within eight steps."""

    class Holder(Listener):
        @property
        def held(self):
            """Whether one of the last four steps was odd."""
            return bool(set(self.active) & set(self.heard[-4:]))

        def verdict(self):
            """Grow worse after the second odd step of the two."""
            worse = 1_101 in self.heard
            return Verdict(ratio=float(self.held), severity="critical" if worse else "warning", evidence=f"{worse}")

    holder = Holder(active=(301, 1_097, 1_101))
    record = Record(Panel([holder], [].append))

    record.feed(step(number, float(number)) for number in range(1, 3_000))
    first, second = record.outcomes()[0].episodes

    assert ({"warning": 304}, 312) == (first.reached, first.until)
    assert ({"critical": 1_104}, 1_112, "True") == (second.reached, second.until, second.worst.evidence)
    assert 0 == record.outcomes()[0].more


def test_what_goes_on_at_the_end_has_no_end():
    """An episode that is still on has no step at which it was over; with an escalation it has two severities."""
    listener = Listener(active=(-3, 5), severity="warning")
    record = Record(Panel([listener], [].append))

    record.feed([step(3, 1.0), evaluation(3, 2.0)])
    listener.severity = "critical"
    record.feed([step(5, 3.0)])
    (episode,) = record.outcomes()[0].episodes

    assert ({"warning": 3, "critical": 5}, None) == (episode.reached, episode.until)


def test_episodes_are_bounded():
    """A signal that comes and goes without end is counted, and its first times are remembered."""
    listener = Listener(active=tuple(range(-2_000, 0, 2)))
    record = Record(Panel([listener], [].append))

    for number in range(1, 2_001):
        record.feed([evaluation(number, float(number))])
    outcome = record.outcomes()[0]

    assert (256, 744) == (len(outcome.episodes), outcome.more)


def steps_in_columns(first, last):
    """Return steps in columns, each at ten times its number."""
    numbers = list(range(first, last + 1))
    times = [10.0 * number for number in numbers]
    return Steps(numbers, first, times, {"loss": [number / 8 for number in numbers]})


def test_a_block_is_split_by_events_only():
    """Steps in columns come together as far as no event lies between; the order is that of each alone."""
    steps = StepList([steps_in_columns(1, 20), [step(20, 205.0)], steps_in_columns(21, 30)])
    events = [evaluation(101, 55.0), evaluation(102, 204.0), evaluation(103, 999.0)]

    for places in (None, [5, 20, 31]):
        items = list(in_order(steps, events, places))
        single = list(one_by_one(items))

        assert [len(item) if isinstance(item, Steps) else item.step for item in items] == [5, 101, 15, 102, 20, 10, 103]
        assert single == list(in_order(list(steps), events, places))


class Blocks(Listener):
    """Remembers the steps of blocks, and how long these were."""

    signal = "blocks"

    def __init__(self):
        super().__init__()
        self.lengths = []

    def observe_all(self, steps):
        """Remember several."""
        self.heard += steps.numbers
        self.lengths.append(len(steps))


def test_blocks_are_cut_where_all_are_asked():
    """A detector that takes blocks gets them as columns, cut at every eighth point, and in order with the rest."""
    blocks, listener = Blocks(), Listener(active=(8, 16))
    record = Record(Panel([blocks, listener], [].append))
    steps = StepList([[step(1, 10.0), step(2, 20.0)], steps_in_columns(3, 13), [step(14, 140.0)]])

    record.feed(in_order(steps, [evaluation(5, 55.0)], [5]))
    outcomes = record.outcomes()

    assert blocks.heard == listener.heard == [1, 2, 3, 4, 5, -5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert blocks.lengths == [3, 8]
    assert [outcome.worst is not None for outcome in outcomes] == [False, False]


def test_few_steps_at_a_time_are_asked_about_as_well():
    """Blocks that are shorter than what is taken between two looks do not put a look off."""
    listener = Listener(active=(8, 16))
    record = Record(Panel([listener], [].append))

    for begin in range(1, 31, 4):
        record.feed(in_order(StepList([steps_in_columns(begin, begin + 3)]), []))

    assert record.outcomes()[0].worst.ratio == 16.0
