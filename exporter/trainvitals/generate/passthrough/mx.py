"""mx-exporter of MetaX."""

from __future__ import annotations

from trainvitals.generate.passthrough.base import MEGA, MILLI, PERCENT, Map, Row

_KIB = 1024.0
#: Those of both memories, which are counted apart.
_ERRORS = 'sum without (type) (mx_ecc_error_count{type=~"sram_%s|dram_%s"})'

MX = Map(
    job="mx-exporter",
    vendor="metax",
    title="MetaX: mx-exporter",
    port=8000,
    prefixes=("mx_",),
    device="deviceId",
    uuid="uuid",
    model="modelName",
    seen="mx_gpu_state",
    source="mx-exporter, default-counters.csv",
    rows=(
        Row("up", "mx_gpu_state", most=1),
        Row("utilization_ratio", "mx_gpu_usage", unit=PERCENT, most=100),
        Row("temperature_celsius", "mx_chip_hotspot_temp", ("gpu",), least=1, most=150),
        Row("temperature_celsius", "mx_chip_hbm_temp", ("memory",), least=1, most=150),
        Row("power_watts", "mx_board_power", ("instant",), unit=MILLI, least=100, most=3_000_000),
        Row("clock_hertz", "mx_gpu_clock", ("sm",), unit=MEGA),
        Row("clock_hertz", "mx_mem_clock", ("memory",), unit=MEGA),
        Row("memory_used_bytes", 'mx_memory_used{type="vram"}', unit=_KIB),
        Row("memory_total_bytes", 'mx_memory_total{type="vram"}', unit=_KIB, least=1),
        Row("ecc_errors_total", _ERRORS % ("ce", "ce"), ("corrected",)),
        Row("ecc_errors_total", _ERRORS % ("ue", "ue"), ("uncorrected",)),
        Row("retired_pages", 'mx_ecc_error_count{type="retired_page"}', ("uncorrected",)),
        Row("pcie_width", "mx_pcie_width", least=1, most=32),
    ),
    left_out={
        "mx_pcie_speed, mx_mxlk_speed": "in GT/s, of which two generations of a link share one",
        "mx_clk_thr": "a bit field whose bits are not published",
        "mx_mxlk_*": "no series says whether a link works",
    },
)
