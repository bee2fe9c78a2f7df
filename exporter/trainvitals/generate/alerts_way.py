"""Alerts about the way of an alert: rules that are evaluated, Alertmanager, the notifier.

Those about Alertmanager cannot come through it alone: a dead man's switch behind TrainvitalsWatchdog tells that it is
away, and the dashboard about the monitoring itself shows the rest.
Each reads what a scrape job of deploy/prometheus/prometheus.yml brings; without that job it stays quiet.
"""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import listed

_WINDOW = f"{LIMITS.loss_window:duration}"
_REASONS = listed(
    f"sum by (reason) (increase(trainvitals_notify_failures_total{{instance=%q,target=%q}}[{_WINDOW}])) > 0",
    "{{ .Labels.reason }}",
    "instance",
    "target",
    by="reason",
    none="?",
)
#: Scrape jobs of what carries messages.
MESSENGERS = ("alertmanager", "trainvitals-notify")

_RULES: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsRulesFailing",
        file="meta",
        category="resource",
        severity="critical",
        gauge="health",
        expr=(
            "max by (instance, rule_group) "
            f'(increase(prometheus_rule_evaluation_failures_total{{rule_group=~".*;trainvitals-.+"}}[{_WINDOW}])) > 0'
        ),
        wait=LIMITS.collector_for,
        summary="Prometheus {{ $labels.instance }} cannot evaluate rules of Trainvitals",
        summary_zh="Prometheus {{ $labels.instance }} 无法计算 Trainvitals 的规则",
        description=(
            'Rules of {{ $labels.rule_group }} failed {{ $value | printf "%.0f" }} times in the last '
            f"{LIMITS.loss_window:words}."
        ),
        description_zh=(
            f"最近 {LIMITS.loss_window:zh}内，"
            '{{ $labels.rule_group }} 的规则失败 {{ $value | printf "%.0f" }} 次。'
        ),
        action=(
            "Read the error on the rules page of Prometheus. Many-to-many matching: an exporter is scraped twice, "
            "under two jobs or names; keep one. Out of memory or samples: raise the limits of Prometheus."
        ),
        action_zh=(
            "在 Prometheus 的 rules 页面查看错误。many-to-many matching：某个导出器以两个任务名或地址被重复抓取，"
            "只保留一个。内存或样本超限：提高 Prometheus 的限制。"
        ),
        impact="The alerts of that group cannot fire.",
        impact_zh="该组的告警无法触发。",
        diagnosis="The rules page of Prometheus shows the last error of each rule; its log has all of them.",
        diagnosis_zh="Prometheus 的 rules 页面显示每条规则最近的错误，日志中有全部错误。",
    ),
    Alert(
        name="TrainvitalsRulesLate",
        file="meta",
        category="resource",
        severity="warning",
        gauge="health",
        # One or two are missed when Prometheus starts or reads its configuration again.
        expr=(
            "max by (instance, rule_group) (increase(prometheus_rule_group_iterations_missed_total"
            f'{{rule_group=~".*;trainvitals-.+"}}[{_WINDOW}])) > 3'
        ),
        wait=LIMITS.collector_for,
        summary="Prometheus {{ $labels.instance }} takes too long over rules of Trainvitals",
        summary_zh="Prometheus {{ $labels.instance }} 计算 Trainvitals 规则耗时过长",
        description=(
            '{{ $value | printf "%.0f" }} evaluations of {{ $labels.rule_group }} were left out in the last '
            f"{LIMITS.loss_window:words}."
        ),
        description_zh=(
            f"最近 {LIMITS.loss_window:zh}内，"
            '{{ $labels.rule_group }} 有 {{ $value | printf "%.0f" }} 次计算被跳过。'
        ),
        action="Give Prometheus more CPU, take load from it, or raise `evaluation_interval`.",
        action_zh="给 Prometheus 更多 CPU、减轻其负载，或调大 `evaluation_interval`。",
        impact="Alerts come late, and waits are not what they should be.",
        impact_zh="告警会延迟，等待时间也不准确。",
        diagnosis="`prometheus_rule_group_last_duration_seconds` against `evaluation_interval`.",
        diagnosis_zh="比较 `prometheus_rule_group_last_duration_seconds` 与 `evaluation_interval`。",
    ),
    Alert(
        name="TrainvitalsAlertsDropped",
        file="meta",
        category="resource",
        severity="critical",
        gauge="health",
        expr=f"max by (instance) (increase(prometheus_notifications_dropped_total[{_WINDOW}])) > 0",
        wait=LIMITS.exporter_down_for,
        summary="Prometheus {{ $labels.instance }} cannot hand alerts to Alertmanager",
        summary_zh="Prometheus {{ $labels.instance }} 无法把告警交给 Alertmanager",
        description=(
            f'About {{{{ $value | printf "%.0f" }}}} alerts were dropped in the last {LIMITS.loss_window:words}.'
        ),
        description_zh=f'最近 {LIMITS.loss_window:zh}内约有 {{{{ $value | printf "%.0f" }}}} 条告警被丢弃。',
        action="See that Alertmanager runs, and that its address under `alerting` in Prometheus' settings is right.",
        action_zh="确认 Alertmanager 正在运行，且 Prometheus 配置中 `alerting` 的地址正确。",
        impact="Nobody is told of alerts; Prometheus goes on trying with those that last.",
        impact_zh="告警没有送达任何人；仍在持续的告警 Prometheus 会继续尝试发送。",
        diagnosis="The status page of Prometheus lists the Alertmanagers that it knows; its log has the errors.",
        diagnosis_zh="Prometheus 的 status 页面列出已知的 Alertmanager，日志中有错误信息。",
    ),
)

_MESSAGES: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsMessengerDown",
        file="meta",
        category="resource",
        severity="critical",
        gauge="health",
        expr=(
            f'max by (job, instance) (avg_over_time(up{{job=~"{"|".join(MESSENGERS)}"}}'
            f"[{LIMITS.exporter_down_window:duration}])) < 0.5"
        ),
        wait=LIMITS.exporter_down_for,
        summary="{{ $labels.job }} on {{ $labels.instance }} does not answer",
        summary_zh="{{ $labels.instance }} 上的 {{ $labels.job }} 无响应",
        description=(
            "{{ $value | humanizePercentage }} of the scrapes of the last "
            f"{LIMITS.exporter_down_window:words} succeeded."
        ),
        description_zh=f"最近 {LIMITS.exporter_down_window:zh}仅有 {{{{ $value | humanizePercentage }}}} 的抓取成功。",
        action=(
            "Read its log and start it again; check its configuration (`amtool check-config`, "
            "`trainvitals notify --check`)."
        ),
        action_zh="查看其日志并重新启动；检查配置（`amtool check-config`、`trainvitals notify --check`）。",
        impact="Messages that go this way arrive nowhere until it is back.",
        impact_zh="恢复之前，经由它的消息都无法送达。",
        diagnosis="The targets page of Prometheus shows the error of the last scrape.",
        diagnosis_zh="Prometheus 的 targets 页面显示最近一次抓取的错误。",
    ),
    Alert(
        name="TrainvitalsMessagesFailing",
        file="meta",
        category="resource",
        severity="critical",
        gauge="health",
        # Counted once Alertmanager has given up its retries for this turn, not for each try.
        expr=(f"max by (instance, integration) (increase(alertmanager_notifications_failed_total[{_WINDOW}])) > 0"),
        summary="Alertmanager {{ $labels.instance }} cannot send messages by {{ $labels.integration }}",
        summary_zh="Alertmanager {{ $labels.instance }} 无法通过 {{ $labels.integration }} 发送消息",
        description=(
            'About {{ $value | printf "%.0f" }} messages by {{ $labels.integration }} failed in the last '
            f"{LIMITS.loss_window:words}, all tries included."
        ),
        description_zh=(
            f"最近 {LIMITS.loss_window:zh}内，经 "
            '{{ $labels.integration }} 发送的消息约有 {{ $value | printf "%.0f" }} 条在重试后仍失败。'
        ),
        action=(
            "Read Alertmanager's log: it names the receiver and the answer. webhook: see that the notifier runs. "
            "email: server, port, user, password file. Send this alert by another way than the one that fails."
        ),
        action_zh=(
            "查看 Alertmanager 日志：其中有接收方和返回内容。webhook：确认通知服务在运行。"
            "email：检查服务器、端口、用户和密码文件。本告警应走另一条通道发送。"
        ),
        impact="People are not told by this way; Alertmanager tries again with the next turn of the group.",
        impact_zh="该通道的收件人没有收到消息；Alertmanager 会在该分组的下一轮重试。",
        diagnosis="`alertmanager_notifications_failed_total`; `trainvitals notify --test` sends a sample.",
        diagnosis_zh="查看 `alertmanager_notifications_failed_total`；用 `trainvitals notify --test` 发送样例。",
    ),
    Alert(
        name="TrainvitalsNotifierFailing",
        file="meta",
        category="resource",
        severity="warning",
        gauge="health",
        # A robot that is busy takes the message minutes later: then something was sent as well.
        expr=(
            f"sum by (instance, target) (increase(trainvitals_notify_failures_total[{_WINDOW}])) > 0\n"
            "unless on (instance, target)\n"
            f"sum by (instance, target) (increase(trainvitals_notify_sent_total[{_WINDOW}])) > 0"
        ),
        wait=LIMITS.collector_for,
        summary="The notifier on {{ $labels.instance }} cannot reach {{ $labels.target }}",
        summary_zh="{{ $labels.instance }} 上的通知服务无法送达 {{ $labels.target }}",
        description=(f"Nothing was delivered in the last {LIMITS.loss_window:words}. Reasons: " + _REASONS + "."),
        description_zh=(f"最近 {LIMITS.loss_window:zh}内没有送达任何消息。原因：" + _REASONS + "。"),
        action="Run `trainvitals notify --test` and correct what it says: token, signature, keyword, address, proxy.",
        action_zh="运行 `trainvitals notify --test`，按其提示修正：令牌、签名、关键词、地址或代理。",
        impact="This chat gets no messages.",
        impact_zh="该群聊收不到消息。",
        diagnosis="`trainvitals_notify_failures_total` by reason; docs/notify.md explains each.",
        diagnosis_zh="按 reason 查看 `trainvitals_notify_failures_total`；docs/notify.md 有各原因的说明。",
    ),
    Alert(
        name="TrainvitalsNotifierForgetful",
        file="meta",
        category="resource",
        severity="info",
        gauge="health",
        expr="max by (instance) (trainvitals_notify_memory_lossy) == 1",
        wait=LIMITS.collector_for,
        summary="The notifier on {{ $labels.instance }} cannot remember what it sent",
        summary_zh="{{ $labels.instance }} 上的通知服务无法记录已发送的消息",
        description="Its state folder cannot be written or read.",
        description_zh="其状态目录无法写入或读取。",
        action="Give the notifier a folder that it can write to (`state_folder`), and room there.",
        action_zh="为通知服务提供可写且有空间的目录（`state_folder`）。",
        impact="After a restart a message may come twice.",
        impact_zh="重启后同一消息可能发送两次。",
        diagnosis="The log of the notifier names the folder and the error.",
        diagnosis_zh="通知服务的日志给出目录和错误。",
    ),
)

_STATE: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsStateErrors",
        file="meta",
        category="resource",
        severity="warning",
        gauge="learning",
        expr=f"sum by (instance, reason) (increase(trainvitals_state_errors_total[{_WINDOW}])) > 0",
        wait=LIMITS.collector_for,
        summary="The exporter on {{ $labels.instance }} cannot keep what its detectors know",
        summary_zh="{{ $labels.instance }} 上的导出器无法保存检测器状态",
        description='Reason: {{ $labels.reason }}, {{ $value | printf "%.0f" }} times or more.',
        description_zh='原因：{{ $labels.reason }}，至少 {{ $value | printf "%.0f" }} 次。',
        action=(
            "save, file: see that the state folder can be written and has room. rank, detector: the log names what "
            "failed; report it to us."
        ),
        action_zh="save、file：确认状态目录可写且有空间。rank、detector：日志给出失败之处，请向我们报告。",
        impact="After its next restart the exporter judges these runs as if they were new.",
        impact_zh="导出器下次重启后会把这些训练当作新的来判断。",
        diagnosis="`trainvitals_state_saved_timestamp_seconds` is when it last could.",
        diagnosis_zh="`trainvitals_state_saved_timestamp_seconds` 是最近一次成功保存的时间。",
    ),
    Alert(
        name="TrainvitalsFamiliesFailed",
        file="meta",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"max by (instance) (increase(trainvitals_families_failed_total[{_WINDOW}])) > 0",
        summary="The exporter on {{ $labels.instance }} leaves out metrics that it cannot write",
        summary_zh="{{ $labels.instance }} 上的导出器略过了无法输出的指标",
        description=f"Whole families were missing in scrapes of the last {LIMITS.loss_window:words}.",
        description_zh=f"最近 {LIMITS.loss_window:zh}的抓取中缺少整个指标族。",
        action="Read the exporter's log, which names the family once, and report it to us.",
        action_zh="查看导出器日志，其中会给出一次指标族名称，并向我们报告。",
        impact="Alerts that need these metrics cannot fire on this node.",
        impact_zh="该节点上依赖这些指标的告警无法触发。",
        diagnosis="`trainvitals_families_failed_total` counts them.",
        diagnosis_zh="`trainvitals_families_failed_total` 是其次数。",
    ),
)

WAY: tuple[Alert, ...] = (*_RULES, *_MESSAGES, *_STATE)
