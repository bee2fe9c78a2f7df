"""Hygon DCU (also called HCU): what ``hy-smi --json`` tells."""

from __future__ import annotations

import os

from trainvitals.devices.base import Vendor
from trainvitals.devices.pci import PCI_DEVICES
from trainvitals.devices.tools import MakeRun, Runner


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    # Only the child reads: the exporter must not load what it does not need.
    from trainvitals.devices.hygon.reader import Hygon  # noqa: PLC0415

    run = runner(["/opt/hyhal/bin", "/opt/dtk/bin"])
    return Hygon(run, bus=os.environ.get("TRAINVITALS_PCI_DEVICES", PCI_DEVICES))
