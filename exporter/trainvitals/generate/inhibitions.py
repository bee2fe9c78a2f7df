"""Which alert explains which other, so that Alertmanager tells of the cause alone.

Cause and effect share labels: ``equal`` names those that must be the same, and every alert of a row has them all, for a
label that is missing on both sides would count as equal and mute other runs and nodes.
An alert that mutes has a message of its own, or stands for alerts that have (TrainvitalsRunOnFaulty...), and is not
less grave than what it mutes; the two that stand for others page nobody and are exempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_PREFIX = "Trainvitals"

#: What a run does that waits or has become slow.
_HELD_UP = ("CollectiveStalled", "DataStarvation", "GoodputLow", "Slowdown", "StepStalled", "Straggler")
_SLOWER = ("CheckpointOverdue", "DataStarvation", "GoodputLow", "Slowdown", "Straggler")


@dataclass(frozen=True, kw_only=True)
class Inhibition:
    """While one of ``causes`` is on, ``effects`` with the same labels ``equal`` are not told; names without prefix."""

    causes: tuple[str, ...]
    #: Empty: every other alert that has the labels.
    effects: tuple[str, ...]
    equal: tuple[str, ...]
    why: str

    def as_config(self) -> dict[str, Any]:
        """Return the rule as Alertmanager wants it."""
        targets = [_names(self.effects)] if self.effects else [_names(self.causes, negated=True)]
        targets += [] if self.effects else [f'{label} != ""' for label in self.equal]
        return {"source_matchers": [_names(self.causes)], "target_matchers": targets, "equal": list(self.equal)}


def _names(names: tuple[str, ...], negated: bool = False) -> str:
    if len(names) == 1:
        return f'alertname {"!=" if negated else "="} "{_PREFIX}{names[0]}"'
    return f'alertname {"!~" if negated else "=~"} "{_PREFIX}({"|".join(names)})"'


def inhibit_rules() -> list[dict[str, Any]]:
    """Return the section of Alertmanager's configuration."""
    return [inhibition.as_config() for inhibition in INHIBITIONS]


_RUN = ("run",)
_DEVICE = ("instance", "device")
_PORT = ("instance", "hca", "port")
_INTERFACE = ("instance", "interface")
_MOUNT = ("instance", "mountpoint")
_NODE = ("instance",)

INHIBITIONS: tuple[Inhibition, ...] = (
    Inhibition(
        causes=("ExporterDown",),
        effects=(),
        equal=_NODE,
        why="Of a node that does not answer nothing is known; what was on there is old.",
    ),
    Inhibition(
        causes=("RunOnFaultyDevice",),
        effects=(*_HELD_UP, "RankDied", "RankFailed"),
        equal=_RUN,
        why="A device that fails ends or holds up the ranks on it, and they the run.",
    ),
    Inhibition(
        causes=("RunOnFaultyNode",),
        effects=_HELD_UP,
        equal=_RUN,
        why="A driver, file system, port or node that hangs holds up the run.",
    ),
    Inhibition(
        causes=("RankDied", "RankFailed"),
        effects=(*_HELD_UP, "CheckpointOverdue"),
        equal=_RUN,
        why="The others wait for a rank that has ended.",
    ),
    Inhibition(
        causes=("CollectiveStalled",),
        effects=("StepStalled",),
        equal=_RUN,
        why="The same, known better.",
    ),
    Inhibition(
        causes=("CollectiveStalled", "StepStalled"),
        effects=_SLOWER,
        equal=_RUN,
        why="A run that stands still is slow in every way.",
    ),
    Inhibition(
        causes=("LossNonfinite",),
        effects=("GradientAnomaly", "LossDiverged", "LossDrift", "LossNotFalling", "LossSpike"),
        equal=_RUN,
        why="NaN is how a loss that rose ends.",
    ),
    Inhibition(
        causes=("LossDiverged",),
        effects=("LossDrift", "LossNotFalling", "LossSpike"),
        equal=_RUN,
        why="The same rise, and worse.",
    ),
    Inhibition(
        causes=("LossCollapsed",),
        effects=("LossNotFalling", "MetricDecoupled"),
        equal=_RUN,
        why="A loss of exactly 0 falls no further, and no metric follows it.",
    ),
    Inhibition(
        causes=("CheckpointFailed",),
        effects=("CheckpointOverdue",),
        equal=_RUN,
        why="Saves that fail are the reason that one is overdue.",
    ),
    Inhibition(
        causes=("LogErrorData", "LogErrorParameter", "LogErrorResource"),
        effects=("LogSilent",),
        equal=_RUN,
        why="An error in a log is why it says no more.",
    ),
    Inhibition(
        causes=("DeviceSourceHung",),
        effects=("DeviceDown",),
        equal=_NODE,
        why="Through a driver that hangs no device answers.",
    ),
    Inhibition(
        causes=("DeviceFatalXid",),
        effects=("DeviceDown", "DeviceNeedsReset", "DeviceUncorrectedErrors"),
        equal=_DEVICE,
        why="A fault that ends a device explains that it does not answer, and that it wants a reset.",
    ),
    Inhibition(
        causes=("DeviceDown",),
        effects=("DeviceHot", "DeviceNeedsReset", "DeviceSlowed", "FabricUnhealthy", "NvlinkDown", "PcieLinkSlow"),
        equal=_DEVICE,
        why="What a device said before it fell silent is no news.",
    ),
    Inhibition(
        causes=("DeviceMemoryWorn",),
        effects=("DeviceNeedsReset", "DeviceSparesUsed"),
        equal=_DEVICE,
        why="No spares are left, and a reset mends nothing.",
    ),
    Inhibition(
        causes=("NvswitchFault",),
        effects=("FabricUnhealthy", "NvlinkDown", "NvlinkErrors"),
        equal=_NODE,
        why="The links end in the switch.",
    ),
    Inhibition(
        causes=("InfinibandPortDown",),
        effects=("InfinibandErrors", "InfinibandPortFlaps", "InfinibandPortSlow"),
        equal=_PORT,
        why="A port that is down went down, with errors.",
    ),
    Inhibition(
        causes=("NetworkInterfaceDown",),
        effects=("NetworkErrors", "NetworkFlaps", "NetworkInterfaceSlow"),
        equal=_INTERFACE,
        why="So did an interface.",
    ),
    Inhibition(
        causes=("FilesystemStuck",),
        effects=("FilesystemBroken", "NfsSlow", "NfsTimeouts"),
        equal=_MOUNT,
        why="A server that does not answer is slow first.",
    ),
    Inhibition(
        causes=("FilesystemFull",),
        effects=("FilesystemFills",),
        equal=_MOUNT,
        why="What was foreseen has come.",
    ),
    Inhibition(
        causes=("OomKill",),
        effects=("HostMemoryLow", "MemoryPressure", "SwapGrows"),
        equal=_NODE,
        why="The memory was short until the kernel killed somebody.",
    ),
)
