"""Loss spikes: found within some steps, held until the loss is back, and quiet on everything that is no spike."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.spike import LossSpike, SpikeSettings
from trainvitals.telemetry import Step

#: The spike of BLOOM-176B: loss over the level before.
BLOOM = [1.01, 1.18, 1.02, 1.07, 2.32, 1.59, 1.46, 1.28, *(1.0 + 0.28 * math.exp(-i / 7.0) for i in range(1, 21))]


@pytest.fixture
def tape() -> Tape:
    """Give a training at its first step."""
    return Tape(LossSpike())


@pytest.fixture
def warm(tape) -> Tape:
    """A training with a loss of 3.0 +- 0.03 that is past its warm-up, at step 800."""
    tape.play(noise(800))
    return tape


def test_nothing_is_said_during_warm_up(tape):
    """Until step 500, whatever the loss does."""
    losses = [loss * factor for loss, factor in zip(noise(499), [1.0] * 300 + [10.0] * 199, strict=True)]
    assert tape.play(losses) == [None] * 499


def test_nothing_is_said_on_too_few_points(tape):
    """Also far from step 500, as after a resume or where a log is followed from its middle."""
    tape.step = 100_000
    verdicts = tape.play(noise(300))
    assert verdicts[:192] == [None] * 192
    assert all(verdict is not None and not verdict.active for verdict in verdicts[192:])


def test_a_spike_of_the_shape_of_blooms_is_found_within_six_steps(warm):
    """2.3 times the level at its fifth step, back after thirty."""
    verdicts = warm.play([3.0 * ratio for ratio in BLOOM])
    found = first_active(verdicts)
    assert found is not None
    assert found + 1 <= 6
    verdict = warm.verdict
    assert verdict.since_step == 802
    assert verdict.evidence == "since step 802: loss rose from 2.998 to 6.96"
    assert verdict.statistics["unrecovered"] < 1.0


def test_the_evidence_of_a_spike_is_one_text(warm):
    """The same label from the first to the last scrape, though the peak comes after the first."""
    warm.play([3.0 * ratio for ratio in BLOOM[:4]])
    verdicts = warm.play([4.0, 4.5, 4.8, 5.0, 4.9, 4.2, 3.8, 3.4, 3.1, *noise(50)])
    texts = {verdict.evidence for verdict in verdicts if verdict.active}
    assert len(texts) <= 2


def test_a_spike_is_held_by_time_when_steps_are_fast(tape):
    """At 100 steps a second a spike of 28 steps is over before the next scrape."""
    tape.seconds = 0.01
    tape.play(noise(800))
    tape.play([3.0 * ratio for ratio in BLOOM])
    after = tape.play(noise(13_000))
    last = max(index for index, verdict in enumerate(after) if verdict.active)
    assert 12_000 <= last <= 12_000 + len(BLOOM)


def test_a_spike_ends_when_steps_are_slow(tape):
    """At 106 seconds a step it ends eight steps after the last excess."""
    tape.seconds = 106.0
    tape.play(noise(800))
    tape.play([3.0 * ratio for ratio in BLOOM])
    after = tape.play(noise(20))
    assert not after[-1].active


def test_a_single_outlier_is_an_event_and_no_finding(warm):
    """One odd step is data: the same in every run with that order."""
    verdicts = warm.play([5.0, *noise(100)])
    assert first_active(verdicts) is None
    assert warm.verdict.statistics["events"] == 1.0


def test_one_spike_does_not_hide_the_next(warm):
    """Flagged values do not become the baseline."""
    for _ in range(3):
        assert first_active(warm.play([3.0 * ratio for ratio in BLOOM])) is not None
        warm.play(noise(200))
        assert not warm.verdict.active


def test_a_small_rise_that_stays_is_found_by_the_level(warm):
    """Three sigmas are no outliers, but eight such steps are a level."""
    verdicts = warm.play(noise(20, level=3.1, seed=2))
    assert first_active(verdicts) is not None
    assert max(verdict.statistics["outlier_sigmas"] for verdict in verdicts) < 5.0


def test_a_loss_that_does_not_come_back_is_unrecovered_after_200_steps(warm):
    """And says so once."""
    verdicts = warm.play(noise(400, level=3.6, seed=2))
    found = first_active(verdicts)
    unrecovered = [verdict.statistics["unrecovered"] for verdict in verdicts]
    assert next(index for index, value in enumerate(unrecovered) if value >= 1.0) == found + 200
    assert verdicts[-1].active
    assert verdicts[-1].evidence.endswith(", and did not come back soon")
    assert len({verdict.evidence for verdict in verdicts if verdict.active}) == 2


def test_twice_the_baseline_for_five_steps_is_as_bad(warm):
    """No need to wait for 200 steps."""
    verdicts = warm.play([6.5] * 10)
    assert [verdict.statistics["unrecovered"] >= 1.0 for verdict in verdicts] == [False] * 6 + [True] * 4


def test_a_loss_that_is_seldom_logged_gets_some_points_to_recover(tape):
    """200 steps may be two points of the log."""
    tape.play(noise(800))
    for index in range(12):
        tape.roll_back(tape.step + 99)
        tape.play([4.0 - index * 0.05])
    assert tape.verdict.active
    assert tape.verdict.statistics["unrecovered"] < 1.0


def test_a_new_level_is_accepted_in_the_end(tape):
    """After an hour and 512 points; then it is the baseline for what follows."""
    tape.seconds = 6.0
    tape.play(noise(800))
    verdicts = tape.play(noise(700, level=4.0, seed=2))
    last = max(index for index, verdict in enumerate(verdicts) if verdict is not None and verdict.active)
    assert 600 <= last <= 640
    assert not tape.play(noise(200, level=4.0, seed=3))[-1].active
    assert tape.verdict.statistics["baseline"] == pytest.approx(4.0, abs=0.02)
    assert first_active(tape.play([4.0 * ratio for ratio in BLOOM])) is not None


def test_recovery_ends_the_finding_after_its_hold(warm):
    """Two minutes after the loss is back."""
    warm.play([5.0] * 20)
    after = warm.play(noise(200))
    last = max(index for index, verdict in enumerate(after) if verdict.active)
    assert 120 <= last <= 130
    assert after[-1].evidence == ""
    assert after[-1].statistics["unrecovered"] == 0.0


def test_nan_and_infinity_are_left_out(warm):
    """They are another detector's: the windows stay finite, and a spike around them is found."""
    warm.play([math.nan, math.inf, -math.inf, *noise(50, seed=3)])
    assert not warm.verdict.active
    losses = [value for ratio in BLOOM for value in (3.0 * ratio, math.nan)]
    assert first_active(warm.play(losses)) is not None


def test_a_rollback_opens_a_new_segment(warm):
    """A finding stays for two minutes; then nothing is said until there is a baseline again."""
    warm.play([5.0] * 20)
    warm.roll_back(600)
    verdicts = warm.play(noise(250, seed=4))
    assert verdicts[0].active
    assert verdicts[130] is None
    assert not verdicts[200].active
    assert verdicts[200].statistics["unrecovered"] == 0.0


def test_a_loss_that_is_higher_after_a_rollback_is_no_spike(warm):
    """An older state has a higher loss."""
    warm.roll_back(550)
    assert first_active(warm.play(noise(600, level=3.4, seed=4))) is None


def test_a_restarted_process_opens_a_new_segment(warm):
    """The count begins again; a loss at another level is no spike."""
    warm.restart(750)
    verdicts = warm.play(noise(250, level=3.4, seed=4))
    assert verdicts[:192] == [None] * 192
    assert not verdicts[-1].active


def test_late_losses_are_judged_like_others(warm):
    """Learning rate and loss come in separate Steps, the loss two steps later."""
    detector = warm.detector
    losses = [*noise(100, seed=5), *(3.0 * ratio for ratio in BLOOM)]
    found = None
    for index in range(len(losses) + 2):
        number, time = 801 + index, warm.time + index
        detector.observe(Step(number, number, time, {"learning_rate": 1e-3}))
        if index >= 2:
            detector.observe(Step(number - 2, number - 2, time, {"loss": losses[index - 2]}))
        if found is None and warm.verdict.active:
            found = index - 2
    assert found is not None
    assert 100 <= found < 106
    assert warm.verdict.since_step == 902


def test_a_raised_learning_rate_opens_a_new_segment(tape):
    """A loss that rises a little with it is what was asked for."""
    tape.play(noise(800), learning_rate=1e-4)
    verdicts = tape.play(noise(300, level=3.3, seed=2), learning_rate=5e-4)
    assert first_active(verdicts) is None
    assert tape.verdict.statistics["baseline"] == pytest.approx(3.3, abs=0.02)


def test_a_raised_learning_rate_that_breaks_the_loss_is_found(tape):
    """Worse by a fifth than the run ever was after its warm-up: that needs no new baseline."""
    tape.play(noise(800), learning_rate=1e-4)
    verdicts = tape.play([3.1, 3.4, 4.0, 5.0, 6.0, 7.0, 7.0, 7.0], learning_rate=1e-3)
    assert first_active(verdicts) in (4, 5)
    assert tape.verdict.since_step == 802


def test_a_lowered_learning_rate_opens_none(tape):
    """The answer to a spike must not end its finding, and a drop makes no loss rise."""
    tape.play(noise(800), learning_rate=1e-3)
    tape.play([5.0] * 10, learning_rate=1e-3)
    assert all(verdict.active for verdict in tape.play([5.0] * 10, learning_rate=1e-4))


def test_a_warm_up_of_the_learning_rate_ends_the_baseline_only_early(tape):
    """It rises by more than a fifth only in its first few steps."""
    for index in range(800):
        tape.play(noise(1, seed=index), learning_rate=1e-6 * (index + 1))
    assert tape.verdict.ratio < 1.0


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param([10.8259] * 2000, id="constant"),
        pytest.param([round(0.3 + value, 2) for value in noise(2000, level=0.0, sigma=0.004)], id="two decimals"),
        pytest.param([round(abs(value), 4) for value in noise(2000, level=0.0, sigma=5e-5)], id="near zero, rounded"),
        pytest.param([math.exp(value) / 100 for value in noise(2000, level=0.0, sigma=1.0)], id="near zero, skewed"),
        pytest.param(noise(2000, level=-1000.0, sigma=5.0), id="negative"),
        pytest.param(noise(2000, level=0.0, sigma=0.01), id="around zero"),
        pytest.param([2.0 + 8.0 * math.exp(-i / 300) + x for i, x in enumerate(noise(2000, level=0.0))], id="falling"),
        pytest.param([x + (2.0 if (i // 8) % 5 else 3.0) for i, x in enumerate(noise(2000, level=0.0))], id="bursts"),
        pytest.param([3.0 - (i // 500) * 0.5 + x for i, x in enumerate(noise(2000, level=0.0))], id="stairs of epochs"),
    ],
)
def test_what_is_no_spike_is_quiet(tape, losses):
    """Losses of other kinds than a language model's."""
    assert first_active(tape.play(losses)) is None


def test_a_moving_average_is_quiet(tape):
    """A logged average wanders; its values are no independent witnesses."""
    average, losses = 0.0, []
    for value in noise(3000, level=0.0, sigma=1.0):
        average = 0.98 * average + 0.02 * value
        losses.append(3.0 + 0.5 * average)
    assert first_active(tape.play(losses)) is None


def test_a_loss_that_was_always_zero_gives_no_verdict(tape):
    """There is no noise to rise out of."""
    assert tape.play([0.0] * 1000) == [None] * 1000


def test_losses_of_any_size_give_finite_ratios(warm):
    """The largest numbers there are neither overflow nor become NaN."""
    verdicts = warm.play([1e308, -1e308, 1e-308, 0.0, 1e300] * 40)
    for verdict in verdicts:
        assert verdict is None or (math.isfinite(verdict.ratio) and verdict.ratio >= 0.0)
        assert verdict is None or all(map(math.isfinite, verdict.statistics.values()))


small = SpikeSettings(baseline=8, recent=4, warmup_points=10, warmup_steps=0, accept_points=10, accept_seconds=5.0)
values = st.dictionaries(st.sampled_from(["loss", "learning_rate", "skipped"]), st.floats(), min_size=1)
steps = st.builds(Step, st.integers(-5, 300), st.integers(0, 300), st.floats(0, 1e6), values)
orderly = st.lists(st.one_of(st.floats(), st.sampled_from([1.0, 2.0, 1e38, 0.0])), min_size=20, max_size=80)


@settings(max_examples=200)
@given(st.one_of(st.lists(steps, max_size=60), orderly))
def test_no_sequence_of_steps_is_too_strange(sequence):
    """It never raises, and the ratio is finite and not negative, whatever values and numbers come."""
    detector = LossSpike(small)
    for index, item in enumerate(sequence):
        detector.observe(item if isinstance(item, Step) else Step(index, index, float(index), {"loss": item}))
        verdict = detector.verdict()
        if verdict is not None:
            assert 0.0 <= verdict.ratio < math.inf
            assert all(map(math.isfinite, verdict.statistics.values()))
            assert bool(verdict.evidence) == verdict.active == (verdict.since_step is not None)


def test_the_spike_is_found_in_any_noise():
    """Ten seeds of the noise of a language model with its longer tail."""
    for seed in range(10):
        numbers = random.Random(seed)
        run = Tape(LossSpike())
        run.play([3.0 + 0.04 * numbers.gauss(0.0, 1.0) / math.sqrt(numbers.gammavariate(5.0, 0.2)) for _ in range(900)])
        assert first_active(run.play([3.0 * ratio for ratio in BLOOM])) is not None


def test_asking_seldom_changes_nothing():
    """The ratio of calm steps is made when somebody asks; the answer is that of who asked after every step."""
    losses = [*noise(400), *noise(40, level=3.2, seed=2), *noise(300, seed=3)]
    often, seldom = Tape(LossSpike(), first=1000), Tape(LossSpike(), first=1000)
    verdicts = often.play(losses)

    asked = []
    for begin in range(0, len(losses), 37):
        for loss in losses[begin : begin + 37]:
            seldom.step, seldom.count, seldom.time = seldom.step + 1, seldom.count + 1, seldom.time + 1.0
            seldom.detector.observe(Step(seldom.step, seldom.count, seldom.time, {"loss": loss}))
        asked.append(seldom.detector.verdict())

    assert verdicts[36::37] == asked
    assert any(verdict is not None and verdict.active for verdict in asked)


def test_a_spike_beside_a_reward_is_information():
    """The loss of a value function jumps as rewards do."""
    tape = Tape(LossSpike(), first=1000)
    tape.play(noise(400), reward=0.4)
    assert first_active(tape.play([9.0] * 20, reward=0.5)) is not None
    assert tape.verdict.severity == "info"


@pytest.mark.parametrize(("factor", "severities"), [(1.1, {"info"}), (1.4, {"warning", "critical"})])
def test_a_step_of_less_than_15_percent_is_information(warm, factor, severities):
    """Harder data and another cycle of the learning rate do that, also when it does not come back."""
    verdicts = warm.play(noise(300, level=3.0 * factor, seed=2))
    said = {verdict.severity for verdict in verdicts if verdict.active}
    assert said == severities


def test_a_step_behind_a_restart_of_the_learning_rate_is_information_up_to_twice_the_loss():
    """Another stage with a warm-up of its own begins higher, and falls again."""
    tape = Tape(LossSpike())
    tape.play(noise(900), learning_rate=1e-4)
    tape.play([3.9] * 2, learning_rate=1e-6)
    said = {verdict.severity for verdict in tape.play(noise(60, level=4.2), learning_rate=1e-4) if verdict.active}
    assert said <= {"info"}
    worse = {verdict.severity for verdict in tape.play(noise(60, level=9.0), learning_rate=1e-4) if verdict.active}
    assert "warning" in worse or "critical" in worse
