"""One round of reading a GPU: the signals that are due, each for itself."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.devices.nvidia.errors import LASTING, Effect, meaning, minor
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample


def read(gpu: Gpu, sample: DeviceSample, signals: Sequence[Signal], now: float) -> bool:
    """Fill ``sample`` with what is due at ``now`` and the last of the rest; whether the device answered.

    Failures are counted in the sample.  Raises NVMLError when the device or the driver is gone.
    """
    due = gpu.schedule.due(now)
    if Tier.SLOW in due:
        gpu.forget_absent()
    asked = answered = False
    for tier in due:
        sample.values = {}
        rows = [signal for signal in signals if signal.tier is tier and signal not in gpu.absent]
        gpu.prepare(number for row in rows for number in row.fields)
        for row in rows:
            asked = True
            answered |= _signal(row, gpu, sample)
        gpu.parts[tier] = sample.values
    sample.values = {key: value for part in gpu.parts.values() for key, value in part.items()}
    sample.processes = gpu.processes
    return answered or not asked


def _signal(signal: Signal, gpu: Gpu, sample: DeviceSample) -> bool:
    """Read one signal; whether the device answered."""
    before = len(sample.values)
    try:
        signal.read(gpu, sample)
    except gpu.nvml.NVMLError as error:
        if not minor(error.value, sample.failed):
            raise
        if len(sample.values) == before and error.value in LASTING:
            gpu.absent.add(signal)
        return meaning(error.value)[1] is Effect.ABSENT
    except AttributeError as error:
        if error.obj is gpu.nvml:
            # The binding is older than the call: no device can have it.
            gpu.absent.add(signal)
            return True
        return _not_understood(sample)
    except Exception:  # A driver newer than its binding, or than this file, answers in its own way.
        return _not_understood(sample)
    # A reader that had nothing to ask, or bore its failures itself, is no sign of life.
    return len(sample.values) > before


def _not_understood(sample: DeviceSample) -> bool:
    sample.failed["not_understood"] = sample.failed.get("not_understood", 0) + 1
    return False
