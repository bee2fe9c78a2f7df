"""What changed, since which step: jumps and new levels are named, smooth courses are not, and attempts are compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping

import pytest
from tests.helpers import Node, run_trainer

from trainvitals import rankfile


class Attempt:
    """One rank file and its events, written here."""

    def __init__(self, spool, number=0, **identity):
        self.path = spool / f"a{number}.rank"
        self.writer = rankfile.Writer(str(self.path), {"run": "test", "rank": 0, "attempt": number, **identity})
        self.records = self.count = 0

    def steps(self, values: Iterable[Mapping[str, float]], *, first: int = 1, samples: float = 0.0) -> Attempt:
        """Report steps, with so many samples each."""
        writer, names = self.writer, self.writer.names
        for number, named in enumerate(values, first):
            names += [name for name in named if name not in names]
            self.records, self.count = self.records + 1, self.count + 1
            now = writer.state.heartbeat + 0.01 * self.count
            indexed = {names.index(name): value for name, value in named.items()}
            writer.write_record(self.records, self.count, number, now, indexed)
            writer.state.count, writer.state.step, writer.state.records = self.count, number, self.records
            writer.state.samples += samples
        writer.write_text()
        writer.write_state()
        return self

    def event(self, kind, *, step=-1, time=1_800_000_000.5, **fields):
        """Append an event."""
        with self.path.with_suffix(".events").open("a") as file:
            file.write(json.dumps({"kind": kind, "step": step, "time": time, **fields}) + "\n")
        return self

    def lineage(self, subject, hashed, values=None, **more):
        """Append what the run is made of."""
        told = {"subject": subject, "hash": hashed}
        return self.event("lineage", **told, **more) if values is None else self.event("lineage", values=values, **told)


def rates(*values):
    """Return steps with these learning rates."""
    return [{"learning_rate": value} for value in values]


def series(scrape, name):
    """Return a family of the run, by its labels without the run."""
    start = f"trainvitals_{name}{{"
    return {
        tuple(
            part.split("=", 1)[1].strip('"') for part in key[len(start) : -1].split(",") if not part.startswith("run=")
        ): value
        for key, value in scrape.items()
        if key.startswith(start)
    }


def infos(scrape):
    """Return kind, name, old and new of what changed last."""
    return set(series(scrape, "last_change_info"))


def changed(spool, steps):
    """Return how many changes of each kind a run of these steps has."""
    attempt = Attempt(spool).steps(steps)
    found = series(Node(spool).scrape(), "changes_total")
    attempt.writer.close()
    return {kind: count for (kind,), count in found.items()}


COSINE = [0.001 * (1 + math.cos(math.pi * step / 1000)) / 2 for step in range(1001)]


@pytest.mark.parametrize(
    "curve",
    [
        pytest.param([1e-3] * 50, id="constant"),
        pytest.param([step * 1e-6 for step in range(100)], id="warm-up"),
        pytest.param([step * 1e-6 for step in range(1, 400, 10)], id="warm-up, each tenth step"),
        pytest.param([*(step * 1e-5 for step in range(100)), *COSINE], id="warm-up and cosine"),
        pytest.param([1e-3 * (1 - step / 20) for step in range(21)], id="short linear decay to 0"),
        pytest.param([1e-3 * 0.9**step for step in range(100)], id="exponential"),
        pytest.param([1e-3, math.nan, math.inf, -1.0, 1e-3], id="nonsense"),
    ],
)
def test_a_smooth_learning_rate_is_no_change(spool, curve):
    """Whatever the schedule, as long as it goes its way."""
    assert changed(spool, rates(*curve)) == {}


@pytest.mark.parametrize(
    ("curve", "jumps"),
    [
        pytest.param([1e-3] * 10 + [1e-4] * 10, 1, id="step decay"),
        pytest.param([1e-3] * 10 + [5e-4] * 10 + [2.5e-4] * 10, 2, id="halved twice"),
        pytest.param([*COSINE, *COSINE], 1, id="cosine restart from 0"),
        pytest.param([1e-4] * 10 + [1e-3] * 10, 1, id="raised by hand"),
        pytest.param([1e-4, 1e-3] * 20, 1, id="two optimizers by turns"),
    ],
)
def test_a_jump_of_the_learning_rate_is_named(spool, curve, jumps):
    """Steps of a schedule, restarts, and what somebody set."""
    steps = rates(1e-4, 1e-4, *curve) if jumps == 1 and curve[0] == 1e-4 else rates(*curve)
    assert changed(spool, steps) == {"learning_rate": jumps}


def test_a_change_says_since_which_step_from_what_to_what(spool):
    """The step, the time and the numbers."""
    Attempt(spool).steps(rates(*[1e-3] * 10, *[1e-4] * 10), first=100)
    scrape = Node(spool).scrape()
    moment = series(scrape, "last_change_timestamp_seconds")[("learning_rate",)]

    assert infos(scrape) == {("learning_rate", "learning_rate", "0.0001", "0.001")}
    assert series(scrape, "last_change_step") == {("learning_rate",): 110.0}
    assert 0.0 < scrape['trainvitals_last_step_timestamp_seconds{rank="0",run="test"}'] - moment < 0.2


def test_a_loss_scale_that_falls_is_a_change(spool):
    """It doubles by itself every some thousand steps, which is none."""
    steps = [{"loss_scale": value} for value in (1024.0, 2048.0, 2048.0, 1024.0, 512.0)]

    assert changed(spool, steps) == {"loss_scale": 2.0}


def test_another_batch_size_is_found_in_the_samples(spool):
    """As the mean of two windows that agree; a smaller last batch of an epoch is none."""
    attempt, node = Attempt(spool), Node(spool)
    loss = [{"loss": 1.0}]
    attempt.steps(loss * 32, samples=32.0)
    node.scrape()
    attempt.steps(loss * 31, first=33, samples=32.0).steps(loss, first=64, samples=8.0)
    node.scrape()
    attempt.steps(loss * 8, first=65, samples=32.0).steps(loss * 24, first=73, samples=64.0)
    assert not infos(node.scrape())
    attempt.steps(loss * 32, first=97, samples=64.0)
    node.scrape()
    attempt.steps(loss * 32, first=129, samples=64.0)
    scrape = node.scrape()

    assert infos(scrape) == {("batch_size", "batch_size", "64", "31.25")}
    assert series(scrape, "last_change_step") == {("batch_size",): 65.0}


def test_attempts_are_compared(spool):
    """World size, learning rate and lineage of the new one with the old one; what is equal is no change."""
    config = {"lr": "0.001", "data.path": "/a", "gone": "x"}
    old = Attempt(spool, 0, world_size=8).lineage("config", "1a", config).lineage("code", "2a", {"commit": "abc"})
    old.lineage("packages", "3a", {"torch": "2.9", "peft": "1"}).steps(rates(1e-3, 1e-3, 1e-3), first=498)
    old.writer.close()
    new = Attempt(spool, 1, world_size=6).lineage("config", "1b", {"lr": "0.003", "data.path": "/a", "new": "y"})
    new.lineage("code", "2a", {"commit": "abc"}).lineage("packages", "3b", {"torch": "2.13", "trl": "2"})
    new.steps(rates(3e-3, 3e-3), first=451)
    scrape = Node(spool).scrape()
    counts = series(scrape, "changes_total")

    assert infos(scrape) == {
        ("attempt", "attempt", "1", "0"),
        ("world_size", "world_size", "6", "8"),
        ("learning_rate", "learning_rate", "0.003", "0.001"),
        ("config", "lr", "0.003", "0.001"),
        ("config", "gone", "", "x"),
        ("config", "new", "y", ""),
        ("packages", "torch", "2.13", "2.9"),
    }
    assert counts == dict.fromkeys((("attempt",), ("world_size",), ("learning_rate",), ("config",), ("packages",)), 1.0)
    assert series(scrape, "last_change_step")[("config",)] == 500.0
    assert set(series(scrape, "lineage_info")) == {("1b", "config"), ("2a", "code"), ("3b", "packages")}
    new.writer.close()


def test_a_rank_that_tells_hashes_only_is_compared_by_them(spool):
    """On a node without rank 0 the change is seen, and what it is on the other."""
    old = Attempt(spool, 0).lineage("code", "aaa").steps(rates(1.0))
    old.writer.close()
    Attempt(spool, 1).lineage("code", "bbb").steps(rates(1.0))

    assert ("code", "code", "bbb", "aaa") in infos(Node(spool).scrape())


def test_what_the_program_reports_is_a_change(spool):
    """``trainvitals.event("change", ...)`` with name, old and new."""
    Attempt(spool).event("change", step=70, name="mixture", old="a:1", new="a:2").steps(rates(1.0))
    scrape = Node(spool).scrape()

    assert infos(scrape) == {("reported", "mixture", "a:2", "a:1")}
    assert series(scrape, "last_change_step") == {("reported",): 70.0}


def test_odd_lineages_cost_themselves(spool):
    """Wrong types, unknown subjects, tables without end: the rank keeps its series, and labels are bounded."""
    attempt = Attempt(spool)
    for odd in (None, 5, [], {"a": 1}, {str(index): "x" * 300 for index in range(40)}):
        attempt.lineage("config", "1", odd).lineage("config", odd, odd).lineage(odd, "2", odd).lineage("other", "3", {})
    attempt.event("change", name={"a": []}, old=None).event("change").lineage("config", "9", {"1": "y" * 4000})
    scrape = Node(spool).scrape()

    assert 'trainvitals_rank_up{rank="0",run="test"}' in scrape
    assert scrape["trainvitals_records_invalid_total"] == 0.0
    assert len(infos(scrape)) <= 12
    assert all(len(part) <= 64 for labels in infos(scrape) for part in labels)


def test_a_real_run_and_its_restart(spool):
    """From the call of the program to the series: another configuration in the second attempt."""
    script = """
        import trainvitals

        trainvitals.init(config={"optimizer": {"lr": 0.5, "api_key": "k"}})
        for number in range(20):
            trainvitals.step(number, loss=1.0)
    """
    node = Node(spool)
    run_trainer(script, spool)
    node.scrape()
    run_trainer(script.replace("0.5", "0.25"), spool, TRAINVITALS_ATTEMPT="1")
    scrape = node.scrape()

    assert {("config", "optimizer.lr", "0.25", "0.5"), ("attempt", "attempt", "1", "0")} <= infos(scrape)
    assert {subject for _, subject in series(scrape, "lineage_info")} >= {"config", "packages", "platform"}
