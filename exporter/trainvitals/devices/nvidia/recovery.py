"""What the driver asks for before a GPU can be trusted again."""

from __future__ import annotations

from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample

_ACTION = 230
#: NVML_GPU_RECOVERY_ACTION_* (nvml.h).
_ACTIONS = {
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
#: Room for new actions; beyond it the answer is a blank.
_MOST = 64


def _recovery(gpu: Gpu, sample: DeviceSample) -> None:
    action = gpu.field(_ACTION)
    sample.set("recovery_needed", min(action, 1.0) if action < _MOST else action)
    if 0 < action < _MOST:
        sample.set("recovery_action_info", 1.0, _ACTIONS.get(int(action), "unknown"))


SIGNALS = (Signal(Tier.SLOW, _recovery, (_ACTION,)),)
