"""Odd steps of several runs on a node: what is odd at the same steps in two of them is in the data."""

from __future__ import annotations

import random

import pytest
from tests.collect.test_keeper import Node, Trainer

from trainvitals.collect.odd_steps import OddSteps
from trainvitals.detect.recurring import Odd

FINDING = "trainvitals_finding_info"


def losses(seed, odd, count=600):
    """Return quiet losses with single ones that are odd."""
    noise = random.Random(seed)
    found = [2.0 + noise.gauss(0.0, 0.01) for _ in range(count)]
    for step in odd:
        found[step - 1] += 3.0 + noise.random()
    return found


def found(scrape, run):
    """Return the finding about outliers of a run: its severity and its evidence; None where there is none."""
    for name in scrape:
        if name.startswith(FINDING) and f'run="{run}"' in name and 'signal="outlier_recurs"' in name:
            severity = name.split('severity="')[1].split('"')[0]
            return severity, name.split('evidence="')[1].split('"')[0]
    return None


@pytest.fixture
def node(tmp_path):
    """A node with the real detectors."""
    return Node(tmp_path)


def test_a_step_that_is_odd_in_two_runs_is_in_the_data(node):
    """Both say so, and name the other; it is information, for nobody needs to get up for it."""
    for seed, run in enumerate(("one", "two")):
        Trainer(node, run, run=run).steps(losses(seed, (300, 450)))
    scrape = node.scrape()

    text = "steps 300, 450 are odd in run {} too: with one order of the data, it is in the data"
    assert found(scrape, "one") == ("info", text.format("two"))
    assert found(scrape, "two") == ("info", text.format("one"))


def test_a_run_that_ended_is_remembered(node):
    """The second run comes when the first is gone."""
    first = Trainer(node, "one", run="one").steps(losses(1, (300, 450)))
    assert found(node.scrape(), "one") is None
    first.path.unlink()
    node.scrape(600.0)
    assert node.runs.ranks() == []
    Trainer(node, "two", run="two").steps(losses(2, (300, 450)))

    assert found(node.scrape(), "two") == (
        "info",
        "steps 300, 450 are odd in run one too: with one order of the data, it is in the data",
    )


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((300, 450), (310, 470)),
        ((300,), ()),
        # Many outliers meet somewhere by chance: 40 x 40 over 600 steps are 2.7, and 4 did.
        (tuple(range(140, 540, 10)), (*range(145, 505, 10), 140, 200, 300, 400)),
    ],
    ids=["elsewhere", "alone", "by chance"],
)
def test_steps_that_differ_or_coincide_by_chance_are_none(node, one, two):
    """A wrong word about the data sends somebody to look for nothing."""
    for seed, (run, odd) in enumerate((("one", one), ("two", two))):
        Trainer(node, run, run=run).steps(losses(seed, odd))
    scrape = node.scrape()

    assert found(scrape, "one") is None
    assert found(scrape, "two") is None


def test_one_run_that_is_there_twice_is_no_second_witness(node):
    """A copy of its rank file, or its log beside it, has the very same numbers."""
    for run in ("one", "copy"):
        Trainer(node, run, run=run).steps(losses(7, (300, 450)))

    assert found(node.scrape(), "one") is None


def test_among_many_runs_a_single_step_is_chance():
    """Of 64 unrelated runs with 4 outliers in 2,000 steps, hardly any is told; one that shares three steps is."""
    lucky = random.Random(5)

    def run(steps):
        return Odd({step: (lucky.random(), 2.0) for step in steps}, 2000)

    def told(runs):
        odd = OddSteps()
        odd._runs = dict(enumerate(runs))
        return sum(odd._compare(name, own) is not None for name, own in odd._runs.items())

    unrelated = [run(lucky.sample(range(2000), 4)) for _ in range(64)]
    assert told(unrelated) <= 2
    related = [*unrelated[:62], run((100, 700, 1500, 1900)), run((100, 700, 1500, 1950))]
    assert told(related) >= 2


def test_few_runs_are_remembered(node, monkeypatch):
    """The newest."""
    monkeypatch.setattr("trainvitals.collect.odd_steps._MOST_RUNS", 2)
    for seed, run in enumerate(("one", "two", "three")):
        trainer = Trainer(node, run, run=run).steps(losses(seed, (300, 450)))
        node.scrape()
        trainer.path.unlink()
        node.scrape(600.0)

    assert list(node.runs._odd._runs) == ["two", "three"]
