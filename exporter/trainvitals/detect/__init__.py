"""Judgement.  DETECTORS is the table of contents: a detector is one file here and one row there."""

from __future__ import annotations

from collections.abc import Callable

from trainvitals.detect.base import Category, Detector, Verdict
from trainvitals.detect.nonfinite import NonfiniteLoss
from trainvitals.detect.slowdown import Slowdown
from trainvitals.detect.spike import LossSpike

__all__ = ["DETECTORS", "Category", "Detector", "Verdict", "build"]

#: In the order in which findings are shown: what explains the others comes first.
DETECTORS: tuple[Callable[[], Detector], ...] = (NonfiniteLoss, LossSpike, Slowdown)


def build() -> list[Detector]:
    """Return fresh detectors for one rank."""
    return [make() for make in DETECTORS]
