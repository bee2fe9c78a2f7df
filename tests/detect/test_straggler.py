"""Straggler: the same rank, five windows on end, works longer than the others."""

from __future__ import annotations

import random

import pytest

from trainvitals.detect.straggler import Straggler


class Ranks:
    """Ranks in lockstep: each works, the rest of the time of a step it waits in communication."""

    def __init__(self, count: int = 4) -> None:
        self.straggler = Straggler()
        self.time = 1_700_000_000.0
        self.seconds = {rank: {"train": 0.0, "data": 0.0, "communication": 0.0} for rank in range(count)}

    def run(self, minutes: float, work: dict[int, float], *, data: dict[int, float] | None = None) -> Ranks:
        """Train so long; ``work`` is what differs from 1, ``data`` the part of it that waits for data."""
        for _ in range(int(minutes * 6)):
            self.time += 10.0
            longest = max(work.get(rank, 1.0) for rank in self.seconds)
            for rank, phases in self.seconds.items():
                own, waits = work.get(rank, 1.0), (data or {}).get(rank, 0.0)
                phases["train"] += 10.0 * (own - waits) / (longest + 0.1)
                phases["data"] += 10.0 * waits / (longest + 0.1)
                phases["communication"] += 10.0 * (longest + 0.1 - own) / (longest + 0.1)
            self.straggler.observe(self.time, {rank: dict(phases) for rank, phases in self.seconds.items()})
        return self

    @property
    def active(self) -> dict[int, str]:
        """The severities of the ranks that are found."""
        return {rank: found.severity for rank, found in self.straggler.verdicts().items() if found.active}


def test_the_rank_that_waits_least_is_found_after_ten_minutes():
    """A fifth more work: score 0.83; not before five windows."""
    ranks = Ranks().run(9.5, {2: 1.2})
    assert ranks.active == {}
    assert ranks.run(1.0, {2: 1.2}).active == {2: "warning"}
    verdict = ranks.straggler.verdicts()[2]
    assert verdict.statistics["score"] == pytest.approx(1 / 1.2)
    assert verdict.ratio == pytest.approx((1 - 1 / 1.2) / 0.1)
    assert verdict.evidence == "works 20% longer in each step than the others, computing or in the host"


def test_half_as_long_again_is_critical():
    """Score 0.67."""
    assert Ranks().run(12.0, {0: 1.5}).active == {0: "critical"}


def test_a_rank_that_waits_for_its_data_is_told_apart():
    """Its disk is the next thing to look at, not its device."""
    verdict = Ranks().run(12.0, {3: 1.3}, data={3: 0.3}).straggler.verdicts()[3]
    assert verdict.evidence == "works 30% longer in each step than the others, most of it waiting for data"
    assert verdict.action.startswith("Look at the disk")


def test_ranks_that_are_alike_are_not_stragglers():
    """One in twenty more is noise."""
    ranks = Ranks().run(30.0, {1: 1.05})
    assert ranks.active == {}
    assert set(ranks.straggler.verdicts()) == {0, 1, 2, 3}


def test_another_rank_in_each_window_is_no_straggler():
    """Lengths of sequences: whoever has the longest one."""
    ranks, numbers = Ranks(), random.Random(7)
    for _ in range(30):
        ranks.run(2.0, {numbers.randrange(4): 1.4})
        assert ranks.active == {}


def test_the_finding_ends_with_the_first_window_without():
    """The device got its clocks back."""
    assert Ranks().run(12.0, {2: 1.2}).run(4.0, {}).active == {}


def test_of_two_ranks_the_slower_one_is_found():
    """The other is all there is to compare with."""
    assert Ranks(2).run(12.0, {1: 1.3}).active == {1: "warning"}


def test_ranks_that_tell_no_communication_are_not_compared():
    """All would seem alike."""
    straggler = Straggler()
    for number in range(200):
        straggler.observe(number * 10.0, {0: {"train": number * 10.0}, 1: {"train": number * 9.0}})
    assert straggler.verdicts() == {}


def test_a_rank_that_comes_or_goes_begins_anew():
    """Windows of different ranks are not compared."""
    ranks = Ranks().run(12.0, {2: 1.2})
    del ranks.seconds[0]
    assert ranks.run(0.5, {2: 1.2}).straggler.verdicts() == {}
