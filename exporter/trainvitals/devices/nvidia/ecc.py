"""Errors of a GPU's memory, and the repairs of it.

Memory that fails again is replaced by a spare row (Ampere and later) or taken out of use (before), at the next reset.
Row remapping is not told while the device is split (MIG).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal, call, numbered
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample

#: Family, label, number of the field, nvmlMemoryErrorType_t, nvmlEccCounterType_t.
_ERRORS = (
    ("ecc_errors_total", "corrected", 3, 0, 0),
    ("ecc_errors_total", "uncorrected", 4, 1, 0),
    ("ecc_lifetime_errors_total", "corrected", 5, 0, 1),
    ("ecc_lifetime_errors_total", "uncorrected", 6, 1, 1),
)
#: Family and labels, number of the field, place in the answer of nvmlDeviceGetRemappedRows.
_ROWS = (
    (("remapped_rows", "correctable"), 142, 0),
    (("remapped_rows", "uncorrectable"), 143, 1),
    (("row_remap_pending",), 144, 2),
    (("row_remap_failed",), 145, 3),
)
_SPARES = ("max", "high", "partial", "low", "none")


def _total(error: int, counter: int) -> Callable[[Gpu], float]:
    return lambda gpu: gpu.nvml.nvmlDeviceGetTotalEccErrors(gpu.handle, error, counter)


def _row(place: int) -> Callable[[Gpu], float]:
    return lambda gpu: gpu.nvml.nvmlDeviceGetRemappedRows(gpu.handle)[place]


def _spares(gpu: Gpu, sample: DeviceSample) -> None:
    banks = gpu.nvml.nvmlDeviceGetRowRemapperHistogram(gpu.handle)
    for spares in _SPARES:
        sample.set("row_remap_banks", float(getattr(banks, spares)), spares)


def _sram(gpu: Gpu) -> float:
    """Read whether the maker's limit of errors in SRAM is exceeded; needs root (nvml.h)."""
    status = gpu.nvml.c_nvmlEccSramErrorStatus_v1_t()
    gpu.nvml.nvmlDeviceGetSramEccErrorStatus(gpu.handle, ctypes.byref(status))
    return float(status.bThresholdExceeded)


def _repairs(gpu: Gpu, sample: DeviceSample) -> None:
    channel, tpc = gpu.nvml.nvmlDeviceGetRepairStatus(gpu.handle)
    sample.set("repair_pending", float(channel), "channel")
    sample.set("repair_pending", float(tpc), "tpc")


SIGNALS = (
    *(
        numbered(Tier.MEDIUM, field, family, severity, older=_total(error, counter))
        for family, severity, field, error, counter in _ERRORS
    ),
    call(Tier.SLOW, lambda gpu: gpu.nvml.nvmlDeviceGetEccMode(gpu.handle)[0], "ecc_enabled"),
    call(Tier.SLOW, _sram, "ecc_sram_threshold_exceeded"),
    *(numbered(Tier.SLOW, field, *key, older=_row(place)) for key, field, place in _ROWS),
    Signal(Tier.SLOW, _spares),
    numbered(Tier.SLOW, 29, "retired_pages", "corrected"),
    numbered(Tier.SLOW, 30, "retired_pages", "uncorrected"),
    numbered(Tier.SLOW, 31, "retired_pages_pending"),
    Signal(Tier.SLOW, _repairs),
)
