"""dcgm-exporter of NVIDIA; and that of Moore Threads, which has taken over its names."""

from __future__ import annotations

from trainvitals.generate.passthrough.base import MEGA, MIB, MILLI, PERCENT, Map, Row

#: Bits of the reasons for a lower clock, by our words (nvml.h: nvmlClocksEventReason*).
_REASONS = {
    "idle": 0x1,
    "application_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
}
_MEMORY = "DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE"

#: What both have.
_COMMON = (
    Row("utilization_ratio", "DCGM_FI_DEV_GPU_UTIL", unit=PERCENT, most=100),
    Row("temperature_celsius", "DCGM_FI_DEV_GPU_TEMP", ("gpu",), least=1, most=150),
    Row("power_watts", "DCGM_FI_DEV_POWER_USAGE", ("default",), least=0.1, most=3000),
    Row("clock_hertz", "DCGM_FI_DEV_SM_CLOCK", ("sm",), unit=MEGA),
    Row("clock_hertz", "DCGM_FI_DEV_MEM_CLOCK", ("memory",), unit=MEGA),
    Row("memory_used_bytes", "DCGM_FI_DEV_FB_USED", unit=MIB),
)

DCGM = Map(
    job="dcgm-exporter",
    vendor="nvidia",
    title="NVIDIA: dcgm-exporter",
    port=9400,
    prefixes=("DCGM_FI_",),
    device="gpu",
    uuid="UUID",
    model="modelName",
    seen="DCGM_FI_DEV_GPU_TEMP",
    source="dcgm-exporter, etc/default-counters.csv; DCGM, dcgm_fields.h",
    rows=(
        *_COMMON,
        # From driver 570 on, reserved memory is counted apart and is in neither of the others.
        Row("memory_total_bytes", f"({_MEMORY} + DCGM_FI_DEV_FB_RESERVED) or ({_MEMORY})", unit=MIB, least=1),
        Row("memory_reserved_bytes", "DCGM_FI_DEV_FB_RESERVED", unit=MIB),
        Row("memory_activity_ratio", "DCGM_FI_DEV_MEM_COPY_UTIL", unit=PERCENT, most=100),
        Row("graphics_activity_ratio", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", most=1),
        Row("sm_activity_ratio", "DCGM_FI_PROF_SM_ACTIVE", most=1),
        Row("sm_occupancy_ratio", "DCGM_FI_PROF_SM_OCCUPANCY", most=1),
        Row("tensor_activity_ratio", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", most=1),
        Row("memory_bandwidth_ratio", "DCGM_FI_PROF_DRAM_ACTIVE", most=1),
        Row("temperature_celsius", "DCGM_FI_DEV_MEMORY_TEMP", ("memory",), least=1, most=150),
        Row("temperature_limit_celsius", "DCGM_FI_DEV_SLOWDOWN_TEMP", ("slowdown",), least=1, most=150),
        Row("temperature_limit_celsius", "DCGM_FI_DEV_SHUTDOWN_TEMP", ("shutdown",), least=1, most=150),
        Row("power_limit_watts", "DCGM_FI_DEV_POWER_MGMT_LIMIT", least=1, most=3000),
        Row("energy_joules_total", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", unit=MILLI),
        *(
            Row("clock_limited", f"floor(DCGM_FI_DEV_CLOCK_THROTTLE_REASONS / {bit}) % 2", (reason,))
            for reason, bit in _REASONS.items()
        ),
        Row("ecc_errors_total", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", ("corrected",)),
        Row("ecc_errors_total", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", ("uncorrected",)),
        Row("ecc_lifetime_errors_total", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", ("corrected",)),
        Row("ecc_lifetime_errors_total", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", ("uncorrected",)),
        Row("remapped_rows", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", ("correctable",)),
        Row("remapped_rows", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", ("uncorrectable",)),
        Row("row_remap_failed", "DCGM_FI_DEV_ROW_REMAP_FAILURE", most=1),
        Row("pcie_replays_total", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
        Row("pcie_transmit_bytes_per_second", "DCGM_FI_PROF_PCIE_TX_BYTES"),
        Row("pcie_receive_bytes_per_second", "DCGM_FI_PROF_PCIE_RX_BYTES"),
    ),
    left_out={
        "DCGM_FI_DEV_XID_ERRORS": "the last code for ever, without its time; our exporter reads the kernel's log",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "called a counter, and is none",
        "DCGM_EXP_*_COUNT": "counts of a window that fall again",
    },
)

#: Kept apart from NVIDIA's by the name of the job alone.
MOORE_THREADS = Map(
    job="mtgpu-exporter",
    vendor="moorethreads",
    title="Moore Threads: its exporter with DCGM's names",
    port=9400,
    prefixes=("DCGM_FI_",),
    device="gpu",
    uuid="UUID",
    model="modelName",
    seen="DCGM_FI_DEV_GPU_UTIL",
    source="Moore Threads, container toolkit; names only, labels after DCGM's",
    rows=(*_COMMON, Row("memory_total_bytes", "DCGM_FI_DEV_FB_TOTAL", unit=MIB, least=1)),
    left_out={"DCGM_FI_DEV_XID_ERRORS": "codes of another maker behind NVIDIA's name"},
)
