"""The dashboard "Monitoring": exporters, Prometheus, Alertmanager and the notifier look at themselves."""

from __future__ import annotations

from trainvitals.generate.dashboard_marks import NODE_ALERTED, NODES
from trainvitals.generate.dashboard_self_way import NO_NOTIFIER, NO_SELF, PROMETHEUS
from trainvitals.generate.panels import (
    EXPORTER,
    FEW_IS_GOOD,
    NODE,
    NONE_IS_GOOD,
    UP,
    WELL,
    Column,
    Dashboard,
    Row,
    lines,
    stat,
    states,
    table,
)
from trainvitals.generate.thresholds import DEFAULTS

_AGE = f"time() - max by (instance) (trainvitals_snapshot_timestamp_seconds{{{NODE}}})"
_STALE = ((None, "green"), (DEFAULTS.snapshot_age, "red"))

TOP = Row(
    title="",
    title_zh="",
    panels=(
        stat(
            ("Exporters that answer", "正常采集器"),
            ("Exporters that Prometheus could read last.", "Prometheus 最近一次抓取成功的采集器数。"),
            "none",
            f"sum(up{{{EXPORTER}}})",
            legend="",
            decimals=0,
            thresholds=WELL,
            empty=("no exporter is known", "没有已知采集器"),
        ),
        stat(
            ("Exporters that do not", "失联采集器"),
            ("Exporters that Prometheus could not read last.", "Prometheus 最近一次抓取失败的采集器数。"),
            "none",
            f"count(up{{{EXPORTER}}} == 0) or vector(0)",
            legend="",
            decimals=0,
            thresholds=NONE_IS_GOOD,
        ),
        stat(
            ("Oldest values", "最旧数据"),
            (
                (
                    "Age of the oldest values that an exporter shows, by the clock of Prometheus: "
                    "a clock that is adrift shows here too."
                ),
                "采集器数据中最旧的时间差（按 Prometheus 的时钟，节点时钟漂移也会体现）。",
            ),
            "s",
            f"max({_AGE})",
            legend="",
            thresholds=_STALE,
            empty=("no exporter answers", "没有采集器响应"),
        ),
        stat(
            ("Sources that fail", "失败的数据源"),
            ("Collectors whose last read failed.", "最近一次读取失败的采集项数。"),
            "none",
            f"count(trainvitals_collector_success{{{NODE}}} == 0) or vector(0)",
            legend="",
            decimals=0,
            thresholds=FEW_IS_GOOD,
        ),
        stat(
            ("Rules, a round", "规则用时"),
            (
                "How long the last round of all groups of rules took; above the interval Prometheus falls behind.",
                "Prometheus 最近一轮评估所有规则组所用时间；超过评估间隔就会落后。",
            ),
            "s",
            "sum(prometheus_rule_group_last_duration_seconds)",
            legend="",
            thresholds=((None, "green"), (5, "orange"), (15, "red")),
            empty=NO_SELF,
        ),
        stat(
            ("Messages not sent", "未送达消息"),
            (
                "Messages that a target of the notifier did not take, in the chosen time.",
                "所选时间内通知目标未接收的消息数。",
            ),
            "none",
            "sum(increase(trainvitals_notify_failures_total[$__range])) or 0 * sum(trainvitals_notify_build_info)",
            legend="",
            decimals=0,
            thresholds=NONE_IS_GOOD,
            empty=NO_NOTIFIER,
        ),
    ),
)

EXPORTERS = Row(
    title="Exporters",
    title_zh="采集器",
    panels=(
        states(
            ("Exporters", "采集器状态"),
            ("Green while Prometheus can read the exporter.", "绿色：Prometheus 可以抓取。"),
            "none",
            (f"max by (instance) (up{{{EXPORTER}}})", "{{instance}}"),
            width=12,
            states=UP,
            thresholds=WELL,
            link=("node", "instance"),
        ),
        states(
            ("Collectors", "采集项"),
            (
                "Red while the last read of a source failed; a source that does not exist here is green.",
                "红色：最近一次读取失败；本机不存在的数据源为绿色。",
            ),
            "none",
            (f"min by (instance, collector) (trainvitals_collector_success{{{NODE}}})", "{{instance}} {{collector}}"),
            width=12,
            states=((0, 0, "failed", "失败", "red"), (1, 1, "well", "正常", "green")),
            thresholds=WELL,
        ),
        table(
            ("Exporters in numbers", "采集器列表"),
            ("A line for each exporter.", "每个采集器一行。"),
            Column(name="Node", name_zh="节点", label="instance", link=("node", "instance")),
            Column(name="Version", name_zh="版本", label="version"),
            Column(name="Age of the values", name_zh="数据时延", expr=_AGE, unit="s", decimals=0, thresholds=_STALE),
            Column(
                name="Series",
                name_zh="序列数",
                expr=f"max by (instance) (scrape_samples_scraped{{{EXPORTER}}})",
                decimals=0,
            ),
            Column(
                name="Scrape",
                name_zh="抓取用时",
                expr=f"max by (instance) (scrape_duration_seconds{{{EXPORTER}}})",
                unit="s",
            ),
            Column(
                name="Memory",
                name_zh="内存",
                expr=f"max by (instance) (process_resident_memory_bytes{{{EXPORTER}}})",
                unit="bytes",
            ),
            Column(
                name="Rank files",
                name_zh="rank 文件",
                expr=f"max by (instance) (trainvitals_rank_files{{{NODE}}})",
                decimals=0,
            ),
            Column(
                name="Rank files rejected",
                name_zh="被拒 rank 文件",
                expr=f"sum by (instance) (trainvitals_rank_files_rejected{{{NODE}}})"
                f" or 0 * max by (instance) (trainvitals_build_info{{{NODE}}})",
                decimals=0,
                thresholds=FEW_IS_GOOD,
            ),
            hidden=(f"max by (instance, version) (trainvitals_build_info{{{NODE}}})",),
        ),
        lines(
            ("Age of the values", "数据时延"),
            ("A line that climbs is an exporter whose reading hangs.", "持续上升说明采集卡住。"),
            "s",
            (_AGE, "{{instance}}"),
            thresholds=_STALE,
            minimum=0.0,
        ),
        lines(
            ("Time of the collectors", "采集用时"),
            ("How long the last read of each source took.", "各数据源最近一次读取所用时间。"),
            "s",
            (
                f"max by (instance, collector) (trainvitals_collector_duration_seconds{{{NODE}}})",
                "{{instance}} {{collector}}",
            ),
            minimum=0.0,
        ),
        lines(
            ("Lost or dropped, per minute", "丢失与丢弃（每分钟）"),
            (
                "Series beyond the cap, step records that were overwritten or broken, values that are impossible.",
                "超过上限的序列、被覆盖或损坏的步记录、不可能的取值。",
            ),
            "none",
            (
                f"60 * sum by (instance) (rate(trainvitals_series_dropped_total{{{NODE}}}[$__rate_interval]))",
                "{{instance}} series",
                "{{instance}} 序列",
            ),
            (
                f"60 * sum by (instance) (rate(trainvitals_records_lost_total{{{NODE}}}[$__rate_interval]))",
                "{{instance}} records lost",
                "{{instance}} 丢失记录",
            ),
            (
                f"60 * sum by (instance) (rate(trainvitals_records_invalid_total{{{NODE}}}[$__rate_interval]))",
                "{{instance}} records broken",
                "{{instance}} 损坏记录",
            ),
            (
                f"60 * sum by (instance) (rate(trainvitals_values_rejected_total{{{NODE}}}[$__rate_interval]))",
                "{{instance}} values",
                "{{instance}} 取值",
            ),
            minimum=0.0,
        ),
        lines(
            ("CPU of the exporters", "采集器 CPU"),
            (
                "Processor time of the exporter's own process, per second; its children are not in it.",
                "采集器自身进程每秒占用的 CPU 时间，不含子进程。",
            ),
            "percentunit",
            (f"max by (instance) (rate(process_cpu_seconds_total{{{EXPORTER}}}[$__rate_interval]))", "{{instance}}"),
            width=12,
            minimum=0.0,
        ),
        lines(
            ("Series of each exporter", "各采集器序列数"),
            (
                "The budget of a node with eight devices is 1,500, besides 150 for each rank.",
                "8 设备节点预算 1500，另加每个 rank 150。",
            ),
            "short",
            (f"max by (instance) (scrape_samples_scraped{{{EXPORTER}}})", "{{instance}}"),
            width=12,
            minimum=0.0,
        ),
    ),
)

SELF = Dashboard(
    name="self",
    title="Monitoring itself",
    title_zh="监控自身",
    description="Whether what the other dashboards say can be trusted: exporters, rules, and the way to people.",
    description_zh="其他看板是否可信：采集器、规则和通知链路。",
    rows=(TOP, EXPORTERS, PROMETHEUS),
    variables=(NODES,),
    annotations=(NODE_ALERTED,),
)
