"""The table of vendors: name (the label ``vendor``) and the module that reads its devices.

Such a module has a function ``create() -> Vendor`` that imports the vendor's library, and is imported by the child
process alone.
"""

from __future__ import annotations

import importlib

from trainvitals.devices.base import Vendor

VENDORS: dict[str, str] = {
    "nvidia": "trainvitals.devices.nvidia",
}


def create(name: str) -> Vendor:
    """Return the reader of a vendor.  Raises KeyError for an unknown name, NoLibraryError without its package."""
    vendor: Vendor = importlib.import_module(VENDORS[name]).create()
    return vendor
