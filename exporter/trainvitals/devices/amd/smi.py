"""What ``amd-smi ... --json`` says: pure functions from its text to values.

Two shapes are known: a list with an object for each device, and since 26.x an object with that list as ``gpu_data``.
A value is ``{"value": 36, "unit": "C"}``, or a bare number, or "N/A"; of a part of a split card whole groups are "N/A".
Its MB are MiB, as the driver counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainvitals.devices import json_text
from trainvitals.devices.amd.signals import nonzero, sensors
from trainvitals.devices.plausible import NOT_UNDERSTOOD, Values, is_mark
from trainvitals.telemetry import DeviceSample, pci_address

Record = Mapping[str, Any]

_MOST_DEVICES = 256
#: What a unit is in that of our families.
_UNITS = {"%": 0.01, "W": 1.0, "C": 1.0, "MHz": 1e6, "J": 1.0, "B": 1.0, "MB": 2.0**20, "": 1.0}
#: Family, label, where the value stands.  Places of one family and label stand for each other, newest first.
_METRIC: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("utilization_ratio", (), ("usage", "gfx_activity")),
    ("memory_activity_ratio", (), ("usage", "umc_activity")),
    ("clock_hertz", ("sm",), ("clock", "gfx_0", "clk")),
    ("clock_hertz", ("memory",), ("clock", "mem_0", "clk")),
    ("ecc_errors_total", ("corrected",), ("ecc", "total_correctable_count")),
    ("ecc_errors_total", ("uncorrected",), ("ecc", "total_uncorrectable_count")),
    ("ecc_errors_total", ("deferred",), ("ecc", "total_deferred_count")),
    ("pcie_replays_total", (), ("pcie", "replay_count")),
)
#: Those where a zero says that it cannot be told.
_NONZERO: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("power_watts", ("default",), ("power", "socket_power")),
    ("energy_joules_total", (), ("energy", "total_energy_consumption")),
    ("clock_max_hertz", ("sm",), ("clock", "gfx_0", "max_clk")),
    ("clock_max_hertz", ("memory",), ("clock", "mem_0", "max_clk")),
)
_LIMITS = (("limit", "ppt0", "socket_power_limit"), ("limit", "socket_power"))
_MOST_POWER = (("limit", "ppt0", "max_power_limit"), ("limit", "max_power"))
#: What holds the clocks down (MI300 and newer), by the word that NVIDIA has for it: PPT is the limit of the power that
#: the firmware keeps to, PROCHOT an emergency that the board signals.
_VIOLATIONS = {
    "ppt": "sw_power_cap",
    "prochot": "hw_slowdown",
    "socket_thermal": "hw_thermal",
    "vr_thermal": "hw_thermal",
    "hbm_thermal": "hw_thermal",
}
_ACTIVE = {"ACTIVE": 1.0, "NOT ACTIVE": 0.0}


@dataclass
class Told:
    """What the tool said of one device."""

    name: str = ""
    driver_version: str = ""
    values: dict[tuple[str, ...], float] = field(default_factory=dict)


def records(text: str) -> dict[int, Record] | None:
    """Return what stands there by the number of the device; None when this is not what amd-smi prints."""
    document = json_text.find(text)
    if isinstance(document, dict):
        document = document.get("gpu_data")
    if not isinstance(document, list):
        return None
    found: dict[int, Record] = {}
    for record in document[:_MOST_DEVICES]:
        if not isinstance(record, dict):
            return None
        number = record.get("gpu")
        if type(number) is not int or not 0 <= number < _MOST_DEVICES:
            return None
        found.setdefault(number, record)
    return found or None


def addresses(static: Mapping[int, Record]) -> dict[str, int]:
    """Return the number of each device by its address on the bus; of the parts of a split card the first."""
    found: dict[str, int] = {}
    for number, record in sorted(static.items()):
        address = pci_address(_word(record, "bus", "bdf") or "")
        if address:
            found.setdefault(address, number)
    return found


def describe(record: Record, failed: dict[str, int]) -> Told:
    """Return name, driver and limits of the output of ``amd-smi static``; failures are counted in ``failed``."""
    values = _values(failed)
    for places, family, labels in ((_LIMITS, "power_limit_watts", ()), (_MOST_POWER, "power_limit_bound_watts", "max")):
        for place in places:
            if _put(values, record, family, (labels,) if labels else (), place, zero=False):
                break
    name, driver = _word(record, "asic", "market_name") or "", _word(record, "driver", "version") or ""
    told = Told(values=values.sample.values)
    told.name = "" if is_mark(name) else name
    told.driver_version = "" if is_mark(driver) else driver
    return told


def measure(record: Record, failed: dict[str, int]) -> dict[tuple[str, ...], float]:
    """Return the values of the output of ``amd-smi metric``; failures are counted in ``failed``."""
    values = _values(failed)
    for family, labels, place in _METRIC:
        _put(values, record, family, labels, place)
    for family, labels, place in _NONZERO:
        _put(values, record, family, labels, place, zero=False)
    temperatures = _at(record, "temperature")
    if isinstance(temperatures, dict):
        told = [name for name, value in temperatures.items() if not is_mark(_plain(value) or "")]
        for name, sensor in sensors(told).items():
            _put(values, record, "temperature_celsius", (sensor,), ("temperature", name))
    _memory(values, record)
    _violations(values, record)
    # Nothing that a dead card answers is to be believed.
    return {} if values.is_dead else values.sample.values


def _memory(values: Values, record: Record) -> None:
    used, total = _at(record, "mem_usage", "used_vram"), _at(record, "mem_usage", "total_vram")
    unit = _UNITS.get(_unit(total) or "MB")
    if unit is None or (_unit(used) or "MB") != (_unit(total) or "MB"):
        values.fail(NOT_UNDERSTOOD)
    else:
        values.memory(_plain(used), _plain(total), unit)


def _violations(values: Values, record: Record) -> None:
    for name, reason in _VIOLATIONS.items():
        text = _word(record, "throttle", f"{name}_violation_status")
        if text is None or is_mark(text):
            continue
        state = _ACTIVE.get(text.strip().upper())
        if state is None:
            values.fail(NOT_UNDERSTOOD)
        else:
            values.set("clock_limited", max(state, values.sample.values.get(("clock_limited", reason), 0.0)), reason)


def _put(
    values: Values, record: Record, family: str, labels: tuple[str, ...], place: tuple[str, ...], *, zero: bool = True
) -> bool:
    found = _at(record, *place)
    unit = _UNITS.get(_unit(found))
    if unit is None:
        values.fail(NOT_UNDERSTOOD)
        return False
    text = _plain(found)
    return values.put(family, text if zero else nonzero(text), *labels, unit=unit)


def _values(failed: dict[str, int]) -> Values:
    return Values(DeviceSample(index=0, uuid="", vendor="amd", failed=failed))


def _at(record: Any, *place: str) -> Any:
    for name in place:
        if not isinstance(record, dict):
            return None
        record = record.get(name)
    return record


def _unit(found: Any) -> str:
    return (json_text.word(found.get("unit")) or "") if isinstance(found, dict) else ""


def _plain(found: Any) -> str | None:
    return json_text.word(found.get("value") if isinstance(found, dict) else found)


def _word(record: Record, *place: str) -> str | None:
    return json_text.word(_at(record, *place))
