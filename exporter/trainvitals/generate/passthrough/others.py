"""Exporters with few series: Iluvatar, Enflame, Intel Gaudi, Intel data-centre GPUs."""

from __future__ import annotations

from trainvitals.generate.passthrough.base import MEGA, MIB, MILLI, PERCENT, Map, Row

ILUVATAR = Map(
    job="ix-exporter",
    vendor="iluvatar",
    title="Iluvatar: ix-exporter",
    port=32021,
    prefixes=("ix_",),
    device="gpu",
    uuid="uuid",
    model="name",
    seen="ix_mem_total",
    source="ix-exporter, README",
    rows=(
        Row("utilization_ratio", "ix_gpu_utilization", unit=PERCENT, most=100),
        # Two names in two versions.
        Row("temperature_celsius", "ix_gpu_temperature or ix_temperature", ("gpu",), least=1, most=150),
        Row("temperature_celsius", "ix_mem_temperature", ("memory",), least=1, most=150),
        Row("power_watts", "ix_power_usage", ("default",), least=0.1, most=3000),
        Row("clock_hertz", "ix_sm_clock", ("sm",), unit=MEGA),
        Row("clock_hertz", "ix_mem_clock", ("memory",), unit=MEGA),
        Row("memory_used_bytes", "ix_mem_used", unit=MIB),
        Row("memory_total_bytes", "ix_mem_total", unit=MIB, least=1),
    ),
    left_out={
        "ix_xid_errors": "shows the reasons for a lower clock instead (gpu_collector.go, lines 311 to 317)",
        "ix_ecc_sbe_vol_status, ix_ecc_dbe_vol_status": "0 or 1, no count",
    },
)

ENFLAME = Map(
    job="gcu-exporter",
    vendor="enflame",
    title="Enflame: gcu-exporter",
    port=9400,
    prefixes=("enflame_gcu_",),
    device="minor_number",
    uuid="uuid",
    model="name",
    seen="enflame_gcu_health",
    total="enflame_gcu_count",
    source="gcu-exporter, collector/; the port is a setting",
    rows=(
        Row("utilization_ratio", "enflame_gcu_usage", unit=PERCENT, most=100),
        Row("temperature_celsius", "enflame_gcu_temperatures", ("gpu",), least=1, most=150),
        Row("power_watts", "enflame_gcu_power_consumption", ("instant",), least=0.1, most=3000),
        Row("power_limit_watts", "enflame_gcu_power_capability", least=1, most=3000),
        Row("clock_hertz", "enflame_gcu_clock", ("sm",), unit=MEGA),
        Row("memory_used_bytes", "enflame_gcu_memory_used_bytes"),
        Row("memory_total_bytes", "enflame_gcu_memory_total_bytes", least=1),
        # 2 good, 1 bad, 0 unknown.
        Row("health_state", "enflame_gcu_health", ("ok",), least=1, equals=2),
        Row("health_state", "enflame_gcu_health", ("critical",), least=1, equals=1),
        Row("ecc_errors_total", "enflame_gcu_ecc_single_bit_error_total_count", ("corrected",)),
        Row("ecc_errors_total", "enflame_gcu_ecc_double_bit_error_total_count", ("uncorrected",)),
    ),
    left_out={
        "enflame_gcu_pcie_link_width": "shows the most that the link can do (gcu_pcie_link_width.go), not what it does"
    },
)

GAUDI = Map(
    job="gaudi-exporter",
    vendor="gaudi",
    title="Intel Gaudi: metric exporter",
    port=41611,
    prefixes=("habanalabs_",),
    device="id",
    uuid="UUID",
    model="",
    seen="habanalabs_memory_total_bytes",
    source="Gaudi metric exporter of Intel, 2025: names, labels, and units by its names",
    rows=(
        Row("utilization_ratio", "habanalabs_utilization", unit=PERCENT, most=100),
        Row("temperature_celsius", "habanalabs_temperature_onchip", ("gpu",), least=1, most=150),
        Row("temperature_limit_celsius", "habanalabs_temperature_threshold_slowdown", ("slowdown",), least=1, most=150),
        Row("temperature_limit_celsius", "habanalabs_temperature_threshold_shutdown", ("shutdown",), least=1, most=150),
        Row("temperature_limit_celsius", "habanalabs_temperature_threshold_memory", ("memory_max",), least=1, most=150),
        Row("power_watts", "habanalabs_power_mW", ("instant",), unit=MILLI, least=100, most=3_000_000),
        Row("power_limit_bound_watts", "habanalabs_power_default_limit_mW", ("default",), unit=MILLI, least=1000),
        Row("clock_hertz", "habanalabs_clock_soc_mhz", ("sm",), unit=MEGA),
        Row("clock_max_hertz", "habanalabs_clock_soc_max_mhz", ("sm",), unit=MEGA),
        Row("memory_used_bytes", "habanalabs_memory_used_bytes"),
        Row("memory_total_bytes", "habanalabs_memory_total_bytes", least=1),
        Row("row_remap_pending", "habanalabs_pending_rows_state", most=1),
        Row("pcie_replays_total", "habanalabs_pcie_replay_count"),
        Row("pcie_generation", "habanalabs_pci_link_speed", least=1, most=8),
        Row("pcie_width", "habanalabs_pci_link_width", least=1, most=32),
        Row("link_up", "habanalabs_nic_port_status", ("{port}",), most=1),
    ),
    left_out={
        "habanalabs_energy": "no unit is published",
        "habanalabs_pcie_rx, _tx, _throughput": "no unit is published",
    },
)

INTEL = Map(
    job="xpumanager",
    vendor="intel",
    title="Intel data-centre GPU: XPU Manager, first generation",
    port=29999,
    prefixes=("xpum_",),
    device="pci_bdf",
    uuid="uuid",
    model="dev_name",
    seen="xpum_memory_used_bytes",
    source="XPU Manager, Prometheus exporter",
    rows=(
        Row("temperature_celsius", 'xpum_temperature_celsius{location="gpu"}', ("gpu",), least=1, most=150),
        Row("temperature_celsius", 'xpum_temperature_celsius{location="mem"}', ("memory",), least=1, most=150),
        Row("power_watts", "xpum_power_watts", ("default",), least=0.1, most=3000),
        Row("energy_joules_total", "xpum_energy_joules"),
        Row("clock_hertz", 'xpum_frequency_mhz{location="gpu", type="actual"}', ("sm",), unit=MEGA),
        # A card of several tiles has a value for each.
        Row(
            "memory_used_bytes",
            'sum without (tile) (xpum_memory_used_bytes{tile!=""}) or xpum_memory_used_bytes{tile=""}',
        ),
    ),
    left_out={
        "xpum_engine_ratio, xpum_memory_bandwidth_ratio": "per cent in one version, a share in another",
        "xpum_resets, xpum_programming_errors, xpum_driver_errors": "no family of ours",
        "xpum_xelink_port_status": "its values are not published",
    },
)
