"""Lines of numbers that are read as one JSON list say what each of them says."""

from __future__ import annotations

import json
import math
import random

import pytest

from trainvitals.follow.base import Row, Rows
from trainvitals.follow.columns import cells_of, objects_of
from trainvitals.follow.run import FollowedRun
from trainvitals.telemetry import Event, Steps

LINES = ['{"step": 7, "loss": 2.5, "e1.5-": -0.25}', '{"step": 8, "loss": 3e-05, "e1.5-": 4}']


def test_objects_are_columns():
    """Names keep their order, whole numbers stay whole, also where names hold what numbers are made of."""
    assert objects_of(LINES) == {"step": [7, 8], "loss": [2.5, 3e-05], "e1.5-": [-0.25, 4]}
    assert objects_of(['{"a":1,"b":2}', '{"a":3,"b":4}']) == {"a": [1, 3], "b": [2, 4]}
    assert [type(value) for value in objects_of(LINES)["e1.5-"]] == [float, int]


@pytest.mark.parametrize(
    "lines",
    [
        ['{"step": 7, "loss": 2.5}', '{"loss": 2.5, "step": 8}'],
        ['{"step": 7, "loss": 2.5}', '{"stp": 8, "loss": 2.5}'],
        ['{"step": 7, "loss": 2.5}', '{"step": 8, "lo5ss": 2.5}'],
        ['{"loss1": 7, "loss2": 2.5}', '{"loss2": 7, "loss1": 2.5}'],
        ['{"step": 7, "loss": 2.5}', '{"step": 8, "loss": NaN}'],
        ['{"step": 7, "loss": 2.5}', '{"step": 8, "loss": null}'],
        ['{"step": 7, "loss": 2.5}', '{"step": 8, "loss": "2.5"}'],
        ['{"step": 7, "loss": 2.5}', '{"step": 8, "loss": }'],
        ['{"step": 7, "loss": 2.5}', '{"step": 8, "loss": 2.5}5'],
        ['{"step": 7, "loss": 2.5}', '5{"step": 8, "loss": 2.5}'],
        ['{"step": 7, "loss": 2.5}', '{5"step": 8, "loss": 2.5}'],
        ['{"step": 7, "loss": 2.5}', '{"step"5: 8, "loss": 2.5}'],
        ['{"step": 7, "loss": 2.5}', '{"step": 8 5, "loss":2.5}'],
        ['{"step": 7, "loss": 2.5}', '{"step": 08, "loss": 2.5}'],
        ['{"step": 7, "loss": 2.5}', '{"step": 8, "loss": +2.5}'],
        ['{"step": 7, "loss": 2.5}', '{"step": 8}', '{"loss": 2.5, "step": 9, "loss": 2.5}'],
        ['{"step": 7{"loss": 2.5}', '{"step": 8{"loss": 2.5}'],
        ['{"step": 7, "loss": 2.5', '{"step": 8, "loss": 2.5'],
        ['{"step": 7, "loss": [2.5]}', '{"step": 8, "loss": [2.5]}'],
        ['{"step": 7, "loss": {"a": 1}}', '{"step": 8, "loss": {"a": 1}}'],
        ['{"a,b": 7, "c": 2}', '{"a,b": 8, "c": 3}'],
        ["7", "8"],
        ["{}", "{}"],
        ["", ""],
    ],
)
def test_other_lines_are_not_for_columns(lines):
    """Another order, another name, a number where none belongs, or what is no number: each line is looked at alone."""
    assert objects_of(lines) is None


def test_cells_are_columns():
    """Numbers are read as Python reads them, whatever parts them."""
    assert cells_of(["7,2.5,-1e-05", "8,3,0.25"], ",", 3) == [[7, 8], [2.5, 3], [-1e-05, 0.25]]
    assert cells_of(["7\t2.5", "8\t3"], "\t", 2) == [[7, 8], [2.5, 3]]
    assert cells_of(["7;2.5", "8;3"], ";", 2) == [[7, 8], [2.5, 3]]


@pytest.mark.parametrize(
    "lines",
    [
        ["7,2.5", "8,3,5"],
        ["7,2.5,1", "8"],
        ["7,2.5", "8,"],
        ["7,2.5", ",8"],
        ["7,2.5", "8, 3"],
        ["7,2.5", "8,nan"],
        ["7,2.5", "8,.5"],
        ["7,2.5", "8,1_0"],
        ["7,2.5", "8,-0"],
        ["7,2.5", "-0,8"],
        ["7,2.5", "8,007"],
        ["7,2.5", "8,[3]"],
        ["7,2.5", "8,\u0663"],
    ],
)
def test_other_cells_are_not_for_columns(lines):
    """Blanks, and numbers as only Python writes them; minus zero is a float with a sign."""
    assert cells_of(lines, ",", 2) is None


@pytest.mark.parametrize("seed", range(20))
def test_lines_with_some_characters_changed_say_what_each_says(seed):
    """Whatever is read in columns is what each line says as JSON."""
    chance = random.Random(seed)
    taken = 0
    for _ in range(300):
        lines = [json.dumps({"step": n, "e5": chance.choice((0.5, 3, -1e-7)), "lr": 1.5}) for n in range(3)]
        for _ in range(chance.randrange(3)):
            number = chance.randrange(3)
            place = chance.randrange(len(lines[number]))
            lines[number] = lines[number][:place] + chance.choice('{}",: 5e-.') + lines[number][place + 1 :]
        columns = objects_of(lines)
        if columns is not None:
            taken += 1
            rows = [json.loads(line) for line in lines]
            assert repr(rows) == repr([{name: column[n] for name, column in columns.items()} for n in range(3)])
    assert taken > 50


def taken(*pieces):
    """Return the run that was told these pieces in one poll."""
    run = FollowedRun("demo")
    run.begin()
    run.take([Row(0, {"loss": 9.0}), *pieces])
    run.settle(50.0)
    return run


def block(begin, end, **others):
    """Return rows of so many steps."""
    return Rows(list(range(begin, end)), {"loss": [n / 8 for n in range(begin, end)]} | others)


def test_blocks_that_go_on_are_one_part():
    """Columns stay columns from the parser to whoever takes the steps, over several blocks of lines."""
    run = taken(block(1, 41), block(41, 101))

    assert [type(part) for part in run.steps.parts()] == [list, Steps]
    assert [(step.step, step.count, step.values) for step in run.steps][-1] == (100, 101, {"loss": 12.5})
    assert [step.count for step in run.steps] == list(range(1, 102))


def test_late_values_come_behind_their_block():
    """Values of the last step of a block under other names are a step with its count; then the next block goes on."""
    run = taken(block(1, 11), Row(None, {"grad_norm": 0.25}), block(11, 21))

    assert [(step.step, step.count, step.values) for step in run.steps[10:13]] == [
        (10, 11, {"loss": 1.25}),
        (10, 11, {"grad_norm": 0.25}),
        (11, 12, {"loss": 1.375}),
    ]
    assert [type(part) for part in run.steps.parts()] == [list, Steps, list, Steps]


def test_blocks_with_other_names_are_parts_of_their_own():
    """A column is of one length with the numbers of its steps."""
    run = taken(block(1, 11), block(11, 21, grad_norm=[0.5] * 10))

    assert [sorted(part.columns) for part in run.steps.parts() if isinstance(part, Steps)] == [
        ["loss"],
        ["grad_norm", "loss"],
    ]


def test_a_run_that_goes_back_in_a_block_is_a_new_attempt():
    """No block goes over the place where the step fell."""
    run = taken(block(1, 101), block(20, 60, loss=[1.5] * 40))

    assert run.attempt == 1
    assert [event.kind for event in run.events] == ["restart"]
    assert run.places == [101]
    for part in run.steps.parts():
        if isinstance(part, Steps):
            assert part.numbers == sorted(set(part.numbers))


def test_an_event_knows_its_place_in_a_block():
    """A checkpoint between two blocks that are one part has the step before it, and its place."""
    run = taken(block(1, 11), Event(0.0, "checkpoint", -1, {"action": "save", "ok": True}), block(11, 21))

    assert (run.events[0].step, run.places) == (10, [11])
    assert [type(part) for part in run.steps.parts()] == [list, Steps]


def test_infinity_and_nan_in_a_block_stay():
    """What a log says is not judged by who reads it."""
    run = taken(Rows(list(range(1, 10)), {"loss": [math.nan, math.inf, *[1.0] * 7]}))

    assert [repr(step.values["loss"]) for step in run.steps[1:4]] == ["nan", "inf", "1.0"]
