"""Long effort for nothing: found where noise lets it be seen, gated by the schedule, and never an alarm."""

from __future__ import annotations

import math

import pytest
from tests.detect.helpers import Tape, first_active, noise

from trainvitals.detect.plateau import Plateau
from trainvitals.telemetry import Event, Step


def power_law(count, *, sigma=0.003, seed=1):
    """Return the loss of a healthy model at a constant learning rate: 2 + 6 n^-0.3."""
    return [2.0 + 6.0 * (i + 1) ** -0.3 + odd for i, odd in enumerate(noise(count, level=0.0, sigma=sigma, seed=seed))]


def test_a_flat_end_is_found():
    """Fallen to 3.4 in 200 points, and flat for 800."""
    tape = Tape(Plateau(), seconds=60.0)
    assert first_active(tape.play([3.4 + 4.0 * math.exp(-i / 30) for i in range(200)])) is None
    verdicts = tape.play(noise(800, level=3.4, sigma=0.01, seed=2))
    assert 100 < first_active(verdicts) < 600
    verdict = tape.verdict
    assert verdict.severity == "info"
    assert verdict.evidence.startswith(f"since step {verdict.since_step}: loss fell by less than 0.3% from 3.")
    assert verdict.evidence.endswith(" hours of the last quarter")
    assert verdict.statistics["gain_upper"] < 0.006
    assert verdict.statistics["hours"] == pytest.approx(4.0, abs=0.6)
    assert len({verdict.evidence for verdict in verdicts if verdict is not None and verdict.active}) == 1


def test_a_loud_log_that_is_flat_as_a_whole_is_found():
    """120 losses from step 2,233,480 on, with 3 % of noise: no quarter of it can tell 0.3 %, but all of it 1.5 %."""
    tape = Tape(Plateau(), first=2_233_480)
    verdicts = tape.play(noise(120, level=8.5, sigma=0.2, seed=3))
    assert first_active(verdicts) in range(99, 120)
    assert (tape.verdict.severity, tape.verdict.since_step) == ("info", 2_233_480)
    assert tape.verdict.evidence.startswith("since step 2233480, all that is known: loss is the same but for noise, 8.")


def test_a_loud_log_that_falls_by_five_percent_is_quiet():
    """As that of a healthy run which is read from its middle."""
    losses = [8.5 - 0.004 * place + odd for place, odd in enumerate(noise(120, level=0.0, sigma=0.2, seed=3))]
    assert first_active(Tape(Plateau(), first=1_000_000).play(losses)) is None


def test_a_healthy_power_law_is_quiet():
    """It gains about 1 % in each quarter, for ever."""
    assert first_active(Tape(Plateau()).play(power_law(20_000))) is None


def test_noise_that_is_larger_than_the_gain_says_nothing():
    """10 % of it in 60 points."""
    tape = Tape(Plateau())
    tape.play([8.0, 6.0, 5.0, 4.0])
    assert first_active(tape.play(noise(60, level=3.0, sigma=0.3))) is None
    assert tape.detector.verdict() is None


def test_the_tail_of_a_schedule_is_gated():
    """Nothing falls at a hundredth of the learning rate."""
    tape = Tape(Plateau())
    tape.play(power_law(400), learning_rate=1e-3)
    verdicts = tape.play(noise(2000, level=2.95, sigma=0.003), learning_rate=1e-5)
    assert first_active(verdicts) is None
    assert tape.verdict.gated.startswith("the learning rate is below a tenth")


def test_a_warm_up_is_gated():
    """The learning rate rises still."""
    tape = Tape(Plateau())
    tape.play([8.0, 6.0, 5.0])
    verdicts = [tape.play([3.0], learning_rate=1e-6 * (index + 1))[0] for index in range(200)]
    assert first_active(verdicts) is None
    assert tape.verdict.gated == "the learning rate rose within the last half of the steps"


def test_a_run_that_never_learnt_is_another_signals():
    """It is flat from its first step."""
    tape = Tape(Plateau())
    assert first_active(tape.play(noise(300, level=0.6931, sigma=0.0001))) is None
    assert tape.verdict.gated == "the run has not learnt yet"


def test_a_run_whose_beginning_was_not_seen_is_judged():
    """A log that begins at step 2,000,000."""
    tape = Tape(Plateau(), first=2_000_000)
    assert first_active(tape.play(noise(400, level=3.4, sigma=0.01))) is not None


def test_a_rising_loss_is_no_plateau():
    """And it says why it is quiet."""
    tape = Tape(Plateau())
    tape.play([8.0, 6.0, 5.0])
    assert first_active(tape.play([3.0 + 0.01 * i for i in range(300)])) is None
    assert tape.verdict.gated == "the loss rises"


def test_it_ends_when_the_loss_falls_again():
    """Grokking, or the decay of the learning rate."""
    tape = Tape(Plateau())
    tape.play([3.4 + 4.0 * math.exp(-i / 30) for i in range(200)])
    tape.play(noise(800, level=3.4, sigma=0.01, seed=2))
    assert tape.verdict.active
    assert not tape.play([3.4 - 0.002 * i for i in range(400)])[-1].active


def test_a_rollback_ends_it():
    """What was behind it is superseded."""
    tape = Tape(Plateau())
    tape.play([3.4 + 4.0 * math.exp(-i / 30) for i in range(200)])
    tape.play(noise(800, level=3.4, sigma=0.01, seed=2))
    tape.roll_back(300)
    assert tape.play([3.4]) == [None]


def test_rewards_are_not_judged():
    """A loss of both signs."""
    assert Tape(Plateau()).play(noise(400, level=0.0, sigma=1.0))[100:] == [None] * 300


def play_epochs(losses, *, evaluated=True):
    """Feed the mean of an epoch for each loss, each with its evaluation; return the verdicts."""
    detector, verdicts = Plateau(), []
    for epoch, loss in enumerate(losses):
        detector.observe(Step(epoch, epoch + 1, 60.0 * epoch, {"loss": loss}))
        if evaluated:
            values = {"name": "validation", "values": {"loss": 1.0}}
            detector.observe_event(Event(60.0 * epoch, "evaluation", epoch, values))
        verdicts.append(detector.verdict())
    return verdicts


def test_means_of_epochs_that_go_up_and_down_and_nowhere_else_oscillate():
    """Sixty epochs, 5 % up and down after the first: the noise of batches is not in a mean over all of them."""
    verdict = play_epochs([1.5, *noise(60, level=0.95, sigma=0.05)])[-1]
    assert (verdict.active, verdict.severity, verdict.since_step) == (True, "info", 0)
    assert verdict.evidence.startswith("since step 0, all that is known: loss goes up and down, and nowhere else, aro")
    assert "lower the learning rate by 3 to 10 times" in verdict.action


@pytest.mark.parametrize(
    "losses",
    [
        [1.5, *noise(60, level=0.95, sigma=0.01)],
        [place_loss - 0.004 * place for place, place_loss in enumerate(noise(60, level=0.95, sigma=0.05))],
    ],
    ids=["quiet", "falling"],
)
def test_epochs_that_are_quiet_or_fall_do_not_oscillate(losses):
    """The first is flat, which is told as that; the second learns."""
    said = [verdict.evidence for verdict in play_epochs(losses) if verdict is not None and verdict.active]
    assert not any("up and down" in text for text in said)


def test_steps_of_the_same_noise_do_not_oscillate():
    """It is the noise of their batches: 60 are too few to say anything."""
    losses = [1.5, *noise(60, level=0.95, sigma=0.05)]
    assert not any(verdict is not None and verdict.active for verdict in play_epochs(losses, evaluated=False))
