"""The PCIe link of a GPU: generation, width, traffic, errors.

Traffic comes from the counters of bytes: nvmlDeviceGetPcieThroughput blocks for 20 ms (nvml.h).
"""

from __future__ import annotations

from trainvitals.devices.blanks import BLANKS
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal, call, numbered
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample

_WRAP = 2**32
#: Rounds without bytes after one with too many to be sure of.
_PAUSE = 30
#: Numbers of the fields with errors, by kind.
_ERRORS = {
    95: "replay_rollover",
    169: "link_recovery",
    173: "correctable",
    174: "naks_received",
    175: "receiver",
    176: "bad_tlp",
    177: "naks_sent",
    178: "bad_dllp",
    179: "non_fatal",
    180: "fatal",
    181: "unsupported_request",
    182: "lcrc",
    183: "lane",
}


def _traffic(field: int, direction: str) -> Signal:
    """Return a row that counts bytes since the device was opened, over the wraps of the device's own counter.

    "Value can be wrapped" (nvml.h): what was seen in the field has 32 bits.  So it is read in every round, and where
    half of that passes in one round, a whole wrap may have been missed: then nothing is shown for a while.
    """
    key = f"bytes of field {field}"
    family = f"pcie_{direction}_bytes_total"

    def read(gpu: Gpu, sample: DeviceSample) -> None:
        value = gpu.field(field)
        if value in BLANKS:
            sample.set(family, value)
            return
        last, total, pause = gpu.kept.get(key, (value, 0.0, 0))
        narrow = max(last, value) < _WRAP
        # A wide counter that fell has begun anew.
        more = (value - last) % _WRAP if narrow else value - last if value >= last else value
        if narrow and more >= _WRAP / 2:
            pause = _PAUSE
        elif pause:
            pause -= 1
        else:
            total += more
        gpu.kept[key] = (value, total, pause)
        if not pause:
            sample.set(family, total)

    return Signal(Tier.FAST, read, (field,))


def _error(field: int, kind: str) -> Signal:
    def read(gpu: Gpu, sample: DeviceSample) -> None:
        count = gpu.field(field)
        if count:
            sample.set("pcie_errors_total", count, kind)

    return Signal(Tier.MEDIUM, read, (field,))


SIGNALS = (
    _traffic(197, "transmit"),
    _traffic(198, "receive"),
    call(Tier.MEDIUM, lambda gpu: gpu.nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu.handle), "pcie_generation"),
    call(Tier.MEDIUM, lambda gpu: gpu.nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu.handle), "pcie_width"),
    numbered(
        Tier.MEDIUM, 94, "pcie_replays_total", older=lambda gpu: gpu.nvml.nvmlDeviceGetPcieReplayCounter(gpu.handle)
    ),
    *(_error(field, kind) for field, kind in _ERRORS.items()),
    call(Tier.SLOW, lambda gpu: gpu.nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu.handle), "pcie_max_generation"),
    call(Tier.SLOW, lambda gpu: gpu.nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu.handle), "pcie_max_width"),
)
