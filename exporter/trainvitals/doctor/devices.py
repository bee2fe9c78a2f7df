"""Devices of any vendor: the real reading process is started once, and what it tells is judged.

What differs between vendors is in a table (:class:`Advice`); another vendor is a row of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from trainvitals.devices.child import Process, spawn
from trainvitals.devices.detect import Census
from trainvitals.devices.pci import PCI_DEVICES, Bus
from trainvitals.devices.vendors import VENDORS, matches
from trainvitals.devices.wire import DRIVER, Lines, Message, decode
from trainvitals.doctor.base import Here, Result, absent, ok, problem
from trainvitals.doctor.container import inside
from trainvitals.telemetry import DeviceSample, pci_address

#: Seconds that reading gets in all, less than the whole examination; and without a word from the reading process.
PATIENCE = 10.0
STILL = 6.0
#: Some values are differences, so the first reading has none of them.
_READINGS = 2
_INTERVAL = 0.3
#: Seconds that the process gets to end when it was killed.
_GRACE = 0.5


class Reason(NamedTuple):
    """Why a signal may be missing on a device, and what would bring it; ``{index}`` stands for the device."""

    holds: Callable[[DeviceSample], bool]
    why: str
    action: str = ""


class Signal(NamedTuple):
    """Values of one kind: they are there when one of ``families`` is (with its first labels, where given)."""

    title: str
    families: tuple[tuple[str, ...], ...]
    reasons: tuple[Reason, ...] = ()


class Advice(NamedTuple):
    """What to do about the devices of one vendor.

    ``driver`` and ``device`` map a reason to a command; ``look`` is the command for all others.  ``{index}`` stands for
    the device.  ``installed`` is the command that brings the driver, ``in_container`` the one that hands devices in.
    """

    title: str
    signals: tuple[Signal, ...]
    driver: Mapping[str, str]
    device: Mapping[str, str]
    look: str
    installed: str
    in_container: str


@dataclass
class Seen:
    """What a reading process told before its time was up: its last message, and what it was asking then."""

    message: Message | None = None
    asking: int | None = None
    is_silent: bool = False


class Start(Protocol):
    """How a reading process is started."""

    def __call__(
        self, vendor: str, interval: float, environ: Mapping[str, str], *, avoid: Collection[int] = ()
    ) -> Process:
        """Start one that leaves the devices in ``avoid`` alone."""


def check(vendor: str, advice: Advice, start: Start = spawn) -> Callable[[Here], Iterator[Result]]:
    """Return the check of one vendor's devices."""

    def make(here: Here) -> Iterator[Result]:
        if paused(here):
            file = here.settings.devices.pause_file
            yield ok(f"nobody reads them while {file} exists", f"rm {shlex.quote(file)}", "paused")
            return
        until = time.monotonic() + PATIENCE
        if not VENDORS[vendor].always and not Census(matches(), _bus(here)).has(vendor):
            yield absent("no device of this vendor on the PCI bus")
            return
        bus, container = on_the_bus(vendor, here), inside(here)
        seen = _read(vendor, start, here, until)
        if seen.is_silent and seen.asking is not None and seen.asking != DRIVER:
            yield from judge(seen, advice, None, container)
            # The others may well answer.
            seen = _read(vendor, start, here, until, {seen.asking})
            bus = None
            if seen.is_silent:
                return
        yield from judge(seen, advice, bus, container)
        yield from _as_expected(seen, here.settings.devices.expected, advice)

    return make


def _read(vendor: str, start: Start, here: Here, until: float, avoid: Collection[int] = ()) -> Seen:
    child = start(vendor, _INTERVAL, here.environ, avoid=avoid)
    try:
        return follow(child, vendor, until)
    finally:
        _end(child)


def _end(child: Process) -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    # One that the kernel holds is left to it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE)


def paused(here: Here) -> bool:
    """Say whether the settings' file tells everybody to leave the drivers alone."""
    file = here.settings.devices.pause_file
    return bool(file) and os.path.exists(here.path(file))


def on_the_bus(vendor: str, here: Here) -> frozenset[str] | None:
    """Return the PCI addresses of the vendor's devices that should be readable; None when that cannot be told."""
    found = Bus(VENDORS[vendor].pci, root=_bus(here), environ=here.environ, proc=here.path("/proc")).look()
    return None if found is None else found.here


def _bus(here: Here) -> str:
    # As the reading process itself: a container may see the bus of its node elsewhere.
    return here.environ.get("TRAINVITALS_PCI_DEVICES") or here.path(PCI_DEVICES)


def follow(child: Process, vendor: str, until: float) -> Seen:
    """Take what a reading process writes until it has said enough, has ended, or is silent; ``until`` is monotonic."""
    assert child.stdout is not None  # noqa: S101  # It was started with a pipe.
    output = child.stdout.fileno()
    seen, readings, lines = Seen(), 0, Lines()
    while readings < _READINGS:
        remaining = min(until - time.monotonic(), STILL)
        if remaining <= 0 or not select.select([output], [], [], remaining)[0]:
            seen.is_silent = True
            return seen
        chunk = os.read(output, 1 << 16)
        if not chunk:
            return seen
        for message in (decode(line, vendor) for line in lines.feed(chunk)):
            if message.at is not None:
                seen.asking = message.at
                continue
            seen.message = message
            if message.down or message.absent:
                return seen
            readings += 1
    return seen


def judge(seen: Seen, advice: Advice, bus: frozenset[str] | None, container: str) -> Iterator[Result]:
    """Say what a reading means; ``bus`` are the addresses that should be readable."""
    message = seen.message
    if seen.is_silent:
        yield _silent(seen)
    elif message is None:
        yield problem("the process that reads them ended without a word", advice.look)
    elif message.absent:
        yield _absent(message.absent, advice, bus, container)
    elif message.down:
        yield problem(
            f"the driver does not answer: {_words(message.down)}", _command(advice.driver, message.down, advice)
        )
    else:
        yield from _devices(message.devices, advice, bus)
        yield from _signals([device for device in message.devices if device.up], advice)


def _silent(seen: Seen) -> Result:
    if seen.asking is None:
        where = "the process that reads them did not start to ask"
    elif seen.asking == DRIVER:
        where = "the driver as a whole hangs"
    else:
        where = f"it hangs, or takes more than {STILL:g} s to start (persistence mode is off)"
    subject = "" if seen.asking in {None, DRIVER} else f"device {seen.asking}"
    return problem(f"no answer: {where}", "dmesg | tail -n 50", subject)


def _absent(reason: str, advice: Advice, bus: frozenset[str] | None, container: str) -> Result:
    if not bus:
        return absent(reason)
    why = f"{reason}, though the PCI bus has {len(bus)} devices of this vendor"
    return problem(why, advice.in_container if container else advice.installed)


def _devices(devices: Sequence[DeviceSample], advice: Advice, bus: frozenset[str] | None) -> Iterator[Result]:
    alive = [device for device in devices if device.up]
    if not devices and not bus:
        yield absent("the driver counts no device")
    if alive:
        kinds = sorted({device.name or "without a name" for device in alive})
        version = alive[0].driver_version
        yield ok(f"{len(alive)} answer: {', '.join(kinds)}; driver {version}", subject="answering")
    for device in devices:
        if not device.up:
            action = _command(advice.device, device.reason, advice).format(index=device.index)
            yield problem(f"it does not answer: {_words(device.reason)}", action, f"device {device.index}")
    if bus is not None:
        known = {pci_address(device.pci_bus_id) for device in devices}
        for address in sorted(bus - known) if len(known) < len(bus) else ():
            yield problem("on the PCI bus, but the driver does not count it", f"lspci -vs {address}", address)
    failed: dict[str, int] = {}
    for device in alive:
        for reason, count in device.failed.items():
            failed[reason] = failed.get(reason, 0) + count
    for reason, count in sorted(failed.items()):
        if reason == "no_permission":
            yield ok(f"{count} values are told to root alone", "sudo trainvitals doctor", "permission")
        else:
            yield problem(f"{count} values could not be read: {_words(reason)}", advice.look, f"reading ({reason})")


def _as_expected(seen: Seen, expected: int | None, advice: Advice) -> Iterator[Result]:
    """Compare with the number of devices that the settings expect."""
    if expected is None or seen.is_silent:
        return
    count = sum(device.up for device in seen.message.devices) if seen.message else 0
    if count < expected:
        yield problem(f"{count} answer, and devices.expected is {expected}", advice.look, "expected")


def _signals(devices: Sequence[DeviceSample], advice: Advice) -> Iterator[Result]:
    """Say which signals are missing on which devices, and why."""
    for signal in advice.signals:
        by_reason: dict[tuple[str, str], list[int]] = {}
        for device in devices:
            if not any(key[: len(family)] == family for family in signal.families for key in device.values):
                reason = _reason(signal, device)
                by_reason.setdefault((reason.why, reason.action), []).append(device.index)
        for (why, action), indices in by_reason.items():
            which = "" if len(indices) == len(devices) else f" (devices {', '.join(map(str, indices))})"
            yield absent(f"{why}{which}", action.format(index=indices[0]), signal.title)
    if devices:
        there = [signal.title for signal in advice.signals if all(_has(signal, device) for device in devices)]
        yield ok(", ".join(there) if there else "none beyond the basic ones", subject="signals")


def _has(signal: Signal, device: DeviceSample) -> bool:
    return any(key[: len(family)] == family for family in signal.families for key in device.values)


def _reason(signal: Signal, device: DeviceSample) -> Reason:
    for reason in signal.reasons:
        if reason.holds(device):
            return reason
    return Reason(lambda _: True, f"the driver {device.driver_version} does not tell it for this device")


def _command(table: Mapping[str, str], reason: str, advice: Advice) -> str:
    return table.get(reason, advice.look)


def _words(reason: str) -> str:
    return (reason or "unknown").replace("_", " ")
