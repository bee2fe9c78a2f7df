"""The time that is left, as it is scraped: of the rank that has most of it."""

from __future__ import annotations

from tests.helpers import Scrape

from trainvitals.collect.base import Sink, Tally
from trainvitals.collect.rank import Rank
from trainvitals.collect.ranks import _add_eta
from trainvitals.telemetry import Identity, Step


def rank(number, *, seconds, target=1000, state="running"):
    """Return a rank that has done 400 steps."""
    made = Rank(Identity(run="demo", rank=number), [], target_steps=target, state=state)
    for step in range(1, 401):
        made.eta.observe(Step(step, step, 1_700_000_000.0 + step * seconds, {}))
    return made


def scrape(*ranks):
    """Return what is scraped of these ranks."""
    sink = Sink(Tally(), limit=100, collector="ranks")
    _add_eta(sink, "demo", list(ranks))
    return Scrape(sink.families())


def test_the_slowest_rank_tells_the_time_that_is_left():
    """600 steps of 2 seconds; the others wait for it."""
    found = scrape(rank(0, seconds=0.5), rank(1, seconds=2.0))
    low, middle, high = (
        found[f'trainvitals_eta_seconds{{probability="{q}",run="demo"}}'] for q in ("0.1", "0.5", "0.9")
    )
    assert round(middle, 6) == 1200.0
    assert 1170.0 < low < 1200.0 < high < 1230.0


def test_without_a_target_or_a_process_there_is_none():
    """Missing is absent."""
    assert scrape(rank(0, seconds=0.5, target=None), rank(1, seconds=0.5, state="finished")) == {}
