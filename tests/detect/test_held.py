"""A report asks a detector often as long as its signal is on; that must be what its verdict says."""

from __future__ import annotations

import math

import pytest
from tests.detect.helpers import Tape, noise

from trainvitals.detect.collapsed import LossCollapsed
from trainvitals.detect.diverged import LossDiverged
from trainvitals.detect.drift import LossDrift
from trainvitals.detect.gradient import GradientAnomaly
from trainvitals.detect.not_falling import LossNotFalling
from trainvitals.detect.plateau import Plateau

FALLING = [3.0 + 6.0 * math.exp(-index / 50) for index in range(600)]


@pytest.mark.parametrize(
    ("make", "losses", "norm"),
    [
        (LossCollapsed, [*noise(50), *[0.0] * 20, *noise(50)], 0.5),
        (LossDiverged, [*noise(50), *noise(50, level=20.0), *noise(50)], None),
        (LossDrift, [*noise(1100), *noise(100, level=3.4), *noise(50)], None),
        (GradientAnomaly, [*noise(100), *noise(10, level=3.0), *noise(50)], None),
        (LossNotFalling, [*noise(300, level=9.0), *FALLING], None),
        (Plateau, [*FALLING, *noise(800, sigma=0.01), *(3.0 - 0.003 * index for index in range(400))], None),
    ],
)
def test_a_signal_is_held_while_its_verdict_is_active(make, losses, norm):
    """At every step; and it comes on, and goes off again."""
    detector = make()
    tape = Tape(detector)
    seen = []
    for index, loss in enumerate(losses):
        values = {"grad_norm": norm} if norm is not None else {}
        if make is GradientAnomaly:
            values = {"grad_norm": 50.0 if 100 <= index < 110 else 0.5}
        (verdict,) = tape.play([loss], **values)
        active = verdict is not None and verdict.active
        assert detector.held or not active
        seen.append(active)
    assert any(seen)
    assert not seen[-1]
    assert not detector.held
