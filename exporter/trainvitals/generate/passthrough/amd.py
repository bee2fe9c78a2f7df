"""device-metrics-exporter of AMD."""

from __future__ import annotations

from trainvitals.generate.passthrough.base import MEGA, MIB, MICRO, PERCENT, Map, Row

AMD = Map(
    job="device-metrics-exporter",
    vendor="amd",
    title="AMD: device-metrics-exporter",
    port=5000,
    prefixes=("gpu_", "pcie_"),
    device="gpu_id",
    uuid="serial_number",
    model="card_model",
    # All devices have it, also those whose power and heat cannot be read.
    seen="gpu_health",
    total="gpu_nodes_total",
    source="device-metrics-exporter, docs/configuration/metricslist",
    rows=(
        Row("utilization_ratio", "gpu_gfx_activity", unit=PERCENT, most=100),
        Row("memory_activity_ratio", "gpu_umc_activity", unit=PERCENT, most=100),
        # MI300 does not measure the edge of the chip: its hottest spot stands for it, as in our own reader.
        Row(
            "temperature_celsius", "(gpu_edge_temperature > 0) or gpu_junction_temperature", ("gpu",), least=1, most=150
        ),
        Row(
            "temperature_celsius", "(gpu_hbm_temperature > 0) or gpu_memory_temperature", ("memory",), least=1, most=150
        ),
        Row("power_watts", "(gpu_package_power > 0) or gpu_power_usage", ("instant",), least=0.1, most=3000),
        Row("power_watts", "gpu_average_package_power", ("average",), least=0.1, most=3000),
        Row("energy_joules_total", "gpu_energy_consumed", unit=MICRO),
        Row("clock_hertz", 'gpu_clock{clock_type="system"}', ("sm",), unit=MEGA),
        Row("clock_hertz", 'gpu_clock{clock_type="memory"}', ("memory",), unit=MEGA),
        Row("memory_used_bytes", "gpu_used_vram", unit=MIB),
        Row("memory_total_bytes", "gpu_total_vram", unit=MIB, least=1),
        Row("health_state", "gpu_health", ("ok",), equals=1),
        Row("health_state", "gpu_health", ("critical",), equals=0),
        Row("ecc_errors_total", "gpu_ecc_correct_total", ("corrected",)),
        Row("ecc_errors_total", "gpu_ecc_uncorrect_total", ("uncorrected",)),
        Row("ecc_errors_total", "gpu_ecc_deferred_total", ("deferred",)),
        Row("pcie_replays_total", "pcie_replay_count"),
        Row("fault_info", "gpu_afid_errors", least=1, code=True),
    ),
    left_out={
        "gpu_xgmi_*": "in a unit that depends on the driver",
        "gpu_violation_*": "other names and units in each generation",
        "gpu_ecc_*_umc, _sdma, ...": "parts of the totals",
    },
)
