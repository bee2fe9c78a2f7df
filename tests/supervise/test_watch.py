"""What ranks tell: steps, onsets, silence, and which of them is to blame."""

from __future__ import annotations

import pytest

from trainvitals import rankfile
from trainvitals.probe.recorder import Recorder
from trainvitals.supervise.watch import Ranks, suspect


class Clock:
    """Wall time that stands until it is moved."""

    def __init__(self, now):
        self.now = now

    def __call__(self):
        """Return it."""
        return self.now


@pytest.fixture
def rank(spool, monkeypatch):
    """Make recorders; they end with the test.  A process does not see its own locks."""
    monkeypatch.setattr(rankfile.Reader, "writer", lambda _: 7)
    made = []

    def make(number=0, *, run="test", attempt=0, world=2):
        identity = {"run": run, "attempt": attempt, "rank": number, "local_rank": number, "world_size": world, "pid": 7}
        made.append(Recorder(str(spool), identity))
        return made[-1]

    yield make
    for recorder in made:
        recorder.finish("ok")


def looked_at(spool, **more):
    """Return the ranks of the run after one look."""
    ranks = Ranks(str(spool), "test", 0, **more)
    ranks.poll()
    return ranks


def test_only_the_ranks_of_this_attempt(rank, spool):
    """Another run, another attempt, an older start and a foreign file are none of ours."""
    rank(0).step(3, {"loss": 1.0})
    rank(1, run="other").step(9, {})
    rank(1, attempt=1).step(9, {})
    (spool / "foreign.rank").write_bytes(b"nonsense")

    ranks = looked_at(spool)

    assert ([one.number for one in ranks], ranks.step()) == ([0], 3)
    assert list(looked_at(spool, since=9e9)) == []


def test_a_spool_that_is_not_there():
    """It may come later."""
    assert list(looked_at("/nowhere")) == []


def test_the_onset_of_losses_that_are_no_numbers(rank, spool):
    """Three in a row count; one that was survived, and what a scaler skipped, do not."""
    recorder = rank(1)
    recorder.step(1, {"loss": float("nan")})
    recorder.step(2, {"loss": 1.0})
    recorder.step(3, {"loss": float("inf"), "skipped": True})
    recorder.step(4, {"loss": float("inf")})
    recorder.step(5, {"loss": float("nan")})
    ranks = looked_at(spool)
    assert (ranks.onset(), ranks.nonfinite()) == (4, None)

    recorder.step(6, {"loss": float("nan")})
    ranks.poll()

    assert (ranks.nonfinite().number, ranks.nonfinite().onset) == (1, 4)


def test_a_hang_is_when_all_are_silent(rank, spool):
    """One that goes on is enough; a helper that never made a step does not count."""
    first, second, _ = rank(0), rank(1), rank(2)
    first.step(5, {})
    second.step(5, {})
    now = looked_at(spool).last_time()
    clock = Clock(now)
    ranks = Ranks(str(spool), "test", 0, clock=clock)
    ranks.poll()
    clock.now = now + 9.0
    assert ranks.silence(10.0, lambda _: "S") is None
    clock.now = now + 11.0
    found = ranks.silence(10.0, lambda _: "S")

    assert (found.rank, found.phase, round(found.seconds)) == (None, "train", 11)
    assert ranks.silence(None, lambda _: "S") is None
    clock.now = now + 601.0
    assert ranks.silence(None, lambda _: "S") is not None


def test_time_that_was_slept_is_no_hang(rank, spool):
    """A machine that was suspended wakes up to ranks that have made no step for an hour."""
    rank(0).step(5, {})
    clock = Clock(looked_at(spool).last_time())
    ranks = Ranks(str(spool), "test", 0, clock=clock)
    ranks.poll()

    clock.now += 3600.0
    ranks.poll()
    assert ranks.silence(60.0, lambda _: "S") is None
    for _ in range(70):
        clock.now += 1.0
        ranks.poll()
    assert ranks.silence(60.0, lambda _: "S") is not None


def test_a_save_may_take_longer_than_a_step(rank, spool):
    """The limit between steps does not count in a phase of its own."""
    recorder = rank(0, world=1)
    recorder.step(5, {})
    recorder.begin_phase("checkpoint")
    clock = Clock(looked_at(spool).last_time())
    ranks = Ranks(str(spool), "test", 0, clock=clock)
    ranks.poll()
    clock.now += 5.0

    assert ranks.silence(3.0, lambda _: "S") is None


@pytest.mark.parametrize(
    ("steps", "phases", "states", "who", "why"),
    [
        ([5, 5, 5], "ttt", "STS", 1, "is stopped"),
        ([5, 5, 5], "ttt", "SSD", 2, "waits in the kernel"),
        ([5, 4, 5], "ttt", "SSS", 1, "is behind the others (step 4, they 5)"),
        ([5, 5, 5], "ttd", "SSS", 2, "is in phase data, the others are not"),
        ([5, 5, 5], "ttt", "SSS", None, ""),
        ([5, 5], "td", "SS", None, ""),
        ([5], "t", "S", 0, "is the only one"),
    ],
)
def test_who_is_to_blame(rank, spool, steps, phases, states, who, why):  # noqa: PLR0917  A row of a table.
    """From outside: the state of its process, its step, its phase; in a collective all look alike."""
    for number, (step, phase) in enumerate(zip(steps, phases, strict=True)):
        recorder = rank(number)
        recorder.step(step, {})
        if phase == "d":
            recorder.begin_phase("data")
    ranks = list(looked_at(spool))
    for one in ranks:
        one.pid = one.number + 1

    found, words = suspect(ranks, lambda pid: states[pid - 1])

    assert (None if found is None else found.number, words) == (who, why)


def test_checkpoints_that_were_told(rank, spool, tmp_path):
    """Real paths with their steps; failed saves and loads tell nothing."""
    recorder = rank(0)
    recorder.step(7, {})
    recorder.end_checkpoint(recorder.begin_checkpoint(7), str(tmp_path / "a.pt"), "save", None)
    recorder.end_checkpoint(recorder.begin_checkpoint(7), str(tmp_path / "b.pt"), "save", "OSError")

    assert looked_at(spool).saved() == {str(tmp_path / "a.pt"): 7}
