"""Dashboard "Monitoring itself", the way from the rules to people: Prometheus, Alertmanager, the notifier."""

from __future__ import annotations

from trainvitals.generate.panels import FEW_IS_GOOD, NONE_IS_GOOD, Column, Row, lines, table

NO_SELF = ("Prometheus does not scrape itself", "Prometheus 未抓取自身")
NO_NOTIFIER = ("the notifier is not scraped", "未抓取通知器")
_NO_MANAGER = ("Alertmanager is not scraped", "未抓取 Alertmanager")

PROMETHEUS = Row(
    title="Prometheus, Alertmanager, notifier",
    title_zh="Prometheus、Alertmanager 与通知器",
    panels=(
        lines(
            ("Time of the rules", "规则评估用时"),
            ("Seconds of the last evaluation, by group.", "各规则组最近一次评估的秒数。"),
            "s",
            ("max by (rule_group) (prometheus_rule_group_last_duration_seconds)", "{{rule_group}}"),
            minimum=0.0,
            empty=NO_SELF,
        ),
        lines(
            ("Rules that fail", "失败的规则"),
            (
                "Evaluations that failed, per minute: a rule that fails is an alert that is silent.",
                "每分钟评估失败次数：失败的规则就是沉默的告警。",
            ),
            "none",
            (
                "60 * sum by (rule_group) (rate(prometheus_rule_evaluation_failures_total[$__rate_interval]))",
                "{{rule_group}}",
            ),
            thresholds=NONE_IS_GOOD,
            minimum=0.0,
            empty=NO_SELF,
        ),
        lines(
            ("Series in memory", "内存序列数"),
            ("Series that Prometheus holds.", "Prometheus 内存中的序列数。"),
            "short",
            ("max by (instance) (prometheus_tsdb_head_series)", "{{instance}}"),
            minimum=0.0,
            empty=NO_SELF,
        ),
        lines(
            ("Alerts that did not reach Alertmanager", "未送达 Alertmanager"),
            ("Alerts per minute that Prometheus dropped.", "Prometheus 每分钟丢弃的告警数。"),
            "none",
            ("60 * sum(rate(prometheus_notifications_dropped_total[$__rate_interval]))", "dropped", "丢弃"),
            thresholds=NONE_IS_GOOD,
            minimum=0.0,
            empty=NO_SELF,
        ),
        lines(
            ("Messages of Alertmanager", "Alertmanager 消息"),
            ("Messages per minute by integration, and those that failed.", "每分钟消息数（按集成方式）及失败数。"),
            "none",
            (
                "60 * sum by (integration) (rate(alertmanager_notifications_total[$__rate_interval])) > 0",
                "{{integration}} sent",
                "{{integration}} 发送",
            ),
            (
                "60 * sum by (integration) (rate(alertmanager_notifications_failed_total[$__rate_interval])) > 0",
                "{{integration}} failed",
                "{{integration}} 失败",
            ),
            minimum=0.0,
            empty=("nothing sent, or Alertmanager is not scraped", "没有发送，或未抓取 Alertmanager"),
        ),
        lines(
            ("Alerts in Alertmanager", "Alertmanager 中的告警"),
            ("Alerts by state: active, or suppressed by silences and inhibitions.", "按状态：活动，或被静默与抑制。"),
            "none",
            ("sum by (state) (alertmanager_alerts)", "{{state}}"),
            minimum=0.0,
            decimals=0,
            empty=_NO_MANAGER,
        ),
        lines(
            ("Messages of the notifier", "通知器消息"),
            ("Messages by what became of them, per minute.", "每分钟消息数，按结果。"),
            "none",
            (
                "60 * sum by (outcome) (rate(trainvitals_notify_messages_total[$__rate_interval]))",
                "{{outcome}}",
            ),
            minimum=0.0,
            empty=NO_NOTIFIER,
        ),
        table(
            ("Targets of the notifier", "通知目标"),
            (
                "Each robot or mailbox: when it last took a message, and what it refused.",
                "每个机器人或邮箱：最近一次成功时间与失败数。",
            ),
            Column(name="Target", name_zh="目标", label="target"),
            Column(
                name="Last success",
                name_zh="最近成功",
                expr="1000 * max by (target) (trainvitals_notify_last_success_timestamp_seconds)",
                unit="dateTimeAsIso",
            ),
            Column(
                name="Sent",
                name_zh="已发送",
                expr="sum by (target) (increase(trainvitals_notify_sent_total[$__range]))",
                decimals=0,
            ),
            Column(
                name="Failed",
                name_zh="失败",
                expr="sum by (target) (increase(trainvitals_notify_failures_total[$__range]))",
                decimals=0,
                thresholds=FEW_IS_GOOD,
            ),
            width=16,
            height=8,
            empty=NO_NOTIFIER,
        ),
    ),
)
