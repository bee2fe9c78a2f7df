"""The dashboard "Fleet": all runs and all nodes, a line each."""

from __future__ import annotations

from trainvitals.generate.dashboard_fleet_tables import ALL_EXPORTERS, NODE_TABLE, RUN_TABLE, links_down
from trainvitals.generate.dashboard_marks import MARKS, RUNS
from trainvitals.generate.panels import (
    FEW_IS_GOOD,
    GOOD_WHEN_HIGH,
    HELP,
    NONE_IS_GOOD,
    RUN,
    Dashboard,
    Row,
    lines,
    recorded,
    stat,
    states,
)

TOP = Row(
    title="",
    title_zh="",
    panels=(
        stat(
            ("Runs that go on", "进行中的任务"),
            ("Runs with at least one rank that lives.", "至少有一个 rank 仍在运行的训练任务数。"),
            "none",
            f"count(max by (run) (trainvitals_rank_up{{{RUN}}}) == 1) or vector(0)",
            legend="",
            decimals=0,
        ),
        stat(
            ("Findings", "发现的问题"),
            ("Signals of the detectors that are active now, over all runs.", "当前处于激活状态的检测信号总数。"),
            "none",
            f"count(max by (run, signal) (trainvitals_finding_info{{{RUN}}})) or vector(0)",
            legend="",
            decimals=0,
            thresholds=FEW_IS_GOOD,
        ),
        stat(
            ("Critical alerts", "严重告警"),
            ("Alerts of severity critical that fire now.", "正在触发的严重（critical）告警数。"),
            "none",
            'count(ALERTS{alertname=~"Trainvitals.+",alertstate="firing",severity="critical"}) or vector(0)',
            legend="",
            decimals=0,
            thresholds=NONE_IS_GOOD,
        ),
        stat(
            ("Devices lost", "失联设备"),
            (
                "Devices that should be there and do not answer, over all nodes.",
                "应当存在但没有响应的设备数（所有节点合计）。",
            ),
            "none",
            "sum(clamp_min(trainvitals_devices_expected - trainvitals_devices_readable, 0))",
            legend="",
            decimals=0,
            thresholds=NONE_IS_GOOD,
            empty=("no devices", "没有设备"),
        ),
        stat(
            ("Links down", "断开的链路"),
            (
                "Links between devices, RDMA ports and network interfaces that are switched on and carry nothing.",
                "设备间链路、RDMA 端口和已启用网卡中断开的数量。",
            ),
            "none",
            f"sum({links_down()})",
            legend="",
            decimals=0,
            thresholds=FEW_IS_GOOD,
            empty=("no exporter", "没有采集器"),
        ),
        stat(
            ("Nodes silent", "失联节点"),
            (
                "Exporters that Prometheus cannot read: of such a node nothing is known.",
                "Prometheus 无法抓取的采集器数：这些节点状态未知。",
            ),
            "none",
            f"count(up{{{ALL_EXPORTERS}}} == 0) or vector(0)",
            legend="",
            decimals=0,
            thresholds=NONE_IS_GOOD,
        ),
    ),
)

FLEET = Dashboard(
    name="fleet",
    title="Fleet",
    title_zh="集群总览",
    description="All runs and all nodes, a line each: where to look first.",
    description_zh="所有训练任务和节点，每个一行：先看哪里。",
    rows=(
        TOP,
        Row(title="Runs", title_zh="训练任务", panels=(RUN_TABLE,)),
        Row(title="Nodes", title_zh="节点", panels=(NODE_TABLE,)),
        Row(
            title="Over time",
            title_zh="随时间变化",
            panels=(
                states(
                    ("Health of the runs", "任务健康"),
                    (
                        HELP["run:trainvitals_health:ratio"],
                        "运行或已完成的 rank 占应有 rank 的比例；设备无响应时取较小者。",
                    ),
                    "percentunit",
                    (recorded("run:trainvitals_health:ratio"), "{{run}}"),
                    width=12,
                    thresholds=GOOD_WHEN_HIGH,
                    minimum=0.0,
                    maximum=1.0,
                    link=("run", "run"),
                ),
                lines(
                    ("Goodput", "有效训练占比"),
                    (
                        HELP["run:trainvitals_goodput:ratio"],
                        "真正用于训练的时间占全部 rank 时间的比例（最近 5 分钟）。",
                    ),
                    "percentunit",
                    (recorded("run:trainvitals_goodput:ratio"), "{{run}}"),
                    width=12,
                    minimum=0.0,
                    maximum=1.0,
                    link=("run", "run"),
                ),
                lines(
                    ("Power of all devices", "设备总功率"),
                    ("Sum over the devices of each node.", "每个节点所有设备的功率之和。"),
                    "watt",
                    (
                        "sum by (instance) (max by (instance, device, uuid) (trainvitals_device_power_watts))",
                        "{{instance}}",
                    ),
                    width=12,
                    minimum=0.0,
                    link=("node", "instance"),
                    empty=("no devices", "没有设备"),
                ),
                lines(
                    ("Throughput", "吞吐"),
                    ("Steps per second of each run.", "每个训练任务每秒完成的步数。"),
                    "short",
                    (recorded("run:trainvitals_steps:rate5m"), "{{run}}"),
                    width=12,
                    minimum=0.0,
                    link=("run", "run"),
                ),
            ),
        ),
    ),
    variables=(RUNS,),
    annotations=MARKS,
    span="3h",
)
