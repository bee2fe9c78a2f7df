"""Biren: ``brsmi gpu --query-gpu``."""

from __future__ import annotations

from trainvitals.devices.base import Vendor
from trainvitals.devices.told.lines import BIREN as TOOL
from trainvitals.devices.tools import MakeRun, Runner

__all__ = ["TOOL", "create"]


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL, runner)
