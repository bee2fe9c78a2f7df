"""dcu-exporter for Hygon, and its successor hcu-exporter, in which every name is another."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.generate.passthrough.base import MEGA, PERCENT, Map, Row


def _rows(prefix: str) -> tuple[Row, ...]:
    return (
        Row("utilization_ratio", f"{prefix}_utilizationrate", unit=PERCENT, most=100),
        Row("temperature_celsius", f"{prefix}_temp", ("gpu",), least=1, most=150),
        Row("power_watts", f"{prefix}_power_usage", ("average",), least=0.1, most=3000),
        Row("power_limit_watts", f"{prefix}_powercap", least=1, most=3000),
        Row("clock_hertz", f"{prefix}_sclk", ("sm",), unit=MEGA),
        Row("memory_used_bytes", f"{prefix}_usedmemory_bytes"),
        Row("memory_total_bytes", f"{prefix}_memorycap_bytes", least=1),
        # Each block of the chip has its own count.
        Row("ecc_errors_total", _sum(f"{prefix}_ce_count"), ("corrected",)),
        Row("ecc_errors_total", _sum(f"{prefix}_ue_count"), ("uncorrected",)),
    )


def _sum(name: str) -> str:
    return f"sum without (block_type) ({name})"


DCU = Map(
    job="dcu-exporter",
    vendor="hygon",
    title="Hygon: dcu-exporter",
    port=16080,
    prefixes=("dcu_",),
    device="minor_number",
    uuid="device_id",
    model="name",
    seen="dcu_memorycap_bytes",
    source="dcu-exporter, README",
    rows=_rows("dcu"),
    left_out={
        "vdcu_*, dcu_container_*": "parts of a device, which no alert looks at",
        "dcu_pciebw_mb": "sum of both ways",
    },
)

HCU = replace(
    DCU,
    job="hcu-exporter",
    title="Hygon: hcu-exporter",
    prefixes=("hcu_",),
    seen="hcu_memorycap_bytes",
    source="hcu-exporter, README",
    rows=(
        *_rows("hcu"),
        Row("clock_hertz", "hcu_mclk", ("memory",), unit=MEGA),
        Row("pcie_replays_total", "hcu_pcie_replay_count"),
        Row("link_up", "hcu_xhcl_link_up", ("{link_id}",), most=1),
    ),
    left_out={
        "hcu_throttle": "reasons whose words are not published",
        "hcu_health_status": "words for health are not published",
        "vhcu_*": "parts of a device; one of them is a ratio under a name that says per cent",
    },
)
