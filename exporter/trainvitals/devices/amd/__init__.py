"""AMD devices: the attribute files of the driver amdgpu, and what only ``amd-smi`` tells."""

from __future__ import annotations

import os

from trainvitals.devices.base import Vendor
from trainvitals.devices.tools import MakeRun, Runner


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    # Only the child reads: the exporter must not load what it does not need.
    from trainvitals.devices.amd.reader import Amd  # noqa: PLC0415

    # A container may see the bus of its host elsewhere.
    return Amd(runner(["/opt/rocm/bin"]), bus=os.environ.get("TRAINVITALS_PCI_DEVICES", ""))
