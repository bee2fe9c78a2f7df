"""Huawei Ascend: why a signal may be missing, and what to do about its driver."""

from __future__ import annotations

from trainvitals.doctor.devices import Advice, Reason, Signal

_LOOK = "npu-smi info"
_NO_NETWORK = Reason(lambda _: True, "hccn_tool does not tell it: it needs root, and a chip with a network port")

ADVICE = Advice(
    title="Huawei Ascend",
    signals=(
        Signal("utilization", (("utilization_ratio",),)),
        Signal("memory", (("memory_used_bytes",),)),
        Signal("temperature", (("temperature_celsius",),)),
        Signal(
            "power",
            (("power_watts",),),
            (Reason(lambda _: True, "npu-smi tells the power of a card with its first chip"),),
        ),
        Signal("clocks", (("clock_hertz",),)),
        Signal("memory errors (ECC)", (("ecc_errors_total",),)),
        Signal("health", (("health_state",),)),
        Signal("network port", (("link_up", "roce"),), (_NO_NETWORK,)),
    ),
    driver={
        "driver_not_loaded": "ls -l /dev/davinci_manager; dmesg | grep -i -E 'drv|davinci' | tail -n 20",
        "no_permission": "sudo npu-smi info",
        "blocked": "ls -l /dev/davinci*",
        "not_understood": "command -v npu-smi; npu-smi info",
    },
    device={"implausible": "npu-smi info -t health -i {index}"},
    look=_LOOK,
    installed=_LOOK,
    in_container="docker run --device /dev/davinci0 --device /dev/davinci_manager ...",
)
