"""Every device that was seen: what is known of it now, why and since when it is down, and which should be here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from trainvitals.devices.pci import Found
from trainvitals.telemetry import DeviceSample

Devices = tuple[DeviceSample, ...]

HUNG, DRIVER_DOWN, MISSING = "hung", "driver", "missing"
#: A driver that gives new names for ever must not grow the exporter.
_MOST_MISSING = 64


def merge(
    before: Devices, now: Iterable[DeviceSample], *, avoided: Collection[int], moved: bool, when: float
) -> Devices:
    """Return the devices after a reading.

    ``avoided`` were left alone because they hang.  ``moved`` says that the driver counts another number of devices, so
    that an index may mean another one.  ``when`` is the time of the reading, by the clock of ``down_since``.  A device
    that was seen before and is not among them is missing, unless another one is in its place.
    """
    listed = {device.index: device for device in before if device.reason != MISSING and not moved}
    fresh = list(now)
    names = {device.uuid for device in fresh if device.uuid}
    fresh = [_named(device, listed.get(device.index), names) for device in fresh]
    for index in sorted(set(avoided) - {device.index for device in fresh}):
        if index in listed:
            fresh.append(listed[index].down(HUNG))
    earlier = {device.uuid or device.index: device for device in before}
    found = [_since(device, earlier.get(device.uuid or device.index), when) for device in fresh]
    return tuple(sorted([*found, *_missing(before, found, bool(moved and avoided), when)], key=lambda one: one.index))


def _named(device: DeviceSample, known: DeviceSample | None, names: Collection[str]) -> DeviceSample:
    """Give a device that does not tell its identity the one that its index had before.

    A new process cannot ask a lost device who it is; its series must stay the same all the same.
    """
    if device.uuid or known is None or known.uuid in names:
        return device
    return replace(device, uuid=known.uuid, name=known.name, pci_bus_id=known.pci_bus_id)


def _since(device: DeviceSample, earlier: DeviceSample | None, when: float) -> DeviceSample:
    if device.up:
        return device
    kept = None if earlier is None or earlier.up else earlier.down_since
    return replace(device, down_since=when if kept is None else kept)


def _missing(before: Devices, found: Sequence[DeviceSample], unsure: bool, when: float) -> list[DeviceSample]:
    names = {device.uuid for device in found}
    places = {device.pci_bus_id for device in found if device.pci_bus_id}
    gone = []
    for device in before:
        if device.uuid and device.uuid not in names and device.pci_bus_id not in places:
            # One that was left alone under its old number is read again next time.
            reason = HUNG if unsure and device.reason == HUNG else MISSING
            gone.append(_since(device.down(reason), device, when))
    return gone[:_MOST_MISSING]


def take_down(before: Devices, reason: str, when: float, *, hung: Collection[int] = ()) -> Devices:
    """Return the devices without values for a driver that does not answer; those in ``hung`` are why."""
    return tuple(
        device
        if device.reason == MISSING
        else _since(device.down(HUNG if device.index in hung else reason), device, when)
        for device in before
    )


def hang(before: Devices, index: int, vendor: str, when: float) -> Devices:
    """Return the devices with one that hangs, known or not."""
    if not any(device.index == index and device.reason != MISSING for device in before):
        before = (*before, DeviceSample(index=index, uuid="", vendor=vendor))
    return tuple(
        _since(device.down(HUNG), device, when) if device.index == index and device.reason != MISSING else device
        for device in before
    )


def forget(before: Devices, addresses: Collection[str]) -> Devices:
    """Return the devices without missing ones that were given to a virtual machine."""
    return tuple(device for device in before if device.reason != MISSING or device.pci_bus_id not in addresses)


def place(devices: Devices, found: Found | None) -> Devices:
    """Return the devices, with an address for one that does not tell it where only one is left on the bus."""
    nameless = [device for device in devices if not device.pci_bus_id and device.reason != MISSING]
    if found is None or len(nameless) != 1:
        return devices
    rest = found.here - _addresses(devices)
    if len(rest) != 1:
        return devices
    (address,) = rest
    return tuple(replace(device, pci_bus_id=address) if device is nameless[0] else device for device in devices)


@dataclass(frozen=True)
class Inventory:
    """How many devices should be here, None when nobody knows, and the addresses of those that the driver lacks."""

    expected: int | None = None
    missing: tuple[str, ...] = ()


def inventory(devices: Devices, found: Found | None, *, count: int, expected: int | None, listed: bool) -> Inventory:
    """Compare what should be here with what the driver has.

    Expected are the devices on the bus and those that were ever seen, or as many as the settings say (``expected``).
    ``count`` is the number of devices that the driver has; ``listed`` says that it tells which, now.
    """
    wanted = _addresses(devices) | (frozenset() if found is None else found.here)
    number = max(len(wanted), count)
    if expected is not None:
        number = expected
    elif found is None and not number:
        return Inventory()
    if not listed or count >= number or any(not device.pci_bus_id for device in devices):
        # With a device that does not tell its address, any of the rest may be it.
        return Inventory(number)
    present = _addresses(device for device in devices if device.reason != MISSING)
    return Inventory(number, tuple(sorted(wanted - present)))


def _addresses(devices: Iterable[DeviceSample]) -> frozenset[str]:
    return frozenset(device.pci_bus_id for device in devices if device.pci_bus_id)
