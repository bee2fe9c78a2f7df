"""The table of vendors: name (the label ``vendor``), the module that reads its devices, and how the bus knows them.

Such a module has a function ``create() -> Vendor`` that imports the vendor's library, and is imported by the child
process alone.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from trainvitals.devices.base import Vendor
from trainvitals.devices.pci import Match


@dataclass(frozen=True)
class Row:
    """One vendor."""

    module: str
    pci: Match


VENDORS: dict[str, Row] = {
    "nvidia": Row(
        "trainvitals.devices.nvidia",
        # The NVIDIA container toolkit mounts a folder of its own over /proc/driver/nvidia.
        Match(0x10DE, listing="driver/nvidia/gpus", visible="NVIDIA_VISIBLE_DEVICES"),
    ),
}


def create(name: str) -> Vendor:
    """Return the reader of a vendor.  Raises KeyError for an unknown name, NoLibraryError without its package."""
    vendor: Vendor = importlib.import_module(VENDORS[name].module).create()
    return vendor
