"""The dashboard "Incidents and goodput": what broke, when, what it cost, and how much work is at stake."""

from __future__ import annotations

from trainvitals.generate.dashboard_marks import MARKS, RUNS
from trainvitals.generate.panels import (
    FEW_IS_GOOD,
    GOOD_WHEN_HIGH,
    HELP,
    NONE_IS_GOOD,
    RUN,
    Column,
    Dashboard,
    Row,
    lines,
    recorded,
    stat,
    states,
    table,
)
from trainvitals.generate.thresholds import DEFAULTS

_ALERTS = f'{{{RUN},alertname=~"Trainvitals.+",alertstate="firing"}}'
_OTHER_ALERTS = '{run="",alertname=~"Trainvitals.+",alertname!="TrainvitalsWatchdog",alertstate="firing"}'
_LEVEL = (
    'max by (alertname, run, instance) (3 * ALERTS{severity="critical",%s or 2 * ALERTS{severity="warning",%s'
    ' or ALERTS{severity="info",%s)'
)
_SEVERITIES = (
    (1, 1, "info", "提示", "blue"),
    (2, 2, "warning", "警告", "orange"),
    (3, 3, "critical", "严重", "red"),
)
_LEVELS = ((None, "transparent"), (1, "blue"), (2, "orange"), (3, "red"))
#: Seconds by the exporter's own clock, of nodes whose exporter shows the run.
_CHECKPOINT_AGE = (
    "min by (run) (max by (instance) (trainvitals_snapshot_timestamp_seconds)"
    f" - on (instance) group_right () trainvitals_checkpoint_timestamp_seconds{{{RUN}}})"
)
_DEAD = f'trainvitals_rank_state{{{RUN},state=~"died|failed"}}'


def _history(matchers: str) -> str:
    inner = matchers[1:]
    return _LEVEL % (inner, inner, inner)


TOP = Row(
    title="",
    title_zh="",
    panels=(
        stat(
            ("Goodput", "有效训练占比"),
            (
                f"Mean over the chosen time. {HELP['run:trainvitals_goodput:ratio']}",
                "所选时间内的平均值：真正用于训练的时间占全部 rank 时间的比例；重启后重做的工作会重复计入。",
            ),
            "percentunit",
            f"avg by (run) (avg_over_time({recorded('run:trainvitals_goodput:ratio')}[$__range]))",
            thresholds=GOOD_WHEN_HIGH,
            decimals=0,
            empty=("no phases reported", "未上报阶段"),
        ),
        stat(
            ("Restarts", "重启次数"),
            (
                "Starts of a further attempt in the chosen time, as seen by scrapes: two within one are one.",
                "所选时间内再次启动的次数（按抓取观察，一个抓取间隔内的两次算一次）。",
            ),
            "none",
            f"max by (run) (changes(trainvitals_start_timestamp_seconds{{{RUN}}}[$__range]))",
            thresholds=FEW_IS_GOOD,
            decimals=0,
            empty=("no run", "没有任务"),
        ),
        stat(
            ("Ranks lost", "失去的 rank"),
            (
                "Ranks that died or failed in the chosen time, those of attempts since restarted included.",
                "所选时间内死亡或异常退出的 rank 数，包括已重启的尝试。",
            ),
            "none",
            f"sum by (run) (max by (run, rank) (max_over_time({_DEAD}[$__range])))",
            thresholds=NONE_IS_GOOD,
            decimals=0,
            empty=("no run", "没有任务"),
        ),
        stat(
            ("Age of the last checkpoint", "检查点距今"),
            (
                "What would be lost now: the time since the newest checkpoint of the run.",
                "现在出事会损失多少：距最近一次检查点的时间。",
            ),
            "s",
            _CHECKPOINT_AGE,
            thresholds=((None, "green"), (3600, "orange"), (21600, "red")),
            empty=("no checkpoint yet", "尚无检查点"),
        ),
        stat(
            ("Longest stand-still", "最长停滞"),
            (
                "The longest time without a step of any rank, in the chosen time.",
                "所选时间内任一 rank 没有完成一步的最长时间。",
            ),
            "s",
            f"max by (run) (max_over_time(rank:trainvitals_step_age:seconds{{{RUN}}}[$__range]))",
            thresholds=((None, "green"), (DEFAULTS.stall, "red")),
            empty=("no rank lives", "没有存活的 rank"),
        ),
        stat(
            ("Failed checkpoints", "失败的检查点"),
            ("Saves that raised an exception, in the chosen time.", "所选时间内抛出异常的保存次数。"),
            "none",
            f"sum by (run) (increase(trainvitals_checkpoint_failures_total{{{RUN}}}[$__range]))",
            thresholds=NONE_IS_GOOD,
            decimals=0,
            empty=("no run", "没有任务"),
        ),
    ),
)

HISTORY = Row(
    title="Alerts",
    title_zh="告警",
    panels=(
        states(
            ("Alerts of the runs", "任务告警"),
            (
                "When which alert fired: blue for info, orange for a warning, red for critical.",
                "告警触发的时段：蓝为提示，橙为警告，红为严重。",
            ),
            "none",
            (_history(_ALERTS), "{{run}} {{alertname}}"),
            width=12,
            height=10,
            states=_SEVERITIES,
            thresholds=_LEVELS,
            empty=("no alert in this time", "该时段没有告警"),
        ),
        states(
            ("Alerts of nodes and monitoring", "节点与监控告警"),
            (
                "The same for alerts that belong to no run; the watchdog, which always fires, is left out.",
                "不属于任何任务的告警；始终触发的 watchdog 除外。",
            ),
            "none",
            (_history(_OTHER_ALERTS), "{{instance}} {{alertname}}"),
            width=12,
            height=10,
            states=_SEVERITIES,
            thresholds=_LEVELS,
            empty=("no alert in this time", "该时段没有告警"),
        ),
        table(
            ("Fires now", "当前告警"),
            ("Alerts that fire now, of the chosen runs.", "所选任务当前触发的告警。"),
            Column(name="Alert", name_zh="告警", label="alertname"),
            Column(name="Severity", name_zh="级别", label="severity"),
            Column(name="Category", name_zh="类别", label="category"),
            Column(name="Run", name_zh="训练任务", label="run", link=("run", "run")),
            source=f"max by (alertname, severity, category, run) (ALERTS{_ALERTS})",
            width=12,
            height=8,
            empty=("no alert", "没有告警"),
        ),
        table(
            ("Last changes", "最近变更"),
            (
                "The last change of each kind, which is the first suspect of what came after it.",
                "每类最近一次变更：之后出现的问题先怀疑它。",
            ),
            Column(name="Run", name_zh="训练任务", label="run"),
            Column(name="Kind", name_zh="类型", label="kind"),
            Column(name="What", name_zh="内容", label="name"),
            Column(name="Before", name_zh="之前", label="old"),
            Column(name="After", name_zh="之后", label="new"),
            source=f"max by (run, kind, name, old, new) (trainvitals_last_change_info{{{RUN}}})",
            width=12,
            height=8,
            empty=("no change seen", "未见变更"),
        ),
    ),
)

RANKS = Row(
    title="Interruptions",
    title_zh="中断",
    panels=(
        lines(
            ("Goodput", "有效训练占比"),
            (HELP["run:trainvitals_goodput:ratio"], "真正用于训练的时间占全部 rank 时间的比例（最近 5 分钟）。"),
            "percentunit",
            (recorded("run:trainvitals_goodput:ratio"), "{{run}}"),
            width=12,
            minimum=0.0,
            maximum=1.0,
            empty=("no phases reported", "未上报阶段"),
        ),
        lines(
            ("Ranks by state", "各状态 rank 数"),
            (
                "How many ranks run, finished, failed, died, or whose log is silent.",
                "运行、完成、异常退出、死亡或日志静默的 rank 数。",
            ),
            "none",
            (f"sum by (run, state) (trainvitals_rank_state{{{RUN}}})", "{{run}} {{state}}"),
            width=12,
            minimum=0.0,
            decimals=0,
        ),
        lines(
            ("Age of the last checkpoint", "检查点距今"),
            ("A saw: its height is what a failure costs.", "锯齿曲线：高度就是故障的代价。"),
            "s",
            (_CHECKPOINT_AGE, "{{run}}"),
            minimum=0.0,
            empty=("no checkpoint yet", "尚无检查点"),
        ),
        lines(
            ("Since the last step", "距上一步的时间"),
            ("The longest over the ranks that live.", "存活 rank 中的最大值。"),
            "s",
            (f"max by (run) (rank:trainvitals_step_age:seconds{{{RUN}}})", "{{run}}"),
            thresholds=((None, "green"), (DEFAULTS.stall, "red")),
            minimum=0.0,
            empty=("no rank lives", "没有存活的 rank"),
        ),
        lines(
            ("Steps, in all and kept", "累计步数与有效步数"),
            (
                "Steps done over all attempts, and the step of the run: what lies between them was done again.",
                "所有尝试累计完成的步数与当前步数：两者之差是重做的工作。",
            ),
            "none",
            (f"max by (run) (trainvitals_steps_total{{{RUN}}})", "{{run}} done", "{{run}} 累计"),
            (f"max by (run) (trainvitals_step{{{RUN}}})", "{{run}} step", "{{run}} 步数"),
            decimals=0,
        ),
        table(
            ("Interruptions by cause", "按原因统计的中断"),
            (
                "From the journals of the nodes, which `trainvitals run` writes; `trainvitals incidents` tells more.",
                "来自各节点的日志库（由 `trainvitals run` 写入）；详情见 `trainvitals incidents`。",
            ),
            Column(name="Run", name_zh="训练任务", label="run", link=("run", "run")),
            Column(name="Cause", name_zh="原因", label="cause"),
            Column(
                name="Times",
                name_zh="次数",
                # Each node of a run may have recorded the same one.
                expr=f"max by (run, cause) (last_over_time(trainvitals_incidents_total{{{RUN}}}[$__range]))",
                decimals=0,
            ),
            Column(
                name="Steps lost",
                name_zh="损失步数",
                expr=f"max by (run, cause) (last_over_time(trainvitals_incident_steps_lost_total{{{RUN}}}[$__range]))",
                decimals=0,
            ),
            Column(
                name="Time to recover",
                name_zh="恢复耗时",
                expr="max by (run, cause)"
                f" (last_over_time(trainvitals_incident_seconds_to_recover_total{{{RUN}}}[$__range]))",
                unit="s",
            ),
            width=12,
            height=8,
            empty=("no interruption in the journals", "日志库中没有中断"),
        ),
        table(
            ("Errors told by the logs", "日志中的错误"),
            ("Errors in the logs of the runs in the chosen time, by cause.", "所选时间内任务日志中的错误，按原因。"),
            Column(name="Run", name_zh="训练任务", label="run"),
            Column(name="Category", name_zh="类别", label="category"),
            Column(name="Cause", name_zh="原因", label="cause"),
            Column(
                name="Times",
                name_zh="次数",
                expr="sum by (run, category, cause)"
                f" (last_over_time(trainvitals_log_errors_total{{{RUN}}}[$__range])) > 0",
                decimals=0,
            ),
            width=12,
            height=8,
            empty=("no log is followed, or none has errors", "未跟踪日志，或日志没有错误"),
        ),
        table(
            ("Devices that were lost", "失联过的设备"),
            ("Devices that do not answer now, and since when.", "当前无响应的设备及起始时间。"),
            Column(name="Node", name_zh="节点", label="instance", link=("node", "instance")),
            Column(name="Device", name_zh="设备", label="device"),
            Column(name="Reason", name_zh="原因", label="reason"),
            Column(
                name="Since",
                name_zh="起始时间",
                expr="1000 * max by (instance, device) (trainvitals_device_down_since_timestamp_seconds)",
                unit="dateTimeAsIso",
            ),
            hidden=("max by (instance, device, reason) (trainvitals_device_down_info)",),
            width=12,
            height=8,
            empty=("all devices answer", "所有设备都有响应"),
        ),
    ),
)

INCIDENTS = Dashboard(
    name="incidents",
    title="Incidents and goodput",
    title_zh="事件与有效训练",
    description="What broke and when, what it cost, and how much work a failure would cost now.",
    description_zh="出过什么问题、何时、代价多少，以及现在出事会损失多少工作。",
    rows=(TOP, HISTORY, RANKS),
    variables=(RUNS,),
    annotations=MARKS,
    span="24h",
)
