"""The devices of this node and their faults, as the exporter's page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainvitals.collect.base import clean
from trainvitals.collect.faults import FaultSeen
from trainvitals.telemetry import DeviceSample

MAX_DEVICES, MAX_FAULTS = 64, 20
_LONGEST = 128
#: By the name in JSON: the keys of :class:`DeviceSample` of which the first that is there counts, and its range.
_VALUES: dict[str, tuple[tuple[tuple[str, ...], ...], float]] = {
    "utilization": ((("utilization_ratio",),), 1.0),
    "temperature": ((("temperature_celsius", "gpu"),), 250.0),
    "memory_used": ((("memory_used_bytes",),), 1e15),
    "memory_total": ((("memory_total_bytes",),), 1e15),
    "power": ((("power_watts", "average"), ("power_watts", "instant"), ("power_watts", "default")), 1e5),
    "power_limit": ((("power_limit_watts",),), 1e5),
}
#: Reasons why the clocks of a device are held down that nobody asked for: heat, and a lack of power.
_SLOWED = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")


def show_devices(
    devices: Sequence[DeviceSample], faults: Sequence[FaultSeen], users: Mapping[str, tuple[str, int]]
) -> dict[str, Any]:
    """Return the devices, with the rank that computes on each, and the newest faults."""
    shown = [_device(device, users) for device in devices[:MAX_DEVICES]]
    newest = sorted(faults, key=lambda fault: -fault.time)[:MAX_FAULTS]
    return {"devices": shown, "more_devices": max(0, len(devices) - MAX_DEVICES), "faults": [_fault(f) for f in newest]}


def _device(device: DeviceSample, users: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "index": device.index,
        "uuid": clean(device.uuid, _LONGEST),
        "vendor": clean(device.vendor, _LONGEST),
        "name": clean(device.name, _LONGEST),
        "up": device.up,
    }
    if not device.up:
        found["reason"] = clean(device.reason or "unknown", _LONGEST)
    for name, (keys, highest) in _VALUES.items():
        value = next((device.values[key] for key in keys if key in device.values), None)
        if value is not None and 0.0 <= value <= highest:
            found[name] = float(f"{value:.4g}")
    slowed = [reason for reason in _SLOWED if device.values.get(("clock_limited", reason)) == 1.0]
    if slowed:
        found["slowed"] = slowed
    if device.uuid in users:
        found["run"], found["rank"] = users[device.uuid]
    return found


def _fault(fault: FaultSeen) -> dict[str, Any]:
    return {
        "time": round(fault.time, 1),
        "device": clean(fault.device, _LONGEST),
        "code": fault.code,
        "count": fault.count,
        "level": "act" if fault.severity == "critical" else "watch" if fault.severity == "warning" else "",
        "text": clean(fault.meaning, _LONGEST),
    }
