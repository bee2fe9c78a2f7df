"""The tables of vendors: who is read, by which module, and how the bus knows their devices.

How to add a vendor:

1. Write ``devices/<vendor>.py``, or a package of that name, with a function ``create() -> Vendor``
   (:class:`trainvitals.devices.base.Vendor`).  Only the child process imports it; it imports the vendor's library, if
   there is one, within ``create``.  Everything that it touches comes through the constructor of its reader: the folder
   of sysfs, a :class:`trainvitals.devices.tools.Runner` for command line tools, the function that loads a library, a
   clock.  :mod:`trainvitals.devices.ascend` is a vendor that is read through tools.  Where one command tells of all
   cards, a table of wordings is enough: a file in :mod:`trainvitals.devices.told`.
2. Let the parts that read text be pure functions, and find columns and keys by their names.  Put each value into a
   sample through :class:`trainvitals.devices.plausible.Values`: it knows the marks of "cannot read", the bounds and the
   words for what failed.  Use the families of :mod:`trainvitals.metrics.devices` in their units (bytes, W, C, Hz,
   ratios from 0 to 1) and their labels as NVIDIA has them: sensor ``gpu``, clock ``sm``, severity ``corrected``.
3. Give each device an identity that stays when others vanish: the maker's own, or else the PCI address.
4. ``open`` raises NoLibraryError when tool or library is not there, and SourceDownError with a short word when it is
   there and does not answer, or is another program of the same name.  ``read`` never takes longer than a device may be
   silent: :class:`trainvitals.devices.errands.Errands` spreads costly questions over the rounds.
5. Move its row from :data:`COUNTED` to :data:`VENDORS`.  It is started when a device of it is on the bus.
6. Add its row to :mod:`trainvitals.doctor.table` and to docs/accelerators.md, and tests with fixtures of its own in
   tests/devices/<vendor>/: every known layout, every mark, a lost card, a renumbered one, a tool that hangs, a tool of
   the same name from somebody else, and random damage.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

from trainvitals.devices.base import Vendor
from trainvitals.devices.pci import ACCELERATOR, COMMUNICATION, COPROCESSOR, DISPLAY, DISPLAY_3D, VGA, Match
from trainvitals.devices.tools import MakeRun

#: What computes, whatever its maker calls it.
_ANY = (VGA, DISPLAY_3D, DISPLAY, ACCELERATOR, COPROCESSOR)


@dataclass(frozen=True)
class Row:
    """One vendor that is read: the module that does it, and how the bus knows its devices.

    It is started when one of them is on the bus; with ``always`` also without: not every one is on PCI.
    ``tools`` says that it asks tools, whose answers can be recorded.
    """

    module: str
    pci: Match
    always: bool = False
    tools: bool = True


#: By the label ``vendor``.
VENDORS: dict[str, Row] = {
    "nvidia": Row(
        "trainvitals.devices.nvidia",
        # The NVIDIA container toolkit mounts a folder of its own over /proc/driver/nvidia.
        Match(0x10DE, listing="driver/nvidia/gpus", visible="NVIDIA_VISIBLE_DEVICES"),
        always=True,
        tools=False,
    ),
    "ascend": Row("trainvitals.devices.ascend", Match(0x19E5, _ANY, visible="ASCEND_VISIBLE_DEVICES")),
    "amd": Row("trainvitals.devices.amd", Match(0x1002, _ANY)),
    "hygon": Row("trainvitals.devices.hygon", Match(0x1D94, (DISPLAY_3D, DISPLAY, ACCELERATOR, COPROCESSOR))),
    # The numbers are those of the PCI ID Repository, and for those that it does not have (Biren, Kunlunxin) of what
    # others found; docs/accelerators.md says which.
    "cambricon": Row("trainvitals.devices.told.cambricon", Match(0xCABC, _ANY, visible="CAMBRICON_VISIBLE_DEVICES")),
    "moorethreads": Row(
        "trainvitals.devices.told.moorethreads", Match(0x1ED5, _ANY, visible="MTHREADS_VISIBLE_DEVICES")
    ),
    "metax": Row("trainvitals.devices.told.metax", Match(0x9999, _ANY)),
    "iluvatar": Row("trainvitals.devices.told.iluvatar", Match(0x1E3E, _ANY, visible="ILUVATAR_COREX_VISIBLE_DEVICES")),
    "kunlunxin": Row("trainvitals.devices.told.kunlunxin", Match(0x1D22, (*_ANY, COMMUNICATION))),
    "enflame": Row("trainvitals.devices.told.enflame", Match(0x1E36, _ANY, visible="ENFLAME_VISIBLE_DEVICES")),
    "biren": Row("trainvitals.devices.told.biren", Match(0x1EE0, _ANY, visible="BIREN_VISIBLE_DEVICES")),
    "thead": Row("trainvitals.devices.told.thead", Match(0x1DED, (DISPLAY_3D, DISPLAY, ACCELERATOR, COPROCESSOR))),
    "gaudi": Row("trainvitals.devices.told.gaudi", Match(0x1DA3, (ACCELERATOR,), visible="HABANA_VISIBLE_DEVICES")),
    # Without the graphics and the accelerators that are parts of its processors.
    "intel": Row("trainvitals.devices.told.intel", Match(0x8086, (VGA, DISPLAY_3D, DISPLAY), only_cards=True)),
    # v4, v5e, v5p, v6e, v7x: network cards of Google have the same vendor, and the class of a TPU is not told.
    "tpu": Row("trainvitals.devices.told.tpu", Match(0x1AE0, devices=(0x005E, 0x0063, 0x0062, 0x006F, 0x0076))),
}

#: Vendors that nobody reads: their devices are counted.
COUNTED: Mapping[str, Match] = {
    "tenstorrent": Match(0x1E52, _ANY, visible="TT_VISIBLE_DEVICES"),
}


def matches() -> dict[str, Match]:
    """Return how the bus knows the devices of every vendor, read or not."""
    return {**{name: row.pci for name, row in VENDORS.items()}, **COUNTED}


def create(name: str, runner: MakeRun | None = None) -> Vendor:
    """Return the reader of a vendor.  Raises KeyError for an unknown name, NoLibraryError without its package.

    ``runner`` makes what runs the tools of a vendor that has some.
    """
    make = importlib.import_module(VENDORS[name].module).create
    vendor: Vendor = make() if runner is None else make(runner)
    return vendor
