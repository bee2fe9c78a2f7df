"""NaN and infinity: found at once, held, forgiven, and not confused with the search of a loss scaler."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.nonfinite import NonfiniteLoss
from trainvitals.telemetry import Step

NAN, INF = math.nan, math.inf


@pytest.fixture
def tape() -> Tape:
    """Give a training at its first step."""
    return Tape(NonfiniteLoss())


def test_without_a_loss_there_is_no_verdict(tape):
    """Silence is not health."""
    assert tape.play([None] * 5, learning_rate=1e-3) == [None] * 5


def test_finite_losses_are_quiet(tape):
    """Zero, negative and huge ones too."""
    verdicts = tape.play([2.0, 0.0, -5.0, 1e300, -1e-300])
    assert [(verdict.ratio, verdict.active, verdict.evidence) for verdict in verdicts] == [(0.0, False, "")] * 5


def test_one_nan_between_finite_steps_is_found_at_once_and_held(tape):
    """The next scrape may be hundreds of steps away."""
    tape.play(noise(100))
    tape.play([2.31])
    (found,) = tape.play([NAN])
    assert found.active
    assert found.ratio == 1.0
    assert found.since_step == 102
    assert found.evidence == "since step 102: loss is NaN in 1 step; before: 2.31 at step 101"
    after = tape.play(noise(299))
    assert {verdict.evidence for verdict in after} == {found.evidence}
    assert [verdict.active for verdict in tape.play(noise(1))] == [False]
    assert tape.verdict.evidence == ""


@pytest.mark.parametrize(("loss", "word"), [(NAN, "NaN"), (INF, "+Inf"), (-INF, "-Inf")])
def test_the_evidence_names_the_value(tape, loss, word):
    """Infinity points to an overflow, NaN to what came after it."""
    tape.play([loss])
    assert tape.verdict.evidence == f"since step 1: loss is {word} in 1 step"


def test_the_evidence_of_a_lasting_nan_changes_seldom(tape):
    """Each new text would be a new series: a thousand steps take five."""
    tape.play([1.5])
    evidence = [verdict.evidence for verdict in tape.play([NAN] * 1000)]
    assert sorted(set(evidence), key=evidence.index) == [
        "since step 2: loss is NaN in 1 step; before: 1.5 at step 1",
        "since step 2: loss is NaN in 2 or more steps; before: 1.5 at step 1",
        "since step 2: loss is NaN in 10 or more steps; before: 1.5 at step 1",
        "since step 2: loss is NaN in 100 or more steps; before: 1.5 at step 1",
        "since step 2: loss is NaN in 1000 or more steps; before: 1.5 at step 1",
    ]
    assert tape.verdict.ratio == 1000.0
    assert tape.verdict.statistics == {"steps": 1000.0}


def test_steps_of_one_episode_are_counted_together(tape):
    """NaN that comes and goes is one finding."""
    tape.play([NAN, 2.0, 2.0, NAN, 2.0])
    assert (tape.verdict.since_step, tape.verdict.statistics) == (1, {"steps": 2.0})


def test_a_skipped_step_is_no_finding(tape):
    """A loss scaler looks for its scale by meeting infinities."""
    assert first_active(tape.play([INF, NAN, INF], skipped=1.0)) is None
    assert tape.verdict.statistics == {"steps": 0.0}


def test_a_skipped_step_whose_loss_comes_late_is_no_finding(tape):
    """The mark is known at once, the tensor of the loss two steps later."""
    detector = tape.detector
    detector.observe(Step(1, 1, 0.0, {"skipped": 1.0}))
    detector.observe(Step(2, 2, 1.0, {"learning_rate": 1e-3}))
    detector.observe(Step(1, 1, 2.0, {"loss": INF}))
    assert not tape.verdict.active
    detector.observe(Step(2, 2, 3.0, {"loss": INF}))
    assert tape.verdict.active
    assert tape.verdict.since_step == 2


def test_a_scaler_that_skips_every_step_has_found_a_nan(tape):
    """After 32 steps there is no scale left to try."""
    assert first_active(tape.play([NAN] * 40, skipped=1.0)) == 32


def test_a_finite_step_ends_the_search_of_a_scaler(tape):
    """Two searches of 20 steps are two searches."""
    assert first_active(tape.play([INF] * 20, skipped=1.0)) is None
    tape.play([2.0])
    assert first_active(tape.play([INF] * 20, skipped=1.0)) is None


def test_a_loss_of_zero_with_a_broken_gradient_is_a_nan_in_disguise(tape):
    """Some trainers log 0 in place of NaN; a gradient norm alone may overflow."""
    tape.play([1.7], grad_norm=INF)
    assert not tape.verdict.active
    tape.play([0.0], grad_norm=2.0)
    assert not tape.verdict.active
    tape.play([0.0], grad_norm=NAN)
    assert tape.verdict.evidence == (
        "since step 3: loss is 0 with a non-finite gradient norm in 1 step; before: 0 at step 2"
    )


def test_a_rollback_forgives_but_not_at_once(tape):
    """A scrape must still see what happened; 100 steps are not needed."""
    tape.seconds = 10.0
    tape.play([*noise(50), NAN])
    tape.roll_back(20)
    assert all(verdict.active for verdict in tape.play(noise(29)))
    assert not tape.play(noise(1))[0].active


def test_a_restart_forgives_but_not_at_once(tape):
    """The count begins again with another process; the hold must not wait for the old one."""
    tape.play([*noise(5000), NAN])
    tape.restart(4000)
    assert all(verdict.active for verdict in tape.play(noise(239)))
    assert not tape.play(noise(1))[0].active


def test_a_nan_after_a_rollback_is_another_finding(tape):
    """It names its own step, and no loss from before."""
    tape.play([*noise(50), NAN, NAN])
    tape.roll_back(20)
    tape.play([NAN])
    assert tape.verdict.evidence == "since step 21: loss is NaN in 1 step"
    assert tape.verdict.ratio == 1.0


def test_a_loss_that_is_logged_seldom_is_held_until_a_finite_one(tape):
    """Steps without a loss say nothing about it."""
    tape.play([NAN])
    assert all(verdict.active for verdict in tape.play([None] * 999))
    assert not tape.play([2.0])[0].active


values = st.dictionaries(st.sampled_from(["loss", "grad_norm", "skipped", "learning_rate"]), st.floats())
steps = st.builds(Step, st.integers(-5, 50), st.integers(0, 50), st.floats(0, 1e6), values)


@given(st.lists(steps, max_size=40))
def test_no_sequence_of_steps_is_too_strange(sequence):
    """It never raises, and the ratio is finite and not negative."""
    detector = NonfiniteLoss()
    for step in sequence:
        detector.observe(step)
        verdict = detector.verdict()
        if verdict is not None:
            assert 0.0 <= verdict.ratio < math.inf
            assert all(map(math.isfinite, verdict.statistics.values()))
            assert bool(verdict.evidence) == verdict.active == (verdict.since_step is not None)


def test_one_of_several_losses_is_found_where_none_is_called_so():
    """A generator's: at its eighth report in a row, and by its name."""
    tape = Tape(NonfiniteLoss())
    tape.play([None] * 20, loss_G=1.5, loss_D=0.4)
    verdicts = tape.play([None] * 12, loss_G=math.nan, loss_D=0.4)
    assert first_active(verdicts) == 7
    assert verdicts[-1].evidence == "since step 28: loss_G is NaN in 2 or more steps"
    assert verdicts[-1].severity == "critical"


def test_a_part_that_is_nan_now_and_then_is_none():
    """Batches without an object have no loss of boxes."""
    tape = Tape(NonfiniteLoss())
    for _ in range(20):
        assert first_active(tape.play([None] * 7, box_loss=math.nan, cls_loss=1.0)) is None
        tape.play([None], box_loss=0.5, cls_loss=1.0)


def test_a_part_beside_a_loss_that_is_finite_is_none():
    """It may not be computed at all; neither is a scale, or a step that has other numbers only."""
    tape = Tape(NonfiniteLoss())
    assert not any(verdict.active for verdict in tape.play([2.0] * 50, aux_loss=math.nan))
    assert Tape(NonfiniteLoss()).play([None] * 50, loss_scale=math.inf, lr=math.nan) == [None] * 50
