"""Biren: ``brsmi gpu --query-gpu``."""

from __future__ import annotations

from trainvitals.devices.base import Vendor
from trainvitals.devices.told.lines import BIREN as TOOL

__all__ = ["TOOL", "create"]


def create() -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL)
