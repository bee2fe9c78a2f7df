"""NVIDIA devices through NVML (nvidia-ml-py).

``reader`` finds the devices and survives what may happen to them; ``signals`` is the table of what is read of each,
``rows`` what a row is, ``rounds`` reads those that are due, ``fields`` many numbered fields in one call; every other
file is one subject.
"""

from __future__ import annotations

import os

from trainvitals.devices.base import NoLibraryError, Vendor
from trainvitals.devices.pci import PCI_DEVICES


def create() -> Vendor:
    """Return a reader.  Raises NoLibraryError when nvidia-ml-py is missing or another package has taken its name."""
    # The exporter needs the table of XIDs of this package, and none of what its child does.
    from trainvitals.devices.nvidia.reader import Nvidia  # noqa: PLC0415

    try:
        import pynvml  # noqa: PLC0415  # Only the child may load it.
    except ImportError:
        raise NoLibraryError("nvidia-ml-py is not installed") from None
    if not hasattr(pynvml, "nvmlMemory_v2"):
        raise NoLibraryError("the installed module pynvml is not that of nvidia-ml-py 12.560 or newer")
    # The environment is what a parent can hand to this process: a container may see the host's bus elsewhere.
    return Nvidia(pynvml, bus=os.environ.get("TRAINVITALS_PCI_DEVICES", PCI_DEVICES))
