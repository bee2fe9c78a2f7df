"""What a detector knows goes into JSON and back: it behaves as one that was never interrupted."""

from __future__ import annotations

import copy
import json
import math
import random
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest

from trainvitals import detect
from trainvitals.detect import state
from trainvitals.detect.drift import DriftSettings, LossDrift
from trainvitals.detect.eta import Eta
from trainvitals.detect.shares import PHASES
from trainvitals.detect.spike import LossSpike
from trainvitals.detect.stall import Stall
from trainvitals.detect.window import Window
from trainvitals.telemetry import Event, Step


def course(seed, length=1500):
    """Return steps and events of a training: spikes, drifts, restarts, late values, evaluations, phases, NaN."""
    chance = random.Random(seed)
    items = []
    number = count = 0
    level, rate, scale = chance.choice([9.0, 3.0, 0.7]), 1e-3, 65536.0
    slope = chance.choice([0.0, 0.002, 0.01])
    now, seconds = 1_700_000_000.0, chance.choice([0.5, 30.0])
    phases = dict.fromkeys(("train", "data", "communication", "device"), 0.0)
    for _ in range(length):
        number, count, now = number + 1, count + 1, now + seconds * chance.uniform(0.9, 1.3)
        level = max(0.1, level * (1.0 - slope * chance.random()))
        odd = chance.choice([0.0] * 40 + [level, 5.0 * level])
        values = {
            "loss": chance.gauss(level, 0.01 * level) + odd,
            "grad_norm": chance.lognormvariate(0.0, 0.3) * (20.0 if odd else 1.0),
            "learning_rate": rate,
            "loss_scale": scale,
            "step_seconds": seconds,
            "data_seconds": seconds * chance.random() * 0.6,
            "tokens": 1000.0,
        }
        if chance.random() < 0.01:
            values["loss"] = chance.choice([math.nan, math.inf, -math.inf])
        if chance.random() < 0.02:
            scale = max(1.0, scale / 2)
            values["skipped"] = 1.0
        if chance.random() < 0.005:
            rate *= chance.choice([0.1, 2.0])
        if chance.random() < 0.05:
            late = {"loss": values.pop("loss")}
            items += [Step(number, count, now, values), Step(number, count, now, late)]
        else:
            items.append(Step(number, count, now, values))
        phases = {name: seconds_ + seconds * chance.random() for name, seconds_ in phases.items()}
        if chance.random() < 0.1:
            items.append(Event(now, PHASES, number, dict(phases)))
        if chance.random() < 0.05:
            loss = level * (1.0 + 0.3 * chance.random())
            results = {"loss": loss, "accuracy": 1.0 / (1.0 + loss), "perplexity": math.exp(min(loss, 20.0))}
            items.append(Event(now, "evaluation", number, {"name": "validation", "values": results}))
            items.append(Event(now, "evaluation", number, {"name": "mmlu", "values": {"acc": chance.random()}}))
        if chance.random() < 0.002:
            back = max(0, number - chance.randrange(50))
            items.append(Event(now, "restart", back + 1, {"attempt": 1, "previous_step": number}))
            number, count = back, chance.choice([0, count])
    return items


def feed(part, items):
    """Hand on items, and return what is said in between."""
    said = []
    for index, item in enumerate(items):
        if isinstance(item, Step):
            part.observe(item)
        elif hasattr(part, "observe_event"):
            part.observe_event(item)
        if index % 7 == 0:
            said.append(answer(part))
    return [*said, answer(part)]


def answer(part):
    """Return what a part says, comparable also where it is NaN."""
    if isinstance(part, Eta):
        return repr(part.remaining(1_000_000))
    if isinstance(part, Stall):
        return repr(part.limits("train"))
    return repr(part.verdict())


def through_json(part, fresh):
    """Return a fresh part with the state of another."""
    document, failed = state.save({"part": part})
    assert failed == []
    assert state.restore(json.loads(json.dumps(document, allow_nan=False)), {"part": fresh}) == []
    return fresh


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("make", [*detect.DETECTORS, Eta, Stall])
def test_what_is_restored_behaves_as_what_was_never_interrupted(make, seed):
    """Half of a training, a restart of the exporter, the rest: each answer is that to the whole."""
    items = course(seed)
    half = random.Random(seed).randrange(10, len(items))
    whole = make()
    feed(whole, items[:half])
    expected = feed(whole, items[half:])

    first = make()
    feed(first, items[:half])
    assert feed(through_json(first, make()), items[half:]) == expected


@pytest.mark.parametrize("make", detect.DETECTORS)
def test_a_state_that_was_restored_is_saved_as_the_same(make):
    """Nothing is lost or added by a restart that sees no step."""
    part = make()
    feed(part, course(11, 700))
    saved, _ = state.save({"part": part})
    again, _ = state.save({"part": through_json(part, make())})
    assert json.dumps(again) == json.dumps(saved)


def test_what_several_share_is_written_once():
    """The last steps are kept by each detector that compares evaluations with them."""
    steps = [Step(number, number, float(number), {"loss": 1.0}) for number in range(1, 50)]
    left, right = Holder(), Holder()
    left.items += steps
    right.items += steps
    together, _ = state.save({"left": left, "right": right}, [Holder])
    alone, _ = state.save({"left": left}, [Holder])
    assert len(together["nodes"]) == len(alone["nodes"]) + 2
    parts = {"left": Holder(), "right": Holder()}
    assert state.restore(together, parts, [Holder]) == []
    assert parts["left"].items == steps
    assert parts["left"].items[0] is parts["right"].items[0]


@dataclass
class Holder:
    """Holds what it is given."""

    items: list = field(default_factory=list)


@dataclass
class Other:
    """Another class, which nobody told of."""

    items: list = field(default_factory=list)


def test_each_kind_of_value_comes_back_as_what_it_was():
    """Numbers that JSON does not know, and containers that it does not know, among them."""
    kept = [
        1,
        -0.0,
        True,
        None,
        "text",
        10**30,
        0.1,
        math.inf,
        -math.inf,
        (1, (2.5, "x")),
        {1: "one", (2, 3): [4]},
        {"a", "b"},
        frozenset({1}),
        deque([1.0, 2.0], maxlen=3),
        deque(),
        Counter({"a": 2}),
        b"\x00\xff",
        Event(1.5, "evaluation", -1, {"values": {"loss": math.inf}}),
    ]
    holder = Holder(list(kept))
    document, failed = state.save({"it": holder}, [Holder])
    fresh = Holder()
    assert failed == []
    assert state.restore(json.loads(json.dumps(document, allow_nan=False)), {"it": fresh}, [Holder]) == []
    assert fresh.items == kept
    assert [type(item) for item in fresh.items] == [type(item) for item in kept]
    assert math.copysign(1.0, fresh.items[1]) == -1.0
    assert fresh.items[13].maxlen == 3
    holder.items = [math.nan]
    assert state.restore(state.save({"it": holder}, [Holder])[0], {"it": fresh}, [Holder]) == []
    assert math.isnan(fresh.items[0])


def test_a_cycle_and_a_shared_list_come_back():
    """What is one object stays one."""
    shared = [1.0]
    holder = Holder([shared, shared])
    holder.items.append(holder)
    fresh = Holder()
    assert state.restore(state.save({"it": holder}, [Holder])[0], {"it": fresh}, [Holder]) == []
    assert fresh.items[0] is fresh.items[1]
    assert fresh.items[2] is fresh


def test_what_has_no_state_costs_itself_alone():
    """An object of a class that is not known, among detectors."""
    spike, odd = LossSpike(), Holder([Other()])
    feed(spike, course(1, 300))
    document, failed = state.save({"odd": odd, "spike": spike}, [Holder])
    assert failed == ["odd"]
    assert document["parts"].keys() == {"spike"}
    fresh = {"odd": Holder(), "spike": LossSpike()}
    assert state.restore(document, fresh, [Holder]) == ["odd"]
    assert answer(fresh["spike"]) == answer(spike)


def test_a_state_of_another_version_is_refused():
    """As is what is no state at all."""
    document, _ = state.save({"spike": LossSpike()})
    for wrong in ({**document, "version": "0.0.1"}, {}, None, [], {**document, "nodes": 3}, {**document, "parts": []}):
        assert state.restore(wrong, {"spike": LossSpike()}) == ["spike"]
    assert state.restore(document, {"spike": LossSpike()}) == []


def test_a_state_with_other_attributes_is_refused():
    """The class has another shape since."""
    document, _ = state.save({"spike": LossSpike(), "eta": Eta()})
    text = json.dumps(document).replace('"_worst"', '"_worse"')
    assert state.restore(json.loads(text), {"spike": LossSpike(), "eta": Eta()}) == ["spike"]


def test_a_state_with_other_thresholds_is_refused():
    """What was measured by others does not fit; the thresholds of now stay."""
    document, _ = state.save({"drift": LossDrift(DriftSettings(errors=7.0))})
    assert state.restore(document, {"drift": LossDrift()}) == ["drift"]
    assert state.restore(document, {"drift": LossDrift(DriftSettings(errors=7.0))}) == []


def test_a_state_names_no_class_of_others():
    """Neither a function, nor a module, nor a class of the standard library is made of it."""
    document, _ = state.save({"eta": Eta()})
    for name in ("os.system", "subprocess.Popen", "state.sys", "spike.middle", "base.Protocol", "nothing.Eta", "Eta"):
        wrong = copy.deepcopy(document)
        wrong["classes"][0][0] = name
        assert state.restore(wrong, {"eta": Eta()}) == ["eta"]


def test_damage_is_refused_or_harmless():
    """Two thousand states with one value changed: restoring never raises."""
    chance = random.Random(3)
    detectors = detect.build()
    for detector in detectors:
        feed(detector, course(5, 200))
    text = json.dumps(state.save({detector.signal: detector for detector in detectors})[0])
    for _ in range(150):
        document = json.loads(text)
        for _ in range(5):
            node = chance.choice(document["nodes"])
            node[chance.randrange(len(node))] = chance.choice([None, -1, [0], [10**9], ["x"], "q", {}, [], 1.5, [[0]]])
        state.restore(document, {detector.signal: detector for detector in detect.build()})


def test_a_state_is_bounded(monkeypatch):
    """One that grows without end is not saved."""
    monkeypatch.setattr(state, "MAX_NODES", 100)
    window = Window(1000)
    holder = Holder([(float(index),) for index in range(200)])
    assert state.save({"window": window, "holder": holder}, [Holder])[1] == ["holder"]
