"""Gradient norm and loss scale: what precedes a spike or a NaN, and what is usual."""

from __future__ import annotations

import math

import pytest
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.gradient import GradientAnomaly


def play(tape, norms, **values):
    """Feed a step for each gradient norm."""
    return [tape.play([None], grad_norm=norm, **values)[0] for norm in norms]


def scales(tape, numbers, *, norm=None):
    """Feed a step for each loss scale."""
    values = {} if norm is None else {"grad_norm": norm}
    return [tape.play([None], loss_scale=scale, **values)[0] for scale in numbers]


@pytest.fixture
def tape() -> Tape:
    """Give a training with gradient norms of 0.5 +- 0.1, at step 200."""
    tape = Tape(GradientAnomaly())
    play(tape, noise(200, level=0.5, sigma=0.1))
    return tape


def test_without_norm_and_scale_there_is_no_verdict():
    """Most logs have neither."""
    assert Tape(GradientAnomaly()).play(noise(300)) == [None] * 300


def test_five_norms_of_more_than_ten_medians_are_found(tape):
    """A ramp: 0.9, 2.4, and then 16 and more."""
    verdicts = play(tape, [0.9, 2.4, 16.0, 145.0, 960.0, 200.0, 30.0])
    assert first_active(verdicts) == 6
    verdict = tape.verdict
    assert (verdict.since_step, verdict.severity) == (203, "warning")
    assert verdict.evidence.startswith("since step 203: gradient norm is more than 10 times its median 0.49")


def test_it_is_held_for_sixteen_reports(tape):
    """So that it is seen."""
    play(tape, [16.0] * 5)
    verdicts = play(tape, [0.5] * 20)
    assert max(index for index, verdict in enumerate(verdicts) if verdict.active) == 14


def test_the_evidence_is_one_text(tape):
    """Though its baseline climbs."""
    verdicts = play(tape, [16.0] * 100)
    assert len({verdict.evidence for verdict in verdicts if verdict.active}) == 1


def test_four_are_quiet_and_so_are_single_ones(tape):
    """Norms are noisy."""
    assert first_active(play(tape, ([50.0] * 4 + [0.5]) * 20)) is None


def test_norms_that_are_large_at_the_beginning_are_quiet():
    """60 and falling."""
    tape = Tape(GradientAnomaly())
    assert first_active(play(tape, [60.0 * math.exp(-i / 20) + 2.0 for i in range(300)])) is None


def test_norms_that_grow_threefold_are_quiet(tape):
    """Over hundreds of steps, as in many a healthy fine-tuning."""
    assert first_active(play(tape, [0.5 + 0.004 * i for i in range(300)])) is None


def test_tiny_norms_are_found_after_twenty(tape):
    """Below 1e-7, or exactly 0 after norms that were not."""
    assert first_active(play(tape, [1e-9] * 30)) == 19
    assert tape.verdict.evidence == "since step 201: gradient norm is below 1e-7"


def test_a_norm_that_is_always_0_is_not_measured():
    """Some trainers log it so."""
    assert first_active(play(Tape(GradientAnomaly()), [0.0] * 300)) is None


def test_norms_of_skipped_steps_are_left_out(tape):
    """A loss scaler meets infinities."""
    assert first_active(play(tape, [math.inf] * 40, skipped=1.0)) is None


def test_norms_that_are_not_finite_are_found_after_33(tape):
    """As long as a search may take, they may be one."""
    verdicts = play(tape, [math.nan] * 40)
    assert first_active(verdicts) == 32
    assert tape.verdict.severity == "critical"


def test_a_scale_that_runs_down_is_found(tape):
    """8 halvings within 100 steps, after it had stood still."""
    scales(tape, [65536.0] * 50)
    verdicts = scales(tape, [65536.0 / 2 ** (i // 5) for i in range(45)])
    assert first_active(verdicts) == 40
    assert tape.verdict.evidence == "since step 256: loss scale was halved 8 times within 100 steps"


def test_a_scale_that_comes_down_to_1_is_found(tape):
    """However slowly: nothing is left to halve."""
    scales(tape, [4.0] * 50)
    assert first_active(scales(tape, [2.0] * 200 + [1.0])) == 200
    assert tape.verdict.evidence.endswith("loss scale came down to 1")


def test_the_first_search_of_a_scaler_is_quiet():
    """2^32 to 2^16 in 16 steps."""
    tape = Tape(GradientAnomaly())
    assert first_active(scales(tape, [2.0 ** (32 - i) for i in range(17)] + [65536.0] * 100)) is None


def test_a_scale_that_goes_up_and_down_is_quiet(tape):
    """Doubled every 100 steps, halved when it is too large."""
    assert first_active(scales(tape, ([65536.0] * 100 + [131072.0] * 3) * 20)) is None


def test_a_scale_of_1_is_no_scaler():
    """bfloat16."""
    assert first_active(scales(Tape(GradientAnomaly()), [1.0] * 300)) is None


def test_a_rollback_begins_anew(tape):
    """Norms behind it are no baseline."""
    tape.roll_back(100)
    assert play(tape, [50.0] * 10) == [None] * 10


def test_what_is_known_by_heart_has_no_gradient():
    """A loss of a thousandth of the first; where it is still a tenth of it, weights do not move."""
    for now, found in ((0.002, False), (0.2, True)):
        tape = Tape(GradientAnomaly())
        play(tape, [0.5] * 200, loss=2.0)
        assert (first_active(play(tape, [1e-9] * 60, loss=now)) is not None) is found


def test_no_gradient_beside_a_reward_is_information():
    """All answers have the same reward: solved, or far from it."""
    tape = Tape(GradientAnomaly())
    play(tape, [0.5] * 200, reward=0.4)
    said = {verdict.severity for verdict in play(tape, [0.0] * 60, reward=1.0) if verdict.active}
    assert said == {"info"}
