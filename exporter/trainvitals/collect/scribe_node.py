"""What befell the node itself, for the journal: faults of devices, devices that do not answer, words of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from trainvitals.collect.faults import FaultSeen
from trainvitals.journal import Entry
from trainvitals.telemetry import DeviceSample

#: The kernel's times and the driver's are known to some seconds, and anew after each start: what is as near is one.
NEAR = 15.0


class NodeWatch:
    """Compares the node with what it was at the last look.

    ``devices`` and ``faults`` return the newest samples and what drivers reported, ``kernel`` the kind, the place and
    the time of the last of the kernel's complaints.
    """

    def __init__(
        self,
        devices: Callable[[], Sequence[DeviceSample]] = tuple,
        faults: Callable[[], Sequence[FaultSeen]] = tuple,
        kernel: Callable[[], Sequence[tuple[str, str, float]]] = tuple,
    ) -> None:
        self._devices, self._faults, self._kernel = devices, faults, kernel
        #: When each thing was told last, by what it is.
        self._told: dict[tuple[str, ...], float] = {}
        #: Why each device that does not answer does not.
        self._down: dict[str, str] = {}

    def recall(self, entries: Iterable[Entry]) -> None:
        """Take what was told of the node before a restart, oldest first."""
        for entry in entries:
            self._recall(entry)

    def look(self, now: float) -> Iterator[Entry]:
        """Yield what is new."""
        for device in self._devices():
            yield from self._device(device, now)
        for fault in self._faults():
            if self._is_new(("xid", fault.pci, str(fault.code)), fault.time):
                text = f"XID {fault.code} on device {fault.device}: {fault.meaning}"
                details = {name: getattr(fault, name) for name in ("device", "pci", "code", "severity", "count")}
                yield Entry(kind="device", run="", time=fault.time, text=text, details=details)
        for kind, place, moment in self._kernel():
            if self._is_new(("kernel", kind, place), moment):
                text = f"{kind.replace('_', ' ')}{f' ({place})' if place else ''}"
                yield Entry(kind="kernel", run="", time=moment, text=text, details={"kind": kind, "place": place})

    def _device(self, device: DeviceSample, now: float) -> Iterator[Entry]:
        name, reason = device.uuid or str(device.index), device.reason or "unknown"
        before = self._down.get(name)
        details = {"device": str(device.index), "uuid": device.uuid, "name": device.name}
        if device.up and before is not None:
            del self._down[name]
            text = f"device {device.index} answers again"
            yield Entry(kind="device", run="", time=now, text=text, details={**details, "state": "up"})
        elif not device.up and before != reason:
            self._down[name] = reason
            moment = now if before is not None or device.down_since is None else device.down_since
            text = f"device {device.index} does not answer: {reason.replace('_', ' ')}"
            yield Entry(
                kind="device", run="", time=moment, text=text, details={**details, "state": "down", "reason": reason}
            )

    def _is_new(self, key: tuple[str, ...], moment: float) -> bool:
        before = self._told.get(key)
        self._told[key] = moment if before is None else max(before, moment)
        return before is None or moment - before > NEAR

    def _recall(self, entry: Entry) -> None:
        said = entry.details
        if entry.kind == "kernel":
            self._is_new(("kernel", str(said.get("kind")), str(said.get("place"))), entry.time)
        elif "code" in said:
            self._is_new(("xid", str(said.get("pci")), str(said["code"])), entry.time)
        elif said.get("state") == "down":
            self._down[str(said.get("uuid") or said.get("device"))] = str(said.get("reason"))
        elif said.get("state") == "up":
            self._down.pop(str(said.get("uuid") or said.get("device")), None)
