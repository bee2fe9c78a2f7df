"""Alerts about the monitoring itself: when one of these is on, silence of the others means nothing."""

from __future__ import annotations

from trainvitals.generate.alerts_way import WAY
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.records import RANK
from trainvitals.generate.rules import JOB, Alert
from trainvitals.generate.texts import ON_RANK, listed

_WINDOW = f"{LIMITS.loss_window:duration}"

_JOURNAL_ERRORS = listed(
    "trainvitals_journal_errors_total{instance=%q} > 0",
    '{{ .Labels.reason }} {{ .Value | printf "%.0f" }}',
    "instance",
    by="reason",
    none="none",
)

_EXPORTERS: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsExporterDown",
        file="meta",
        category="resource",
        severity="critical",
        gauge="health",
        # The mean over a window, not `up == 0`: an exporter that flaps would reset the wait again and again.
        expr=f'max by (instance) (avg_over_time(up{{job="{JOB}"}}[{LIMITS.exporter_down_window:duration}])) < 0.5',
        wait=LIMITS.exporter_down_for,
        summary="The exporter on {{ $labels.instance }} does not answer",
        summary_zh="{{ $labels.instance }} 上的导出器无响应",
        description=(
            "{{ $value | humanizePercentage }} of the scrapes of the last "
            f"{LIMITS.exporter_down_window:words} succeeded; runs there are not watched."
        ),
        description_zh=(
            f"最近 {LIMITS.exporter_down_window:zh}仅有 "
            "{{ $value | humanizePercentage }} 的抓取成功；该节点上的训练无人监视。"
        ),
        action=(
            "Check that the node lives: if not, the run hangs or is dead; take the node out and resume. "
            "If it does, read the exporter's log and start it again; check port and firewall."
        ),
        action_zh=(
            "先确认节点是否存活：若否，训练已挂起或中断，移出该节点并恢复训练。若是，查看导出器日志并重新启动，"
            "检查端口和防火墙。"
        ),
        impact="Nothing on that node is seen; alerts about its runs and devices cannot fire.",
        impact_zh="该节点的一切都看不到，其训练和设备的告警都无法触发。",
        diagnosis="The targets page of Prometheus shows the error of the last scrape.",
        diagnosis_zh="Prometheus 的 targets 页面显示最近一次抓取的错误。",
    ),
    Alert(
        name="TrainvitalsNoExporter",
        file="meta",
        category="resource",
        severity="critical",
        gauge="health",
        # Expected but unseen, not `absent()`: a Prometheus that never knew an exporter is one that nobody has set up
        # yet.  A subquery with long steps reads a day of `up` cheaply.
        expr=f"""
        count(max_over_time(up{{job="{JOB}"}}[1d:10m])) > 0
        unless on ()
        count(up{{job="{JOB}"}}) > 0
        """,
        wait=LIMITS.no_exporter_for,
        summary="Prometheus knows no exporter of training runs any more",
        summary_zh="Prometheus 不再有任何训练导出器目标",
        description=(
            f"The scrape job {JOB} had "
            '{{ $value | printf "%.0f" }} targets within the last day and has none now: nothing is watched.'
        ),
        description_zh=(
            f"抓取任务 {JOB} 在过去一天内有 "
            '{{ $value | printf "%.0f" }} 个目标，现在一个都没有：没有任何训练被监视。'
        ),
        action=(
            f"Look at service discovery: the folder of target files, or the static list. The job must be named {JOB}. "
            "Then reload Prometheus."
        ),
        action_zh=f"检查服务发现：目标文件目录或静态列表。任务名必须是 {JOB}。然后重新加载 Prometheus。",
        impact="No other alert can fire, not even TrainvitalsExporterDown, which needs a target.",
        impact_zh="其他告警都无法触发，包括 TrainvitalsExporterDown，因为它也需要抓取目标。",
        diagnosis=(
            "The targets page of Prometheus does not list the job, or lists it without targets. The alert ends a day "
            "after the last target was seen; where there never was one, it does not fire."
        ),
        diagnosis_zh=(
            "Prometheus 的 targets 页面没有该任务，或该任务下没有目标。最后一个目标消失一天后告警结束；"
            "从未有过目标时不会触发。"
        ),
    ),
    Alert(
        name="TrainvitalsSnapshotStale",
        file="meta",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"max by (instance) (time() - trainvitals_snapshot_timestamp_seconds) > {LIMITS.snapshot_age}",
        wait=LIMITS.device_down_for,
        summary="The exporter on {{ $labels.instance }} shows old values",
        summary_zh="{{ $labels.instance }} 上的导出器数据过旧",
        description="Its values were taken {{ $value | humanizeDuration }} ago.",
        description_zh="其数据采集于 {{ $value | humanizeDuration }} 之前。",
        action=(
            "Compare the clocks of the node and of Prometheus first (chrony, NTP). If they agree, read the exporter's "
            "log and restart it."
        ),
        action_zh="先比较节点与 Prometheus 的时钟（chrony、NTP）。若一致，查看导出器日志并重启。",
        impact="Alerts about this node come late or not at all.",
        impact_zh="该节点的告警会迟到，或根本不触发。",
        diagnosis="`trainvitals_collector_duration_seconds` shows which source is slow.",
        diagnosis_zh="`trainvitals_collector_duration_seconds` 显示哪个数据源慢。",
    ),
    Alert(
        name="TrainvitalsCollectorFailed",
        file="meta",
        category="resource",
        severity="warning",
        gauge="health",
        expr="min by (instance, collector) (trainvitals_collector_success) == 0",
        wait=LIMITS.collector_for,
        summary="The exporter on {{ $labels.instance }} cannot read {{ $labels.collector }}",
        summary_zh="{{ $labels.instance }} 上的导出器无法读取 {{ $labels.collector }}",
        description=(
            "The source {{ $labels.collector }} fails in every round; its series are missing, all others are there."
        ),
        description_zh="数据源 {{ $labels.collector }} 每轮都失败；其序列缺失，其余正常。",
        action=(
            "Read the exporter's log: it names the error once. Rights on the spool and a hung driver are the usual "
            "reasons."
        ),
        action_zh="查看导出器日志：其中会给出一次错误信息。常见原因是 spool 的权限或驱动卡死。",
        impact="Alerts that need this source cannot fire on this node.",
        impact_zh="该节点上依赖此数据源的告警无法触发。",
        diagnosis=(
            "`trainvitals_collector_duration_seconds` near the time limit means slow or hung, absent means still "
            "running."
        ),
        diagnosis_zh=("`trainvitals_collector_duration_seconds` 接近时限说明读取慢或卡住；没有该序列说明仍在读取。"),
    ),
)

_LOSSES: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsRecordsLost",
        file="meta",
        category="resource",
        severity="warning",
        gauge="learning",
        expr=f"max by (instance) (increase(trainvitals_records_lost_total[{_WINDOW}])) > 0",
        summary="The exporter on {{ $labels.instance }} missed steps",
        summary_zh="{{ $labels.instance }} 上的导出器漏读了训练步",
        description='About {{ $value | printf "%.0f" }} records of steps were overwritten before they were read.',
        description_zh='约 {{ $value | printf "%.0f" }} 条训练步记录在读取前被覆盖。',
        action="Give the exporter CPU time (its collect.interval must be met), or report fewer values per step.",
        action_zh="保证导出器有足够的 CPU（须能按 collect.interval 采集），或减少每步上报的值。",
        impact="Detectors have not seen these steps: a spike or a NaN in them stays unknown.",
        impact_zh="检测器没有看到这些步：其中的突增或 NaN 无从得知。",
        diagnosis=(
            "4,096 records fit between two polls; the gap between values of `trainvitals_snapshot_timestamp_seconds` "
            "is the poll."
        ),
        diagnosis_zh=(
            "两次读取之间最多容纳 4,096 条记录；`trainvitals_snapshot_timestamp_seconds` 相邻两值之差就是读取间隔。"
        ),
    ),
    Alert(
        name="TrainvitalsSeriesDropped",
        file="meta",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"max by (instance, collector) (increase(trainvitals_series_dropped_total[{_WINDOW}])) > 0",
        summary="The exporter on {{ $labels.instance }} drops series of {{ $labels.collector }}",
        summary_zh="{{ $labels.instance }} 上的导出器丢弃了 {{ $labels.collector }} 的序列",
        description="The source {{ $labels.collector }} has more series than the cap allows; the rest is left out.",
        description_zh="数据源 {{ $labels.collector }} 的序列超出上限，多余的被丢弃。",
        action="Report fewer names of values, or raise collect.series_limit if Prometheus can bear it.",
        action_zh="减少上报的值名，或在 Prometheus 能承受时提高 collect.series_limit。",
        impact="Which series are missing is chance: ranks or devices beyond the cap are not watched.",
        impact_zh="缺失哪些序列是随机的：超出上限的 rank 或设备无人监视。",
        diagnosis='`count by (run) ({__name__=~"trainvitals_.+"})` shows which run has the most series.',
        diagnosis_zh='`count by (run) ({__name__=~"trainvitals_.+"})` 显示哪个训练的序列最多。',
    ),
    Alert(
        name="TrainvitalsJournalNotWritten",
        file="meta",
        category="resource",
        severity="warning",
        gauge="health",
        # Rows that wait for a moment are another writer's turn; those that wait on are a disk that takes none.
        expr="max by (instance) (trainvitals_journal_rows_waiting) > 0",
        wait=LIMITS.rejected_for,
        summary="The journal on {{ $labels.instance }} cannot be written",
        summary_zh="{{ $labels.instance }} 上的日志库无法写入",
        description=(
            '{{ $value | printf "%.0f" }} rows wait in memory; errors since the exporter started: '
            + _JOURNAL_ERRORS
            + "."
        ),
        description_zh=(
            '{{ $value | printf "%.0f" }} 行数据在内存中等待；导出器启动以来的错误：' + _JOURNAL_ERRORS + "。"
        ),
        action=(
            "full: make room on the disk of the state folder. file: correct owner and rights, or mount it writable. "
            "newer: update the exporter. What waits is written when it can be; a restart loses it."
        ),
        action_zh=(
            "full：清理状态目录所在磁盘。file：修正其属主和权限，或以可写方式挂载。newer：升级导出器。"
            "等待的数据会在可写时写入；重启会丢失它们。"
        ),
        impact="`trainvitals timeline` and `trainvitals incidents` do not show what happened since.",
        impact_zh="`trainvitals timeline` 和 `trainvitals incidents` 看不到此后发生的事。",
        diagnosis="The exporter's log says what failed; docs/journal.md says where it lies: `ls -l` and `df` there.",
        diagnosis_zh="导出器日志会给出错误；日志库的位置见 docs/journal.md，在那里运行 `ls -l` 和 `df`。",
    ),
    Alert(
        name="TrainvitalsRankFilesRejected",
        file="meta",
        category="resource",
        severity="warning",
        gauge="health",
        # A file from before the last boot is an old run on a disk, not a fault.
        expr='max by (instance, reason) (trainvitals_rank_files_rejected{reason!="boot"}) > 0',
        wait=LIMITS.rejected_for,
        summary="The exporter on {{ $labels.instance }} cannot use files in the spool",
        summary_zh="{{ $labels.instance }} 上的导出器无法使用 spool 中的文件",
        description='{{ $value | printf "%.0f" }} rank files are rejected, reason: {{ $labels.reason }}.',
        description_zh='{{ $value | printf "%.0f" }} 个 rank 文件被拒绝，原因：{{ $labels.reason }}。',
        action=(
            "owner, unreadable, folder, not_a_folder: correct owner and rights of the spool and of what is in it. "
            "duplicate: give each job a name of its own, with `init(run=...)` or TRAINVITALS_RUN, and each rank its "
            "number. "
            "version: update probe or exporter, so that both are of one release. "
            "empty, magic, size, header, state, identity, not_regular, events, data, broken: remove the file. "
            "too_many, slow: remove old files."
        ),
        action_zh=(
            "owner、unreadable、folder、not_a_folder：修正 spool 及其内容的属主和权限。"
            "duplicate：用 `init(run=...)` 或 TRAINVITALS_RUN 给每个任务单独命名，并给每个 rank 编号。"
            "version：升级探针或导出器，使两者版本一致。"
            "empty、magic、size、header、state、identity、not_regular、events、data、broken：删除该文件。"
            "too_many、slow：删除旧文件。"
        ),
        impact="The ranks behind these files are not watched.",
        impact_zh="这些文件对应的 rank 无人监视。",
        diagnosis="`ls -la` of the spool folder; the log of the exporter names files that make no sense.",
        diagnosis_zh="用 `ls -la` 查看 spool 目录；导出器日志会给出无法解析的文件名。",
    ),
    Alert(
        name="TrainvitalsProbeDisabled",
        file="meta",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"max by (run) (trainvitals_probe_disabled and {RANK} trainvitals_rank_up == 1) == 1",
        summary="Run {{ $labels.run }}: the probe switched itself off",
        summary_zh="训练 {{ $labels.run }}：探针已自行关闭",
        description=(
            "After errors of its own, the probe stopped on "
            + listed("trainvitals_probe_disabled{run=%q} == 1", ON_RANK)
            + "; the training goes on, unwatched."
        ),
        description_zh=(
            "探针因自身错误停止："
            + listed("trainvitals_probe_disabled{run=%q} == 1", ON_RANK)
            + "；训练继续，但无人监视。"
        ),
        action=(
            "Read the line that begins with `trainvitals:` on the training's standard error, and report it to us. It "
            "starts again with the next attempt."
        ),
        action_zh="查看训练标准错误输出中以 `trainvitals:` 开头的一行，并向我们报告。下次启动时探针会重新工作。",
        impact="Steps of these ranks are not seen, so no detector can judge them.",
        impact_zh="看不到这些 rank 的步，任何检测器都无法判断。",
        diagnosis="`trainvitals_probe_errors_total` counts the errors; three of them switch the probe off.",
        diagnosis_zh="`trainvitals_probe_errors_total` 是错误次数；出错三次后探针自行关闭。",
    ),
    Alert(
        name="TrainvitalsWatchdog",
        file="meta",
        category="resource",
        severity="info",
        gauge="health",
        expr="vector(1) == 1",
        summary="Alerts of Trainvitals are being evaluated",
        summary_zh="Trainvitals 告警链路正常",
        description="This alert is always on: where it does not arrive, no other would.",
        description_zh="此告警始终处于触发状态：若它没有送达，其他告警也不会送达。",
        action="None. Send it to a dead man's switch that raises the alarm when it stops coming.",
        action_zh="无需处理。请将其发送到失联检测服务，在其停止到达时报警。",
        impact="None; its absence means that Prometheus, its rules or Alertmanager do not work.",
        impact_zh="无影响；若它消失，说明 Prometheus、告警规则或 Alertmanager 没有工作。",
        diagnosis="When it is missing: the rules page of Prometheus, then the status page of Alertmanager.",
        diagnosis_zh="若没有收到：先看 Prometheus 的 rules 页面，再看 Alertmanager 的 status 页面。",
    ),
)

META: tuple[Alert, ...] = (*_EXPORTERS, *_LOSSES, *WAY)
