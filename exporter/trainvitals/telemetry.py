"""The few types that every source ends in: the probe, followers of logs, readers of devices.

Behind them there is one pipeline, whatever the source was.  Times are wall-clock seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One rank of one attempt of a run."""

    run: str
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    attempt: int = 0
    framework: str = ""
    target_steps: int | None = None
    device_uuid: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What one rank reported at the end of one optimizer step.  ``values`` maps names to numbers, NaN included.

    ``count`` numbers the steps of the process; values that became known late come as a second Step with its count.
    """

    step: int
    count: int
    time: float
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Event:
    """Something rare: a checkpoint, an evaluation, an exception."""

    time: float
    kind: str
    step: int
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class DeviceSample:
    """One reading of one accelerator.  A field that could not be read is None, and then has no series.

    Units: ratios 0 to 1, bytes, degrees Celsius, watts, hertz.
    """

    index: int
    uuid: str
    vendor: str
    name: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    up: bool = True
    utilization_ratio: float | None = None
    memory_activity_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    temperatures_celsius: dict[str, float] = field(default_factory=dict)
    power_watts: float | None = None
    #: What ``power_watts`` is: "instant", or "default" where the driver chooses how to average.
    power_kind: str = ""
    power_limit_watts: float | None = None
    clocks_hertz: dict[str, float] = field(default_factory=dict)
    #: Fields that failed, by reason, in this reading.
    failed: dict[str, int] = field(default_factory=dict)

    def without_values(self) -> DeviceSample:
        """Return the same device as one that does not answer."""
        return DeviceSample(
            index=self.index,
            uuid=self.uuid,
            vendor=self.vendor,
            name=self.name,
            pci_bus_id=self.pci_bus_id,
            driver_version=self.driver_version,
            up=False,
        )
