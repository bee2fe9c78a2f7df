"""Hygon DCU: why a signal may be missing, and what to do about its driver."""

from __future__ import annotations

from trainvitals.doctor.devices import Advice, Signal

_LOOK = "hy-smi"

ADVICE = Advice(
    title="Hygon DCU",
    signals=(
        Signal("utilization", (("utilization_ratio",),)),
        Signal("memory", (("memory_used_bytes",),)),
        Signal("temperature", (("temperature_celsius", "gpu"),)),
        Signal("power", (("power_watts",),)),
        Signal("power limit", (("power_limit_watts",),)),
    ),
    driver={
        "timeout": "time hy-smi --showuse --json",
        "failed": "hy-smi --showuse --json",
        "not_understood": "hy-smi --showuse --json",
        "other_program": "command -v hy-smi rocm-smi",
    },
    device={"implausible": "hy-smi --showuse --showtemp --showpower"},
    look=_LOOK,
    installed="ls -l /opt/hyhal/bin/hy-smi",
    in_container="docker run --device /dev/kfd --device /dev/mkfd --device /dev/dri -v /opt/hyhal:/opt/hyhal:ro ...",
)
