"""What a row of the table of signals is, and the readers that need no function of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainvitals.devices.blanks import scaled
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample


class Signal(NamedTuple):
    """One reader and how often it is called.

    ``fields`` are the numbered fields that it takes with :meth:`Gpu.field`: those of a tier come in one call.
    """

    tier: Tier
    read: Callable[[Gpu, DeviceSample], None]
    fields: tuple[int, ...] = ()


def call(tier: Tier, ask: Callable[[Gpu], float], family: str, *labels: str, unit: float = 1.0) -> Signal:
    """Return a row for one number: what ``ask`` returns, times ``unit``."""

    def read(gpu: Gpu, sample: DeviceSample) -> None:
        sample.set(family, scaled(float(ask(gpu)), unit), *labels)

    return Signal(tier, read)


def numbered(
    tier: Tier,
    field: int,
    family: str,
    *labels: str,
    unit: float = 1.0,
    older: Callable[[Gpu], float] | None = None,
) -> Signal:
    """Return a row for one numbered field, times ``unit``; what ``older`` returns where a device does not have it."""

    def ask(gpu: Gpu) -> float:
        return gpu.field(field) if older is None else gpu.or_else(lambda: gpu.field(field), lambda: older(gpu))

    return call(tier, ask, family, *labels, unit=unit)._replace(fields=(field,))
