"""What broke on the node in the same minute as something else: a finding names it, and whoever reads it looks there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainvitals.collect.faults import FaultLog
from trainvitals.host.kernel_kinds import KINDS
from trainvitals.telemetry import DeviceSample, pci_address

#: So many are named; the gravest come first.
_MOST = 4
_SECONDS = 60.0
#: Complaints of the kernel that can be the cause of something; a notice cannot.
_GRAVE = frozenset(kind.name for kind in KINDS if kind.severity in {"critical", "warning"})


class SameMinute:
    """Asked with a time of day, and the UUID and PCI address of a device (empty where they are not known).

    Faults that a driver reported come first, then devices that stopped to answer, then what the kernel complained of,
    which belongs to no device.  ``devices`` and ``kernel`` return what is known now, in any thread: kind, place and
    time of each last complaint.
    """

    def __init__(
        self,
        faults: FaultLog,
        devices: Callable[[], Sequence[DeviceSample]],
        kernel: Callable[[], Sequence[tuple[str, str, float]]],
    ) -> None:
        self._faults, self._devices, self._kernel = faults, devices, kernel

    def __call__(self, moment: float, uuid: str, pci: str) -> list[str]:
        """Return in words what there was within a minute of a time."""
        reported = self._faults.near(moment, uuid, pci, _SECONDS)
        return [*reported, *self._down(moment, uuid, pci), *self._said(moment)][:_MOST]

    def _down(self, moment: float, uuid: str, pci: str) -> list[str]:
        wanted = {uuid, pci_address(pci)} - {""}
        return [
            f"device {device.index} stopped to answer ({device.reason.replace('_', ' ') or 'no reason told'})"
            for device in self._devices()
            if not device.up
            and device.down_since is not None
            and abs(device.down_since - moment) <= _SECONDS
            and (not wanted or wanted & {device.uuid, pci_address(device.pci_bus_id)})
        ]

    def _said(self, moment: float) -> list[str]:
        said = [(kind, place) for kind, place, last in self._kernel() if abs(last - moment) <= _SECONDS]
        near = [(kind, place) for kind, place in said if kind in _GRAVE]
        return [f"kernel: {kind.replace('_', ' ')}{f' ({place})' if place else ''}" for kind, place in sorted(near)]
