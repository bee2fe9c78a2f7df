"""What is read of each card in each tier.  Files, units and the order of sensors are those of amdgpu's documentation.

The kernel tells temperatures in thousandths of a degree, power in millionths of a watt, clocks in Hz.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from trainvitals.devices.amd.cards import Attributes
from trainvitals.devices.plausible import NOT_UNDERSTOOD, Values, is_mark, number
from trainvitals.devices.tiers import Tier

_MILLI, _MICRO, _MEGA = 1e-3, 1e-6, 1e6
#: Gigatransfers per second and the generation of PCIe that has them.
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})
#: All bits of the field of the width are set: the card does not answer on the bus any more.
_NO_LINK = 63
_SPEED = re.compile(r"([\d.]{1,6}) GT/s.*")
_LEVEL = re.compile(r"^\s*\w{1,4}:\s*(\d{1,6})Mhz", re.IGNORECASE | re.MULTILINE)
_ERRORS = re.compile(r"^(ue|ce|de):\s*(\d{1,19})\s*$", re.MULTILINE)
_SEVERITIES = {"ue": "uncorrected", "ce": "corrected", "de": "deferred"}
_PAGE = re.compile(r"^0x[0-9a-f]+\s*:\s*0x[0-9a-f]+\s*:\s*([RPF])\s*$", re.IGNORECASE | re.MULTILINE)


def sensors(names: Iterable[str]) -> dict[str, str]:
    """Return the label ``sensor`` by the name that AMD gives it, of those that a card has.

    ``gpu`` is the edge of the chip, and its hottest spot (junction) where the edge is not measured, as on MI300.
    """
    known = set(names)
    hottest = "hotspot" if "edge" in known else "gpu"
    labels = {"edge": "gpu", "junction": hottest, "hotspot": hottest, "mem": "memory"}
    return {name: label for name, label in labels.items() if name in known}


def nonzero(text: str | None) -> str | None:
    """Return the text, None for a zero where that is what a card answers that cannot tell: no card draws 0 W."""
    return None if text is not None and number(text) == 0 else text


def generation(speed: str | None) -> int | None:
    """Return the generation of PCIe of a text such as ``16.0 GT/s PCIe``."""
    match = _SPEED.fullmatch(speed or "")
    value = number(match[1]) if match else None
    return None if value is None else GENERATIONS.get(value)


def _fast(read: Attributes, values: Values) -> None:
    values.put("utilization_ratio", read("gpu_busy_percent"), unit=0.01)
    values.put("memory_activity_ratio", read("mem_busy_percent"), unit=0.01)
    values.memory(read("mem_info_vram_used"), read("mem_info_vram_total"), 1.0)
    for hwmon in read.names("hwmon")[:1]:
        for label, sensor in _sensors(read, hwmon).items():
            values.put("temperature_celsius", read(f"{sensor}_input"), label, unit=_MILLI)
        for kind, name in (("average", "power1_average"), ("instant", "power1_input")):
            values.put("power_watts", nonzero(read(f"{hwmon}/{name}")), kind, unit=_MICRO)
        for name, clock in _clocks(read, hwmon).items():
            values.put("clock_hertz", read(name), clock)


def _sensors(read: Attributes, hwmon: str) -> dict[str, str]:
    """Return the path of each sensor, without its end, by the label."""
    paths = {read(f"{hwmon}/temp{place}_label"): f"{hwmon}/temp{place}" for place in (1, 2, 3)}
    # The oldest cards have one sensor, and no name for it.
    paths = {name: path for name, path in paths.items() if name} or {"edge": f"{hwmon}/temp1"}
    return {label: paths[name] for name, label in sensors(name for name in paths if name).items()}


def _clocks(read: Attributes, hwmon: str) -> dict[str, str]:
    """Return the clock by the path of its file."""
    labels = {"sclk": "sm", "mclk": "memory"}
    found = {}
    for place, usual in ((1, "sclk"), (2, "mclk")):
        label = labels.get(read(f"{hwmon}/freq{place}_label") or usual)
        if label:
            found[f"{hwmon}/freq{place}_input"] = label
    return found


def _medium(read: Attributes, values: Values) -> None:
    _link(read, values, "current", "pcie_generation", "pcie_width")
    values.put("pcie_replays_total", read("pcie_replay_count"))
    _ecc(read, values)
    for hwmon in read.names("hwmon")[:1]:
        values.put("power_limit_watts", nonzero(read(f"{hwmon}/power1_cap")), unit=_MICRO)


def _link(read: Attributes, values: Values, which: str, speed: str, width: str) -> None:
    found = generation(read(f"{which}_link_speed"))
    if found is not None:
        values.set(speed, float(found))
    text = read(f"{which}_link_width")
    lanes = number(text) if text is not None and not is_mark(text) else None
    if lanes == _NO_LINK:
        read.reasons.add("gpu_is_lost")
        values.fail("gpu_is_lost")
    elif lanes in _WIDTHS:
        values.set(width, float(lanes))
    elif lanes is not None and lanes > 0:
        values.refuse(width)


def _ecc(read: Attributes, values: Values) -> None:
    """Set the errors of all blocks together; nothing where one of them cannot be read: a counter must not fall."""
    totals: dict[str, float] = {}
    for name in read.names("ras", "_err_count"):
        text = read(name)
        counts = _ERRORS.findall(text or "")
        if not counts:
            if text:
                values.fail(NOT_UNDERSTOOD)
            return
        for kind, count in counts:
            totals[_SEVERITIES[kind]] = totals.get(_SEVERITIES[kind], 0.0) + float(count)
    for severity, total in totals.items():
        values.set("ecc_errors_total", total, severity)


def _slow(read: Attributes, values: Values) -> None:
    _link(read, values, "max", "pcie_max_generation", "pcie_max_width")
    for clock, name in (("sm", "pp_dpm_sclk"), ("memory", "pp_dpm_mclk")):
        levels = [int(level) for level in _LEVEL.findall(read(name) or "")]
        if any(levels):
            values.set("clock_max_hertz", max(levels) * _MEGA, clock)
    for hwmon in read.names("hwmon")[:1]:
        found = _sensors(read, hwmon)
        for sensor, end, limit in (
            ("gpu", "crit", "slowdown"),
            ("gpu", "emergency", "shutdown"),
            ("memory", "crit", "memory_max"),
        ):
            text = read(f"{found[sensor]}_{end}") if sensor in found else None
            values.put("temperature_limit_celsius", nonzero(text), limit, unit=_MILLI)
        for bound in ("min", "max", "default"):
            text = read(f"{hwmon}/power1_cap_{bound}")
            values.put("power_limit_bound_watts", text if bound == "min" else nonzero(text), bound, unit=_MICRO)
    _pages(read, values)
    _hardware(read, values)


def _pages(read: Attributes, values: Values) -> None:
    """Set the bad pages: R are out of use, P will be with the next reset."""
    text = read("ras/gpu_vram_bad_pages")
    if text is None:
        return
    states = [state.upper() for state in _PAGE.findall(text)]
    if text and not states:
        values.fail(NOT_UNDERSTOOD)
        return
    values.set("retired_pages", float(states.count("R")), "uncorrected")
    values.set("retired_pages_pending", float("P" in states))


def _hardware(read: Attributes, values: Values) -> None:
    parts = [read(name) or "" for name in ("serial_number", "product_number", "vbios_version")]
    minor = [name.rpartition("renderD")[2] for name in read.names("drm") if "renderD" in name]
    labels = [*("" if is_mark(part) else part for part in parts), minor[0] if minor else "", ""]
    if any(labels):
        values.set("hardware_info", 1.0, *labels)


SIGNALS: Mapping[Tier, Callable[[Attributes, Values], None]] = {
    Tier.FAST: _fast,
    Tier.MEDIUM: _medium,
    Tier.SLOW: _slow,
}
