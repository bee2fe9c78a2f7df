"""Clocks of a GPU, and what holds them down.  NVML counts in MHz and ns."""

from __future__ import annotations

from trainvitals.devices.blanks import scaled
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal, call, numbered
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample

_MEGA = 1e6
_NANO = 1e-9
#: Clock domains of nvmlClockType_t: those that a training depends on.
_DOMAINS = (("sm", 1), ("memory", 2))
#: Bits of nvmlClocksEventReasons.
_REASONS = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
_KNOWN = sum(_REASONS)
#: Room for new reasons; beyond it the answer is a blank.
_MOST_BITS = 16
_SUPPORTED = "supported clock reasons"
#: Fields with the time that a reason held the clocks down, and the policy of nvmlDeviceGetViolationStatus that counted
#: the same before there were fields.
_POWER, _SYNC_BOOST, _SW_THERMAL, _HW_THERMAL, _POWER_BRAKE = 74, 76, 269, 270, 271
_POLICY_POWER, _POLICY_THERMAL, _POLICY_SYNC_BOOST = 0, 1, 2


def _now(domain: int, name: str) -> Signal:
    return call(
        Tier.FAST, lambda gpu: gpu.nvml.nvmlDeviceGetClockInfo(gpu.handle, domain), "clock_hertz", name, unit=_MEGA
    )


def _highest(domain: int, name: str) -> Signal:
    return call(
        Tier.SLOW,
        lambda gpu: gpu.nvml.nvmlDeviceGetMaxClockInfo(gpu.handle, domain),
        "clock_max_hertz",
        name,
        unit=_MEGA,
    )


def _supported(gpu: Gpu) -> int:
    """Return the reasons that this device can tell, asked once; all where it does not say."""
    nvml = gpu.nvml
    if _SUPPORTED not in gpu.kept:
        gpu.kept[_SUPPORTED] = gpu.or_else(
            lambda: nvml.nvmlDeviceGetSupportedClocksEventReasons(gpu.handle),
            lambda: gpu.or_else(
                lambda: nvml.nvmlDeviceGetSupportedClocksThrottleReasons(gpu.handle),
                lambda: _KNOWN,
            ),
        )
    supported: int = gpu.kept[_SUPPORTED]
    return supported


def _limited(gpu: Gpu, sample: DeviceSample) -> None:
    nvml = gpu.nvml
    now = gpu.or_else(
        lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu.handle),
        lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu.handle),
    )
    if now >> _MOST_BITS:
        raise ValueError("not a set of reasons")
    shown = _supported(gpu) | now
    for bit, reason in _REASONS.items():
        if shown & bit:
            sample.set("clock_limited", float(bool(now & bit)), reason)


def _nanoseconds(gpu: Gpu, policy: int) -> float:
    time: float = gpu.nvml.nvmlDeviceGetViolationStatus(gpu.handle, policy).violationTime
    return time


def _thermal(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the time of both thermal reasons together, where they are not told apart."""
    if not (gpu.has(_SW_THERMAL) or gpu.has(_HW_THERMAL)):
        sample.set("clock_limited_seconds_total", scaled(_nanoseconds(gpu, _POLICY_THERMAL), _NANO), "thermal")


_SECONDS = "clock_limited_seconds_total"

SIGNALS = (
    *(_now(domain, name) for name, domain in _DOMAINS),
    Signal(Tier.FAST, _limited),
    numbered(
        Tier.MEDIUM, _POWER, _SECONDS, "sw_power_cap", unit=_NANO, older=lambda gpu: _nanoseconds(gpu, _POLICY_POWER)
    ),
    numbered(
        Tier.MEDIUM,
        _SYNC_BOOST,
        _SECONDS,
        "sync_boost",
        unit=_NANO,
        older=lambda gpu: _nanoseconds(gpu, _POLICY_SYNC_BOOST),
    ),
    numbered(Tier.MEDIUM, _SW_THERMAL, _SECONDS, "sw_thermal", unit=_NANO),
    numbered(Tier.MEDIUM, _HW_THERMAL, _SECONDS, "hw_thermal", unit=_NANO),
    numbered(Tier.MEDIUM, _POWER_BRAKE, _SECONDS, "hw_power_brake", unit=_NANO),
    Signal(Tier.MEDIUM, _thermal, (_SW_THERMAL, _HW_THERMAL)),
    *(_highest(domain, name) for name, domain in _DOMAINS),
    call(Tier.SLOW, lambda gpu: gpu.nvml.nvmlDeviceGetPerformanceState(gpu.handle), "performance_state"),
)
