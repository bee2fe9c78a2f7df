"""Dashboard "Node", the devices: a line each, their states over time, their faults and links."""

from __future__ import annotations

from trainvitals.generate.panels import (
    DEVICE,
    GOOD_WHEN_HIGH,
    NEUTRAL,
    NODE,
    NONE_IS_GOOD,
    UP,
    YES_IS_BAD,
    Column,
    lines,
    states,
    table,
)

_NONE = ("no devices", "没有设备")
_NOT_TOLD = ("not told by the driver", "驱动未提供")
_BY = "by (instance, device, uuid)"
_NAME = "{{instance}} {{device}}"


def _of(name: str, how: str = "max") -> str:
    return f"{how} {_BY} (trainvitals_device_{name}{{{DEVICE}}})"


def _share(part: str, whole: str) -> str:
    return f"max {_BY} (trainvitals_device_{part}{{{DEVICE}}} / (trainvitals_device_{whole}{{{DEVICE}}} > 0))"


TABLE = table(
    ("Devices", "设备列表"),
    (
        "A line for each device. A cell is empty where the driver does not tell.",
        "每个设备一行；驱动未提供的内容为空。",
    ),
    Column(name="Node", name_zh="节点", label="instance"),
    Column(name="Device", name_zh="设备", label="device"),
    Column(name="UUID", name_zh="UUID", label="uuid"),
    Column(name="State", name_zh="状态", expr=_of("up", "min"), states=UP),
    Column(
        name="Utilization",
        name_zh="利用率",
        expr=_of("utilization_ratio"),
        unit="percentunit",
        decimals=0,
        thresholds=NEUTRAL,
        bar=True,
    ),
    Column(
        name="Memory",
        name_zh="显存",
        expr=_share("memory_used_bytes", "memory_total_bytes"),
        unit="percentunit",
        decimals=0,
        thresholds=((None, "blue"), (0.95, "red")),
        bar=True,
    ),
    Column(name="Temperature", name_zh="温度", expr=_of("temperature_celsius"), unit="celsius", decimals=0),
    Column(name="Power", name_zh="功率", expr=_of("power_watts"), unit="watt", decimals=0),
    Column(
        name="Throttled",
        name_zh="降频",
        expr=f'max {_BY} (trainvitals_device_clock_limited{{{DEVICE},reason=~".*(slowdown|thermal|brake).*"}})',
        states=YES_IS_BAD,
    ),
    Column(
        name="Uncorrected ECC",
        name_zh="不可纠正 ECC",
        expr=f'sum {_BY} (increase(trainvitals_device_ecc_errors_total{{{DEVICE},severity="uncorrected"}}[$__range]))',
        decimals=0,
        thresholds=NONE_IS_GOOD,
    ),
    Column(
        name="Links that work",
        name_zh="正常链路",
        expr=_share("links_up", "links_expected"),
        unit="percentunit",
        decimals=0,
        thresholds=((None, "red"), (1, "green")),
    ),
    Column(
        name="Needs an action",
        name_zh="需要处理",
        expr=_of("recovery_needed"),
        states=YES_IS_BAD,
    ),
    height=10,
    empty=_NONE,
)

STATE = (
    states(
        ("Devices that answer", "设备响应"),
        ("Green while a device answers, red while it does not.", "绿色：设备有响应；红色：无响应。"),
        "none",
        (_of("up", "min"), _NAME),
        width=12,
        states=UP,
        thresholds=((None, "red"), (1, "green")),
        empty=_NONE,
    ),
    states(
        ("Clocks held down", "频率受限"),
        (
            "Reasons for which the driver holds the clocks down; idle and settings of the user are left out.",
            "驱动限制频率的原因；不含空闲和用户设置。",
        ),
        "none",
        (
            (
                f"max by (instance, device, reason) (trainvitals_device_clock_limited{{{DEVICE},"
                f'reason!~"idle|application_clocks|sync_boost"}})'
            ),
            _NAME + " {{reason}}",
        ),
        width=12,
        states=YES_IS_BAD,
        thresholds=NONE_IS_GOOD,
        empty=_NOT_TOLD,
    ),
    table(
        ("Why devices do not answer", "设备无响应的原因"),
        ("Devices that do not answer now, with the reason.", "当前无响应的设备及原因。"),
        Column(name="Node", name_zh="节点", label="instance"),
        Column(name="Device", name_zh="设备", label="device"),
        Column(name="UUID", name_zh="UUID", label="uuid"),
        Column(name="Reason", name_zh="原因", label="reason"),
        source=f"max by (instance, device, uuid, reason) (trainvitals_device_down_info{{{DEVICE}}})",
        width=12,
        height=7,
        empty=("all devices answer", "所有设备都有响应"),
    ),
    table(
        ("Who uses the devices", "设备使用者"),
        ("Ranks that live, and the devices that they compute on.", "存活的 rank 及其使用的设备。"),
        Column(name="Node", name_zh="节点", label="instance"),
        Column(name="Device", name_zh="设备", label="device"),
        Column(name="Run", name_zh="训练任务", label="run", link=("run", "run")),
        Column(name="Rank", name_zh="Rank", label="rank"),
        source=f"max by (instance, device, run, rank) (trainvitals_rank_device_info{{{DEVICE}}})",
        width=12,
        height=7,
        empty=("no rank known", "没有已知 rank"),
    ),
)

FAULTS = (
    table(
        ("XIDs", "XID 错误"),
        (
            "Errors that the driver numbers, since the exporter began, with what they mean and what to do.",
            "采集器启动以来驱动编号的错误，含含义与处理建议。",
        ),
        Column(name="Node", name_zh="节点", label="instance"),
        Column(name="Device", name_zh="设备", label="device"),
        Column(name="XID", name_zh="XID", label="xid"),
        Column(name="Severity", name_zh="级别", label="xid_severity"),
        Column(name="Meaning", name_zh="含义", label="meaning"),
        Column(name="Action", name_zh="处理", label="action"),
        source=f"max by (instance, device, xid, xid_severity, meaning, action) (trainvitals_device_xid_info{{{NODE}}})",
        width=24,
        height=7,
        empty=("no XID seen", "未见 XID"),
    ),
    lines(
        ("Memory errors", "显存错误"),
        ("ECC errors per minute, corrected and uncorrected.", "每分钟 ECC 错误数：可纠正与不可纠正。"),
        "none",
        (
            (
                "60 * sum by (instance, device, severity)"
                f" (rate(trainvitals_device_ecc_errors_total{{{DEVICE}}}[$__rate_interval]))"
            ),
            _NAME + " {{severity}}",
        ),
        minimum=0.0,
        empty=_NOT_TOLD,
    ),
    lines(
        ("Memory rows replaced", "行重映射"),
        ("Rows of memory that were replaced after errors.", "因错误被替换的显存行数。"),
        "none",
        (f"max by (instance, device, cause) (trainvitals_device_remapped_rows{{{DEVICE}}})", _NAME + " {{cause}}"),
        minimum=0.0,
        decimals=0,
        empty=_NOT_TOLD,
    ),
    lines(
        ("Slowed by heat or power", "因过热或功率降频"),
        (
            "Share of the time with the clocks held down, by reason.",
            "频率受限的时间占比，按原因。",
        ),
        "percentunit",
        (
            (
                "sum by (instance, device, reason)"
                f" (rate(trainvitals_device_clock_limited_seconds_total{{{DEVICE}}}[$__rate_interval]))"
            ),
            _NAME + " {{reason}}",
        ),
        minimum=0.0,
        empty=_NOT_TOLD,
    ),
    lines(
        ("Links between devices", "设备间链路"),
        (
            "Bytes received (above) and sent (below) per second over all links of a device.",
            "每个设备所有链路每秒接收（上）与发送（下）的字节数。",
        ),
        "Bps",
        (_of("links_receive_bytes_per_second"), _NAME + " received", _NAME + " 接收"),
        ("-" + _of("links_transmit_bytes_per_second"), _NAME + " sent", _NAME + " 发送"),
        empty=_NOT_TOLD,
    ),
    lines(
        ("Errors of the links", "链路错误"),
        ("Errors per minute by kind.", "每分钟错误数，按类型。"),
        "none",
        (
            (
                "60 * sum by (instance, device, kind)"
                f" (rate(trainvitals_device_links_errors_total{{{DEVICE}}}[$__rate_interval]))"
            ),
            _NAME + " {{kind}}",
        ),
        minimum=0.0,
        empty=_NOT_TOLD,
    ),
    lines(
        ("PCIe link", "PCIe 链路"),
        (
            "Lanes of the link over those that it can do. Fewer under load is a bad contact; many idle devices save.",
            "当前通道数与最大通道数之比。负载下变少说明接触不良；空闲时变少多为省电。",
        ),
        "percentunit",
        (
            _share("pcie_width", "pcie_max_width"),
            _NAME,
        ),
        thresholds=GOOD_WHEN_HIGH,
        minimum=0.0,
        maximum=1.0,
        empty=_NOT_TOLD,
    ),
)
