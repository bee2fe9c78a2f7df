"""Judgement.  DETECTORS is the table of contents: a detector is one file here and one row there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from trainvitals.detect.base import Category, Detector, Verdict
from trainvitals.detect.bottleneck import Bottleneck
from trainvitals.detect.collapsed import LossCollapsed
from trainvitals.detect.communication_bound import CommunicationBound
from trainvitals.detect.data_starvation import DataStarvation
from trainvitals.detect.decoupled import MetricDecoupled
from trainvitals.detect.diverged import LossDiverged
from trainvitals.detect.drift import LossDrift
from trainvitals.detect.forgetting import Forgetting
from trainvitals.detect.gradient import GradientAnomaly
from trainvitals.detect.leakage import LeakageSuspected
from trainvitals.detect.mismatch import EvaluationMismatch
from trainvitals.detect.nonfinite import NonfiniteLoss
from trainvitals.detect.not_falling import LossNotFalling
from trainvitals.detect.overfitting import Overfitting
from trainvitals.detect.plateau import Plateau
from trainvitals.detect.recurring import RecurringOutlier
from trainvitals.detect.slowdown import Slowdown
from trainvitals.detect.spike import LossSpike
from trainvitals.detect.stop_loss import StopLoss

__all__ = ["DETECTORS", "Category", "Detector", "Verdict", "build"]

#: In the order in which findings are shown: what explains the others comes first.
DETECTORS: tuple[Callable[..., Detector], ...] = (
    NonfiniteLoss,
    LossCollapsed,
    LossDiverged,
    RecurringOutlier,
    LossSpike,
    LossDrift,
    GradientAnomaly,
    LossNotFalling,
    EvaluationMismatch,
    LeakageSuspected,
    Overfitting,
    Forgetting,
    MetricDecoupled,
    Plateau,
    StopLoss,
    Slowdown,
    DataStarvation,
    CommunicationBound,
    Bottleneck,
)


def build(settings: Mapping[str, Any] | None = None, without: Collection[str] = ()) -> list[Detector]:
    """Return fresh detectors for one rank, by the settings of those signals that have some; see :mod:`rules`."""
    made = [make() for make in DETECTORS]
    if settings or without:
        chosen = settings or {}
        pairs = [(make, detector.signal) for make, detector in zip(DETECTORS, made, strict=True)]
        made = [make(chosen[name]) if name in chosen else make() for make, name in pairs if name not in without]
    return made
