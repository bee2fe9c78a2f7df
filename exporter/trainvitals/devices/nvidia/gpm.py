"""Activity of a GPU between two rounds, as Hopper and newer count it themselves (GPM in nvml.h).

NVML copies a GPU's counters into a sample and compares two samples.  Each GPU has two that take turns, and so has each
GPU instance of a split one (MIG); the first round has no value.  Unlike the profiling of older devices it takes the
counters from nobody, so it does not disturb a profiler.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainvitals.devices.blanks import scaled
from trainvitals.devices.nvidia import mig
from trainvitals.devices.nvidia.apart import apart, check
from trainvitals.devices.nvidia.errors import Effect, meaning
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample

#: Seconds between two samples: more than 100 ms, says nvml.h.
_APART = 0.11
_PERCENT = 0.01
_MIB = 2.0**20

#: Metric (nvml.h, nvmlGpmMetricId_t) -> family and labels, and what its unit is in ours.
_METRICS: Mapping[int, tuple[tuple[str, ...], float]] = {
    1: (("graphics_activity_ratio",), _PERCENT),
    2: (("sm_activity_ratio",), _PERCENT),
    3: (("sm_occupancy_ratio",), _PERCENT),
    4: (("pipe_activity_ratio", "int"), _PERCENT),
    5: (("tensor_activity_ratio",), _PERCENT),
    10: (("memory_bandwidth_ratio",), _PERCENT),
    11: (("pipe_activity_ratio", "fp64"), _PERCENT),
    12: (("pipe_activity_ratio", "fp32"), _PERCENT),
    13: (("pipe_activity_ratio", "fp16"), _PERCENT),
    20: (("pcie_transmit_bytes_per_second",), _MIB),
    21: (("pcie_receive_bytes_per_second",), _MIB),
    60: (("links_receive_bytes_per_second",), _MIB),
    61: (("links_transmit_bytes_per_second",), _MIB),
}
#: The same for a GPU instance, whose number is the label.
_INSTANCE_METRICS: Mapping[int, tuple[tuple[str, ...], float]] = {
    2: (("mig_sm_activity_ratio",), _PERCENT),
    5: (("mig_tensor_activity_ratio",), _PERCENT),
    10: (("mig_memory_bandwidth_ratio",), _PERCENT),
}


class _Sampler:
    """Two samples that take turns; ``take`` fills one, ``metrics`` are the numbers to compare them by."""

    def __init__(self, nvml: Any, take: Callable[[Any], object], metrics: Mapping[int, object]) -> None:
        self._nvml = nvml
        self._take = take
        self._request = nvml.c_nvmlGpmMetricsGet_t(version=nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(metrics))
        for place, metric in enumerate(metrics):
            self._request.metrics[place].metricId = metric
        self._samples: list[Any] = []
        self._taken: float | None = None
        self._answers: list[Any] = []

    def free(self) -> None:
        """Give the samples back, and begin anew when asked again."""
        self._taken = None
        self._answers = []
        while self._samples:
            # It fails when the driver is gone, and then there is nothing to give back.
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlGpmSampleFree(self._samples.pop())

    def compare(self, now: float) -> list[Any]:
        """Return NVML's answers about the time since the last sample; none after the first.

        A round that comes too soon gets the last answers again.  After an error the samples are new ones: those that
        saw a fault may stay blank for ever.  Raises NVMLError.
        """
        before = self._taken
        if before is not None and now - before < _APART:
            return self._answers
        self._taken, self._answers = None, []
        try:
            while len(self._samples) < 2:
                self._samples.append(self._nvml.nvmlGpmSampleAlloc())
            self._take(self._samples[1])
            if before is not None:
                self._answers = self._compared()
        except self._nvml.NVMLError as error:
            if meaning(error.value)[1] is not Effect.ABSENT:
                self.free()
            raise
        self._samples.reverse()
        self._taken = now
        return self._answers

    def _compared(self) -> list[Any]:
        self._request.sample1, self._request.sample2 = self._samples
        answer = self._nvml.nvmlGpmMetricsGet(self._request)
        return list(answer.metrics[: answer.numMetrics])


def activity(gpu: Gpu, sample: DeviceSample, clock: Callable[[], float] = time.monotonic) -> None:
    """Read the activity of the whole GPU since the last round.  A split GPU has it per instance only."""
    if not _supported(gpu):
        return
    sampler = gpu.kept.get("gpm")
    if sampler is None:
        sampler = gpu.kept["gpm"] = _Sampler(gpu.nvml, lambda one: gpu.nvml.nvmlGpmSampleGet(gpu.handle, one), _METRICS)
        gpu.closers.append(sampler.free)
    _show(gpu, sample, sampler.compare(clock()), _METRICS)


def instances(gpu: Gpu, sample: DeviceSample, clock: Callable[[], float] = time.monotonic) -> None:
    """Read the activity of every GPU instance that the last inventory (:mod:`.mig`) found."""
    samplers: dict[tuple[int, str], _Sampler] | None = gpu.kept.get("gpm_instances")
    # A new instance may have the number of an old one: the UUID tells them apart.
    wanted = {one.gpu_instance: (one.gpu_instance, one.uuid) for one in reversed(mig.known(gpu))}
    if samplers is None:
        if not wanted or not _supported(gpu):
            return
        samplers = gpu.kept["gpm_instances"] = {}
        gpu.closers.append(lambda: _keep(samplers, ()))
    _keep(samplers, wanted.values())
    for number, key in sorted(wanted.items()):
        sampler = samplers.get(key)
        if sampler is None:
            sampler = samplers[key] = _Sampler(gpu.nvml, _taker(gpu, number), _INSTANCE_METRICS)
        with apart(gpu, sample):
            _show(gpu, sample, sampler.compare(clock()), _INSTANCE_METRICS, str(number))


def _keep(samplers: dict[tuple[int, str], _Sampler], wanted: Any) -> None:
    for gone in samplers.keys() - set(wanted):
        samplers.pop(gone).free()


def _taker(gpu: Gpu, number: int) -> Callable[[Any], object]:
    return lambda one: gpu.nvml.nvmlGpmMigSampleGet(gpu.handle, number, one)


def _show(
    gpu: Gpu,
    sample: DeviceSample,
    answers: list[Any],
    metrics: Mapping[int, tuple[tuple[str, ...], float]],
    *labels: str,
) -> None:
    for answer in answers:
        check(gpu, sample, answer.nvmlReturn)
        if not answer.nvmlReturn:
            (family, *more), unit = metrics[answer.metricId]
            sample.set(family, scaled(answer.value, unit), *more, *labels)


def _supported(gpu: Gpu) -> bool:
    """Whether the GPU counts by itself; asked once."""
    known: bool | None = gpu.kept.get("gpm_supported")
    if known is None:
        known = bool(
            gpu.or_else(lambda: gpu.nvml.nvmlGpmQueryDeviceSupport(gpu.handle).isSupportedDevice, lambda: False)
        )
        gpu.kept["gpm_supported"] = known
    return known


SIGNALS: tuple[Signal, ...] = (
    Signal(Tier.FAST, activity),
    Signal(Tier.FAST, instances),
)
