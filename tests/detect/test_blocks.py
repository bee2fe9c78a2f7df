"""Detectors take many steps at once, and are then what the same steps one by one would have made of them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.detect import DETECTORS
from trainvitals.telemetry import Event, Step, Steps

NAN, INF = math.nan, math.inf


class Loss(NamedTuple):
    """A loss of a stretch, and what may befall it: ``chance`` is a number from 0 to 1."""

    loss: float
    place: int
    event: int
    chance: float
    factor: float


#: What a stretch of losses looks like.
SHAPES = {
    "calm": lambda x: x.loss,
    "falling": lambda x: x.loss * (1.0 + math.exp(-x.place / 50.0)),
    "ramp": lambda x: x.loss * (1.0 + 0.001 * x.place),
    "rounded": lambda x: round(x.loss, 2),
    "bursts": lambda x: x.loss * (1.04 if (x.place // 12) % 7 == 0 else 1.0),
    "constant": lambda x: round(x.loss, 0),
    "zeros": lambda x: 0.0 if x.place >= x.event else x.loss,
    "nan": lambda x: NAN if x.place >= x.event else x.loss,
    "inf": lambda x: INF if x.place == x.event else x.loss,
    "odd": lambda x: ODD[int(x.chance * 400)] if x.chance < 0.025 else x.loss,
    "outliers": lambda x: x.loss * (1.0 + 4.0 * x.chance) if x.chance < 0.1 else x.loss,
    "spike": lambda x: x.loss * (1.0 + 1.5 * math.exp(-abs(x.place - x.event) / 12.0)),
    "jump": lambda x: x.loss * x.factor if x.place >= x.event else x.loss,
    "fall": lambda x: x.loss * 0.4 if x.place >= x.event else x.loss,
    "huge": lambda x: x.loss * 1e37,
    "negative": lambda x: x.loss - 3.0,
}
ODD = (NAN, INF, -INF, 0.0, -0.0, -1.0, 1e-9, 1e-310, 1e38, 1e300)


def losses(shape: str, count: int, level: float, numbers: random.Random) -> list[float]:
    """Return a stretch of losses of one shape."""
    at, factor, bend = numbers.randrange(count), numbers.choice((1.05, 1.3, 3.0)), SHAPES[shape]
    plain = [Loss(numbers.gauss(level, 0.01 * level), place, at, numbers.random(), factor) for place in range(count)]
    return [bend(loss) for loss in plain]


def others(count: int, numbers: random.Random) -> dict[str, list[float]]:
    """Return columns besides the loss, each of which may be missing."""
    at = numbers.randrange(count)
    rate = numbers.choice((1e-4, 3e-4, 1e-3))
    norm = numbers.choice((1.0, 1e-3))
    pace = numbers.choice((0.1, 1.0, 30.0))
    norms = [norm * math.exp(numbers.gauss(0.0, 0.2)) for _ in range(count)]
    odd = numbers.choice(("", "", "explode", "vanish", "nan", "sparse"))
    if odd == "explode":
        norms = [value * 30.0 if place >= at else value for place, value in enumerate(norms)]
    elif odd == "vanish":
        norms = [numbers.choice((0.0, 1e-9)) if place >= at else value for place, value in enumerate(norms)]
    elif odd == "nan":
        norms = [NAN if place >= at else value for place, value in enumerate(norms)]
    elif odd == "sparse":
        norms = [numbers.choice((*ODD, 20.0)) if numbers.random() < 0.1 else value for value in norms]
    jump = numbers.choice((1.0, 1.0, 2.0, 0.5, NAN))
    seconds = [
        pace * numbers.uniform(0.95, 1.1) * (3.0 if place >= at and jump == 2.0 else 1.0) for place in range(count)
    ]
    waits = numbers.choice((0.02, 0.5))
    scale = numbers.choice((1.0, 65536.0))
    halved = numbers.choice((False, False, True))
    columns = {
        "learning_rate": [rate * (jump if place >= at else 1.0) * (1.0 - 0.0001 * place) for place in range(count)],
        "grad_norm": norms,
        "loss_scale": [
            scale / (2.0 ** max(0, place - at) if halved and place - at < 12 else 1.0) for place in range(count)
        ],
        "skipped": [float(numbers.random() < 0.02 or (halved and at <= place < at + 40)) for place in range(count)],
        "step_seconds": seconds,
        "data_seconds": [value * waits * numbers.uniform(0.5, 1.5) for value in seconds],
        "tokens": [numbers.choice((4096.0, 4000.0)) for _ in range(count)],
        "samples": [32.0] * count,
        "elapsed_seconds": [pace * (place + 1) for place in range(count)],
        "epoch": [0.001 * place for place in range(count)],
        "global_batch_size": [256.0 if place < at or jump != 0.5 else 512.0 for place in range(count)],
    }
    kept = numbers.choice((0.1, 0.5, 0.9, 1.0))
    return {name: column for name, column in columns.items() if numbers.random() < kept}


def script(seed: int, shapes: list[str]) -> Iterator[Steps | Step | Event]:
    """Yield the blocks of a run, cut anywhere: one stretch for each shape, with late values and events between them."""
    numbers = random.Random(seed)
    stride = numbers.choice((1, 1, 1, 10))
    number = numbers.choice((0, 1, 480, 5000))
    count, now, level = 1, 1_700_000_000.0, numbers.choice((0.05, 3.0, 3.0, 11.0))
    for shape in shapes:
        length = numbers.choice((1, 7, 40, 300, 300, 700))
        steps_on = [numbers.choice((1, 1, 1, 3)) * stride if numbers.random() < 0.01 else stride for _ in range(length)]
        places = [number]
        for more in steps_on[1:]:
            places.append(places[-1] + more)
        pace = numbers.choice((0.0, 0.2, 1.0, 90.0))
        times = [now + pace * place for place in range(length)]
        columns = {"loss": losses(shape, length, level, numbers)} if numbers.random() < 0.95 else {}
        columns |= others(length, numbers)
        whole = Steps(places, count, times, columns)
        cuts = sorted({0, length, *(numbers.randrange(length + 1) for _ in range(numbers.choice((0, 2, 20))))})
        for begin, end in pairwise(cuts):
            yield whole[begin:end]
            if numbers.random() < 0.2:
                late = max(begin, end - numbers.randrange(1, 4))
                yield Step(places[late], count + late, times[late], {numbers.choice(("loss", "grad_norm")): level})
        number, count, now = places[-1] + stride, count + length, times[-1] + pace
        if shape in ("jump", "fall"):
            level = max(1e-3, level * numbers.choice((0.5, 1.0, 1.5)))
        yield Event(now, "evaluation", places[-1], {"name": "validation", "values": {"loss": level}})
        what = numbers.random()
        if what < 0.1:
            number, count, now = max(0, number - numbers.randrange(1, 400)), 1, now + 60.0
            yield Event(now, "restart", number)
        elif what < 0.2:
            number = max(0, number - numbers.randrange(1, 400))
        elif what < 0.25:
            count, now = 1, now - 1e6


def told(detector) -> str:
    """Return all that it says; repr is exact for numbers, and NaN is NaN."""
    return f"{detector.verdict()!r} {getattr(detector, 'held', None)}"


def take(detector, steps) -> None:
    """Hand on steps in blocks, as often as a detector stops where its signal goes on."""
    while len(steps):
        taken = detector.observe_all(steps)
        stops = getattr(detector, "held", False) or getattr(detector, "stops", False)
        assert taken is None or (taken >= 1 and (taken == len(steps) or stops))
        steps = steps[len(steps) if taken is None else taken :]


def compare(make, items, *, ask) -> set[float]:
    """Feed two detectors, one of them in blocks; return the ratios that were seen, -1 for no verdict."""
    single, block = make(), make()
    seen = set()
    for item in items:
        if isinstance(item, Event):
            for detector in (single, block):
                if hasattr(detector, "observe_event"):
                    detector.observe_event(item)
        elif isinstance(item, Step):
            single.observe(item)
            block.observe(item)
        else:
            for step in item:
                single.observe(step)
            take(block, item)
        if ask():
            assert told(block) == told(single), (type(item), getattr(item, "numbers", [None])[-1])
            verdict = single.verdict()
            seen.add(-1.0 if verdict is None else verdict.ratio)
    assert told(block) == told(single)
    return seen


IN_BLOCKS = [make for make in DETECTORS if hasattr(make, "observe_all")]


@pytest.mark.parametrize("make", IN_BLOCKS)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(sorted(SHAPES)), min_size=1, max_size=6))
def test_a_block_is_what_its_steps_are_one_by_one(make, seed, shapes):
    """Whatever happens in a run, wherever it is cut, and whoever asks between."""
    asks = random.Random(seed)
    compare(make, script(seed, shapes), ask=lambda: asks.random() < 0.5)


@pytest.mark.parametrize("make", IN_BLOCKS)
def test_a_long_calm_run_is_what_its_steps_are_one_by_one(make):
    """With all windows full, and a spike, a NaN and a drift in the middle of nothing, in blocks of 1 to 1000."""
    numbers = random.Random(11)
    calm = [2.0 + 4.0 / (1.0 + place / 300.0) + numbers.gauss(0.0, 0.02) for place in range(12_000)]
    calm[7000:7040] = [loss + 1.5 for loss in calm[7000:7040]]
    calm[8000] = NAN
    calm[9000:9004] = [9.0] * 4
    calm[10_000:10_600] = [loss + 0.0005 * place for place, loss in enumerate(calm[10_000:10_600])]
    columns = {
        "loss": calm,
        **{name: column for name, column in others(12_000, random.Random(5)).items() if name != "loss"},
    }
    whole = Steps(list(range(1, 12_001)), 1, [1.7e9 + place for place in range(12_000)], columns)
    cuts = [0]
    while cuts[-1] < 12_000:
        cuts.append(min(12_000, cuts[-1] + numbers.choice((1, 8, 16, 33, 64, 256, 1000))))
    compare(make, [whole[begin:end] for begin, end in pairwise(cuts)], ask=lambda: True)


@pytest.mark.parametrize("make", IN_BLOCKS)
def test_a_block_without_values_is_taken(make):
    """Steps that are only counted."""
    compare(make, [Steps([1, 2, 3], 1, [5.0, 6.0, 7.0], {}), Steps([4], 4, [8.0], {})], ask=lambda: True)


STOPPING = [make for make in IN_BLOCKS if getattr(make, "stops", False)]


@pytest.mark.parametrize("make", STOPPING)
def test_one_that_stops_by_itself_shows_every_verdict_of_a_signal_that_is_on(make):
    """Nothing that it says while it is held, step by step, is missed by somebody who asks only where it stops."""
    numbers = random.Random(3)
    flat = [3.0 + 6.0 * math.exp(-place / 50.0) + numbers.gauss(0.0, 0.003) for place in range(6000)]
    falling = [3.0 - 0.002 * place + numbers.gauss(0.0, 0.003) for place in range(1000)]
    losses = flat + falling
    whole = Steps(list(range(1, 7001)), 1, [1.7e9 + place for place in range(7000)], {"loss": losses})
    single, block = make(), make()
    every, seen = [], []
    for step in whole:
        before = single.held
        single.observe(step)
        if before or single.held:
            every.append(told(single))
    rest = whole
    while len(rest):
        before = block.held
        rest = rest[block.observe_all(rest) :]
        if before or block.held:
            seen.append(told(block))

    assert len(set(every)) > 10
    assert set(every) == set(seen)
    assert not block.held


def test_some_stop_by_themselves():
    """The test above has something to test."""
    assert [make.signal for make in STOPPING] == ["plateau"]
