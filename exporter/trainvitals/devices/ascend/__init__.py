"""Huawei Ascend NPUs, through the tools npu-smi and hccn_tool.

``table`` and ``blocks`` read what the tools print and know no device; ``values`` says which of it is which value;
``reader`` asks, in a pace that costs little.  libdcmi, the library below npu-smi, would be asked first and be a module
of its own here: it brings values for which a tool must be started each time.
"""

from __future__ import annotations

import os

from trainvitals.devices.ascend.reader import Ascend
from trainvitals.devices.base import Vendor
from trainvitals.devices.pci import PCI_DEVICES
from trainvitals.devices.tools import MakeRun, Runner

#: Where drivers put their tools when these are not in PATH.
FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/local/Ascend/driver/tools")


def create(runner: MakeRun = Runner) -> Vendor:
    """Return a reader; nothing is started yet."""
    bus = os.environ.get("TRAINVITALS_PCI_DEVICES", PCI_DEVICES)
    return Ascend(runner(FOLDERS), bus=bus)
