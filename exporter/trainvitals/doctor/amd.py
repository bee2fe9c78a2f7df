"""AMD: why a signal may be missing, and what to do about its driver."""

from __future__ import annotations

from trainvitals.doctor.devices import Advice, Reason, Signal

_LOOK = "dmesg | grep -i amdgpu | tail -n 20"
_TOOL = Reason(lambda _: True, "amd-smi does not tell it: it comes with ROCm, and its user needs the group render")
_MODEL = Reason(lambda _: True, "this model, or its driver, does not tell it")

ADVICE = Advice(
    title="AMD",
    signals=(
        Signal("utilization", (("utilization_ratio",),), (_MODEL,)),
        Signal("memory", (("memory_used_bytes",),), (_MODEL,)),
        Signal("temperature", (("temperature_celsius", "gpu"),), (_MODEL,)),
        Signal("power", (("power_watts",),), (Reason(lambda _: True, "the first chip of a board tells it for both"),)),
        Signal("clocks", (("clock_hertz",),), (_MODEL,)),
        Signal("memory errors (ECC)", (("ecc_errors_total",),), (_MODEL,)),
        Signal("energy", (("energy_joules_total",),), (_TOOL,)),
        Signal("why clocks are held down", (("clock_limited",),), (_TOOL,)),
    ),
    driver={"driver_not_loaded": "modprobe amdgpu"},
    device={"lost": "dmesg | grep -i -E 'amdgpu|pcie' | tail -n 20", "implausible": "amd-smi metric -g {index}"},
    look=_LOOK,
    installed="ls -l /sys/class/drm/",
    in_container="docker run --device /dev/kfd --device /dev/dri ...",
)
