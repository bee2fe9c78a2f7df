"""mlu-exporter of Cambricon."""

from __future__ import annotations

from trainvitals.generate.passthrough.base import MEGA, PERCENT, Map, Row

MLU = Map(
    job="mlu-exporter",
    vendor="cambricon",
    title="Cambricon: mlu-exporter, with its usual prefix `mlu`",
    port=30108,
    prefixes=("mlu_", "machine_mlu_"),
    device="mlu",
    uuid="uuid",
    model="model",
    seen="mlu_temperature",
    # The name of the machine's count has the prefix in front of it as all others have.
    total="mlu_machine_mlu_nums",
    source="mlu-exporter, examples/metrics.yaml",
    rows=(
        Row("utilization_ratio", "mlu_utilization", unit=PERCENT, most=100),
        Row("tensor_activity_ratio", "mlu_tensor_util", unit=PERCENT, most=100),
        Row("temperature_celsius", "mlu_chip_temperature", ("gpu",), least=1, most=150),
        Row("temperature_celsius", "mlu_memory_temperature", ("memory",), least=1, most=150),
        Row("power_watts", "mlu_power_usage", ("instant",), least=0.1, most=3000),
        Row("power_limit_watts", "mlu_power_current_limit", least=1, most=3000),
        Row("clock_hertz", "mlu_frequency", ("sm",), unit=MEGA),
        Row("clock_hertz", "mlu_ddr_frequency", ("memory",), unit=MEGA),
        Row("memory_used_bytes", "mlu_memory_used"),
        Row("memory_total_bytes", "mlu_memory_total", least=1),
        Row("memory_reserved_bytes", "mlu_memory_reserved"),
        Row("health_state", "mlu_health", ("ok",), equals=1),
        Row("health_state", "mlu_health", ("critical",), equals=0),
        Row("ecc_errors_total", "mlu_ecc_corrected_error_total", ("corrected",)),
        Row("ecc_errors_total", "mlu_ecc_uncorrected_error_total", ("uncorrected",)),
        Row("retired_pages", "mlu_double_bit_retired_page_count", ("uncorrected",)),
        Row("pcie_replays_total", "mlu_pcie_replay_count"),
        Row("pcie_generation", "mlu_pcie_current_speed", least=1, most=8),
        Row("pcie_width", "mlu_pcie_current_width", least=1, most=32),
        # Disabled is no fault: such a port may have no cable.  1 enabled, 2 training, 3 ready.
        Row("link_up", "mlu_mlulink_status", ("{link}",), least=1, equals=3),
    ),
    left_out={
        "mlu_xid_error, mlu_last_xid_error": "the last code without its time",
        "mlu_pcie_read_throughput, _write_": "bytes of the last 20 ms, no rate",
        "mlu_temperature": "of the board, not of the chip",
    },
)
