"""Dashboard "Fleet", the tables: a line for each run, and a line for each node."""

from __future__ import annotations

from trainvitals.generate.panels import (
    EXPORTER,
    FEW_IS_GOOD,
    GOOD_WHEN_HIGH,
    NEUTRAL,
    NONE_IS_GOOD,
    RUN,
    UP,
    Column,
    recorded,
    table,
)
from trainvitals.generate.thresholds import DEFAULTS

#: Not the dashboard's choice of a node: here all are shown.
ALL_EXPORTERS = EXPORTER.replace(',instance=~"$instance"', "")

#: Links that should work and do not: between devices, RDMA ports, network interfaces that are switched on.
LINKS_DOWN = (
    "count by (instance) (trainvitals_device_link_up{matchers} == 0)",
    "count by (instance) (trainvitals_infiniband_port_up{matchers} == 0)",
    "count by (instance) (trainvitals_network_up{matchers} == 0 and trainvitals_network_enabled{matchers} == 1)",
)


def links_down(matchers: str = "") -> str:
    """Return the links that are down for each node, 0 where there are none."""
    body = f"{{{matchers}}}" if matchers else ""
    parts = [
        f'label_replace({expr.replace("{matchers}", body)}, "of", "{place}", "", "")'
        for place, expr in enumerate(LINKS_DOWN)
    ]
    return f"sum by (instance) ({' or '.join(parts)}) or 0 * max by (instance) (trainvitals_build_info{body})"


_GAUGES = (("progress", "Progress", "进度"), ("learning", "Learning", "学习"), ("efficiency", "Efficiency", "效率"))

RUN_TABLE = table(
    ("Runs", "训练任务"),
    (
        (
            "A line for each run: its four gauges, and what to look at. A click on the name opens the run. "
            "A cell is empty where the run does not report what it needs."
        ),
        "每个训练任务一行：四个仪表和需要关注的内容。点击任务名打开该任务。缺少所需数据时单元格为空。",
    ),
    Column(name="Run", name_zh="训练任务", label="run", link=("run", "run")),
    *(
        Column(
            name=name,
            name_zh=name_zh,
            # Without the name of the series, or the lines of several could not be joined.
            expr=f"max by (run) ({recorded(f'run:trainvitals_{what}:ratio')})",
            unit="percentunit",
            decimals=0,
            thresholds=NEUTRAL if what == "progress" else GOOD_WHEN_HIGH,
            bar=True,
        )
        for what, name, name_zh in (*_GAUGES, ("health", "Health", "健康"))
    ),
    Column(
        name="Findings",
        name_zh="发现的问题",
        expr=(
            f"count by (run) (max by (run, signal) (trainvitals_finding_info{{{RUN}}}))"
            f" or 0 * max by (run) (trainvitals_run_info{{{RUN}}})"
        ),
        decimals=0,
        thresholds=FEW_IS_GOOD,
    ),
    Column(
        name="Goodput",
        name_zh="有效训练占比",
        expr=f"avg by (run) (avg_over_time({recorded('run:trainvitals_goodput:ratio')}[$__range]))",
        unit="percentunit",
        decimals=0,
        thresholds=GOOD_WHEN_HIGH,
    ),
    Column(name="Step", name_zh="步数", expr=f"max by (run) (trainvitals_step{{{RUN}}})", decimals=0),
    Column(name="Loss", name_zh="损失", expr=f"avg by (run) (trainvitals_loss{{{RUN}}})", decimals=4),
    Column(
        name="Remaining",
        name_zh="剩余时间",
        expr=f"max by (run) ({recorded('run:trainvitals_remaining:seconds')})",
        unit="s",
        decimals=0,
    ),
    Column(
        name="Ranks that live", name_zh="存活 rank", expr=f"sum by (run) (trainvitals_rank_up{{{RUN}}})", decimals=0
    ),
    height=10,
    sort="Findings",
)

NODE_TABLE = table(
    ("Nodes", "节点"),
    (
        "A line for each node whose exporter answers or did so lately. A click on the name opens the node.",
        "每个节点一行（采集器正在或近期有响应）。点击节点名打开该节点。",
    ),
    Column(name="Node", name_zh="节点", label="instance", link=("node", "instance")),
    Column(name="Exporter", name_zh="采集器", expr=f"max by (instance) (up{{{ALL_EXPORTERS}}})", states=UP),
    Column(name="Devices", name_zh="设备数", expr="sum by (instance) (trainvitals_devices_readable)", decimals=0),
    Column(
        name="Devices lost",
        name_zh="失联设备",
        expr="sum by (instance) (clamp_min(trainvitals_devices_expected - trainvitals_devices_readable, 0))",
        decimals=0,
        thresholds=NONE_IS_GOOD,
    ),
    Column(
        name="Utilization",
        name_zh="利用率",
        expr="avg by (instance) (trainvitals_device_utilization_ratio)",
        unit="percentunit",
        decimals=0,
        thresholds=NEUTRAL,
        bar=True,
    ),
    Column(
        name="Degrees left",
        name_zh="降频余量",
        expr="min by (instance) (trainvitals_device_temperature_margin_celsius)",
        unit="celsius",
        decimals=0,
        thresholds=((None, "red"), (0.1, "orange"), (5, "green")),
    ),
    Column(
        name="Links down",
        name_zh="断开的链路",
        expr=links_down(),
        decimals=0,
        thresholds=FEW_IS_GOOD,
    ),
    Column(
        name="Memory available",
        name_zh="可用内存",
        expr=(
            "min by (instance) (trainvitals_host_memory_available_bytes / (trainvitals_host_memory_total_bytes > 0))"
        ),
        unit="percentunit",
        decimals=0,
        thresholds=((None, "red"), (DEFAULTS.memory_available_ratio, "green")),
    ),
    Column(
        name="Least free disk",
        name_zh="最少剩余磁盘",
        expr=(
            "min by (instance)"
            " (trainvitals_host_filesystem_available_bytes / (trainvitals_host_filesystem_size_bytes > 0))"
        ),
        unit="percentunit",
        decimals=0,
        thresholds=((None, "red"), (DEFAULTS.filesystem_available_ratio, "green")),
    ),
    height=10,
    sort="Devices lost",
)
