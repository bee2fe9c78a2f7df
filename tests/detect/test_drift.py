"""A loss that drifts up: found where it is slow, and quiet on noise, bursts, steps of the schedule and rollbacks."""

from __future__ import annotations

import pytest
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.drift import LossDrift
from trainvitals.detect.segments import Segment


@pytest.fixture
def warm() -> Tape:
    """A training with a loss of 3.0 +- 0.03 at step 1100."""
    tape = Tape(LossDrift())
    tape.play(noise(1100))
    return tape


def test_nothing_is_said_before_there_is_a_baseline():
    """500 steps of warm-up, 20 blocks of 16 losses, and one to compare."""
    verdicts = Tape(LossDrift()).play(noise(900))
    assert verdicts[:834] == [None] * 834
    assert verdicts[-1] is not None


@pytest.mark.parametrize("seed", range(8))
def test_a_rise_by_30_percent_over_400_steps_is_found_on_its_way(warm, seed):
    """Within 160 steps, at a tenth of the way; the first block of two is named."""
    rise = [loss * (1.0 + 0.3 * index / 400) for index, loss in enumerate(noise(400, seed=seed + 2))]
    found = first_active(warm.play(rise))
    assert found is not None
    assert found < 160
    verdict = warm.verdict
    assert 1100 < verdict.since_step <= 1100 + found - 16
    assert verdict.severity == "warning"
    assert verdict.evidence.startswith(f"since step {verdict.since_step}: loss drifts up from ")


def test_the_evidence_changes_seldom(warm):
    """The level moves on in strides: each text is a series."""
    verdicts = warm.play([loss * (1.0 + index / 400) for index, loss in enumerate(noise(400, seed=2))])
    assert len({verdict.evidence for verdict in verdicts if verdict.active}) < 10


def test_it_ends_when_the_loss_is_back(warm):
    """Within a block or two."""
    warm.play(noise(200, level=3.3, seed=2))
    assert warm.verdict.active
    assert not warm.play(noise(32, seed=3))[-1].active


def test_a_level_that_stays_becomes_normal(warm):
    """After 1,024 losses there."""
    verdicts = warm.play(noise(1200, level=3.3, seed=2))
    assert verdicts[900].active
    assert verdicts[-1] is None or not verdicts[-1].active


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_quiet(seed):
    """20,000 losses each."""
    tape = Tape(LossDrift())
    assert first_active(tape.play(noise(20_000, seed=seed))) is None


def test_bursts_of_like_data_are_quiet():
    """30 of 300 losses are a fifth higher, again and again: the largest medians of the baseline know it."""
    losses = noise(6000)
    bursts = [loss * (1.2 if index % 200 < 30 else 1.0) for index, loss in enumerate(losses)]
    assert first_active(Tape(LossDrift()).play(bursts)) is None


def test_one_odd_batch_is_quiet(warm):
    """A median does not see it."""
    assert first_active(warm.play([9.0, *noise(100)])) is None


def test_a_learning_rate_that_rises_opens_a_new_segment(warm):
    """A restart of the schedule: the loss goes up with it, and that is said."""
    warm.play(noise(20), learning_rate=1e-4)
    verdicts = warm.play(noise(500, level=3.3, seed=2), learning_rate=3e-4)
    assert first_active(verdicts) is None
    assert warm.verdict.gated == "the learning rate rose"


def test_a_learning_rate_that_creeps_up_opens_segments_too(warm):
    """A fifth above its lowest is enough, in however many steps."""
    for index in range(400):
        warm.play(noise(1, level=3.0 + index * 0.001, seed=index), learning_rate=1e-4 * 1.01**index)
    assert warm.detector.verdict() is None


def test_another_batch_size_opens_a_new_segment(warm):
    """Its noise is another, and so may be its level; what is left out is said."""
    warm.detector.begin_segment(Segment("batch_size", "the batch size changed"))
    verdicts = warm.play(noise(500, level=3.2, seed=2))
    assert first_active(verdicts) is None
    assert verdicts[0].gated == "the batch size changed"


def test_other_data_does_not_hide_a_drift(warm):
    """It may be the answer to it."""
    assert first_active(warm.play(noise(200, level=3.4, seed=2))) is not None
    warm.detector.begin_segment(Segment("data", "the data changed"))
    assert warm.verdict.active


def test_a_rollback_opens_a_new_segment(warm):
    """What was before is no baseline for another order of the data."""
    warm.roll_back(600)
    assert first_active(warm.play(noise(500, level=3.2, seed=2))) is None


def test_a_restart_that_goes_on_keeps_the_baseline(warm):
    """Its data goes on as well."""
    warm.restart(1100)
    assert first_active(warm.play(noise(100, level=3.3, seed=2))) is not None


def test_a_constant_loss_is_quiet():
    """Without a spread there is no error to count in; 0.25 % of the level stands in."""
    tape = Tape(LossDrift())
    assert first_active(tape.play([2.0] * 2000)) is None
    assert first_active(tape.play([2.001] * 100)) is None
    assert first_active(tape.play([2.2] * 100)) is not None


def test_a_rise_of_less_than_15_percent_is_information(warm):
    """A term that is weighted anew, or harder data; from there on it is a warning."""
    assert first_active(warm.play(noise(100, level=3.15, seed=2))) is not None
    assert warm.verdict.severity == "info"
    warm.play(noise(100, level=3.6, seed=3))
    assert warm.verdict.severity == "warning"


def test_the_tail_of_a_spike_is_no_drift(warm):
    """It comes back by and by, over 160 losses, and falls from block to block."""
    tail = [loss * (1.0 + 0.8 * 0.97**index) for index, loss in enumerate(noise(400, seed=5))]
    assert first_active(warm.play(tail)) is None


def test_a_tail_that_stays_up_is_a_drift(warm):
    """Half of the spike is never made good: that is another level."""
    tail = [loss * (1.15 + 0.6 * 0.97**index) for index, loss in enumerate(noise(400, seed=5))]
    found = first_active(warm.play(tail))
    assert found is not None
    assert warm.verdict.since_step <= 1132


@pytest.mark.parametrize("beside", [{"rollout/ep_rew_mean": 7.0}, {"loss_G": 2.0, "loss_D": 1.0}])
def test_losses_that_may_rise_are_not_judged(beside):
    """That of a value function grows with the rewards, and a generator's with its discriminator."""
    tape = Tape(LossDrift())
    tape.play(noise(1100), **beside)
    assert tape.play(noise(400, level=4.0, seed=2), **beside)[-1] is None


def test_a_reward_that_comes_in_steps_of_its_own_is_seen_too(warm):
    """TensorBoard has a record for each value; and what was found before is forgotten."""
    warm.play(noise(200, level=3.5, seed=2))
    assert warm.verdict.active
    warm.play([None], reward=0.5)
    assert warm.detector.verdict() is None
