"""npu-exporter of Huawei's MindCluster, for Ascend."""

from __future__ import annotations

from trainvitals.generate.passthrough.base import MEGA, MIB, PERCENT, Map, Row

NPU = Map(
    job="npu-exporter",
    vendor="ascend",
    title="Huawei Ascend: npu-exporter",
    port=8082,
    prefixes=("npu_", "machine_npu_"),
    device="id",
    uuid="vdie_id",
    model="model_name",
    seen="npu_chip_info_temperature",
    total="machine_npu_nums",
    source="MindCluster, docs/en/scheduling/api/npu_exporter",
    rows=(
        Row("utilization_ratio", "npu_chip_info_utilization", unit=PERCENT, most=100),
        # A card that is lost is said to have 0 degrees.
        Row("temperature_celsius", "npu_chip_info_temperature", ("gpu",), least=1, most=150),
        Row("temperature_celsius", "npu_chip_info_hbm_temperature", ("memory",), least=1, most=150),
        Row("power_watts", "npu_chip_info_power", ("instant",), least=0.1, most=3000),
        Row("clock_hertz", "npu_chip_info_aicore_current_freq", ("sm",), unit=MEGA, least=1),
        Row("memory_used_bytes", "npu_chip_info_hbm_used_memory", unit=MIB),
        Row("memory_total_bytes", "npu_chip_info_hbm_total_memory", unit=MIB, least=1),
        Row("memory_bandwidth_ratio", "npu_chip_info_hbm_bandwidth_utilization", unit=PERCENT, most=100),
        # 1 healthy, 0 not, -1 unknown.
        Row("health_state", "npu_chip_info_health_status", ("ok",), equals=1),
        Row("health_state", "npu_chip_info_health_status", ("critical",), equals=0),
        Row("fault_info", "npu_chip_info_error_code", least=1, code=True),
        Row("ecc_errors_total", "npu_chip_info_hbm_ecc_single_bit_error_cnt", ("corrected",)),
        Row("ecc_errors_total", "npu_chip_info_hbm_ecc_double_bit_error_cnt", ("uncorrected",)),
        Row("ecc_lifetime_errors_total", "npu_chip_info_hbm_ecc_total_single_bit_error_cnt", ("corrected",)),
        Row("ecc_lifetime_errors_total", "npu_chip_info_hbm_ecc_total_double_bit_error_cnt", ("uncorrected",)),
        Row("link_up", "npu_chip_info_link_status", ("roce",)),
    ),
    left_out={
        "npu_chip_info_error_code_1, _2, ...": "the first code is enough for an alert; all of them are in the log",
        "npu_chip_info_hccs_*, npu_chip_mac_*, npu_chip_roce_*": "counts without a unit that our families share",
        "vnpu_*, container_*": "parts of a device, which no alert looks at",
    },
)
