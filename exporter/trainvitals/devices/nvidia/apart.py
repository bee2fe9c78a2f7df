"""Reads that do not depend on each other: the failure of one leaves the others alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainvitals.devices.nvidia.errors import minor
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.telemetry import DeviceSample


@contextmanager
def apart(gpu: Gpu, sample: DeviceSample) -> Iterator[None]:
    """Do one of several reads: an error that costs no more than a value is counted in the sample, not raised."""
    try:
        yield
    except gpu.nvml.NVMLError as error:
        if not minor(error.value, sample.failed):
            raise


def check(gpu: Gpu, sample: DeviceSample, code: int) -> None:
    """Do the same with an error that came as a number; 0 is none."""
    if code and not minor(code, sample.failed):
        raise gpu.nvml.NVMLError(code)
