"""Alerts of the category resource about the progress of a run: saves that are due, collectives that hang, lost time."""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS
from trainvitals.generate.records import SHOWN, STEP, UNSAVED
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import ON_RANK, last_step, listed

_GOODPUT = "run:trainvitals_goodput:ratio"
_STEP_AGE = "min by (run) (rank:trainvitals_step_age:seconds)"

# In steps, which pauses, evaluations and slow hours do not stretch.  A step that falls, after a return to an earlier
# checkpoint, makes increase() count too many: then the alert comes later, and not too early.
_SAVED = "run:trainvitals_checkpoint_step:max"
_OVERDUE = f"""
max by (run) (
  {UNSAVED} > {LIMITS.checkpoint_overdue_least}
  and on (run)
  {STEP} - on (run) last_over_time({_SAVED}[1d])
    > on (run) {LIMITS.checkpoint_overdue_times} * increase({_SAVED}[1d]) / (changes({_SAVED}[1d]) > 0)
  and on (run)
  changes({_SAVED}[1d]) > 1
  or
  {UNSAVED} > {LIMITS.checkpoint_overdue_longest}
  and on (run) {_SAVED}
)
and on (run) max by (run) (trainvitals_rank_up) == 1
"""

_SPINNING = f"""
min_over_time(trainvitals_device_utilization_ratio[2m]) > {LIMITS.spinning_busy_ratio}
and on (instance, device, uuid)
max_over_time(trainvitals_device_power_watts{{kind="instant"}}[2m])
  / on (instance, device, uuid) (trainvitals_device_power_limit_watts > 0)
  < {LIMITS.spinning_power_ratio}
"""
# Every rank is late, by the youngest step of all.  The rate of the last hour says how many usual steps that is; a
# step that takes longer than its window of 5 minutes seems faster there than it is, and so never shorter than it is.
_COLLECTIVE = f"""
{_STEP_AGE} > {LIMITS.collective_stall}
unless on (run)
{_STEP_AGE} * on (run) (max_over_time(run:trainvitals_steps:rate5m[1h]) > 0) < {LIMITS.stall_steps}
unless on (run)
trainvitals_phase{{phase=~"init|evaluation|checkpoint"}} == 1
and on (run)
2 * count by (run) (
  trainvitals_rank_device_info and on (uuid) (
    {_SPINNING.strip()}
  )
) > count by (run) (trainvitals_rank_device_info)
"""

# A rank that no exporter shows is no loss of time but a gap in what is known.
_ALL_SHOWN = f"{SHOWN} >= on (run) max by (run) (trainvitals_world_size)"


def _burns(times: str, long: str, short: str) -> str:
    """Return the share of time lost in a long window, when it and a short one lose so many times the budget.

    The short window ends the alert soon after the loss has ended; a run that is younger than the long one is not
    judged, for its start is in it.
    """
    budget = f"{times} * {LIMITS.goodput_lost_ratio}"
    return (
        f"1 - avg_over_time({_GOODPUT}[{long}]) > {budget}\n"
        f"and on (run) 1 - avg_over_time({_GOODPUT}[{short}]) > {budget}\n"
        f"and on (run) {_GOODPUT} offset {long}"
    )


_FAST = _burns(f"{LIMITS.goodput_burn_fast}", "1h", "5m")
_SLOW = _burns(f"{LIMITS.goodput_burn_slow}", "6h", "30m")
_LASTING = _burns("1", "1d", "2h")
_PHASES = listed(
    "sum by (phase) (increase(trainvitals_phase_seconds_total{run=%q}[1h])) / scalar(sum(increase("
    "trainvitals_phase_seconds_total{run=%q}[1h])) > 0) > 0.01",
    "{{ .Labels.phase }} {{ .Value | humanizePercentage }}",
    "run",
    "run",
    by="phase",
)

PROGRESS: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsCollectiveStalled",
        file="resource",
        category="resource",
        severity="critical",
        gauge="progress",
        expr=f"max by (run) (\n{_COLLECTIVE.strip()}\n)",
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the ranks wait for each other in a collective operation",
        summary_zh="训练 {{ $labels.run }}：各 rank 在集合通信中互相等待",
        description=(
            "No rank finished a step for {{ $value | humanizeDuration }}"
            + last_step(", the last was ")
            + ", while the devices are busy and take hardly any power. Phases: "
            + listed("trainvitals_phase{run=%q} == 1", ON_RANK + " {{ .Labels.phase }}")
            + "."
        ),
        description_zh=(
            "已 {{ $value | humanizeDuration }} 没有 rank 完成一步"
            + last_step("，最后一步为 ")
            + "，设备显示忙碌但功耗很低。各 rank 所处阶段："
            + listed("trainvitals_phase{run=%q} == 1", ON_RANK + " {{ .Labels.phase }}")
            + "。"
        ),
        action=(
            "Find the rank that is missing in the collective: dump the stacks of all (`py-spy dump --pid PID`), or "
            "NCCL's flight recorder, and look for the one that is elsewhere. Its loader, device or link is the cause. "
            "Then resume from the last checkpoint without that node."
        ),
        action_zh=(
            "找出没有进入集合通信的 rank：导出全部堆栈（`py-spy dump --pid PID`）或 NCCL 的 flight recorder，"
            "看谁停在别处。原因在它的数据加载、设备或链路。然后排除该节点，从最后一个检查点恢复。"
        ),
        impact="All devices of the run are paid for and spin; NCCL's own time limit, if there is one, ends the run.",
        impact_zh="该训练的所有设备都在空转；若设置了 NCCL 超时，届时训练会被终止。",
        diagnosis=(
            "A collective operation that waits keeps a device busy and cool: a device that computes takes "
            "half of its power limit and more. Ranks in evaluation, checkpoint or start are left to the alert on "
            "stalls."
        ),
        diagnosis_zh=(
            "等待中的集合通信使设备显示忙碌而功耗低：真正计算的设备功耗在上限的一半以上。"
            "处于评估、检查点或启动阶段的 rank 由停滞告警判断。"
        ),
    ),
    Alert(
        name="TrainvitalsCheckpointOverdue",
        file="resource",
        category="resource",
        severity="warning",
        gauge="progress",
        expr=_OVERDUE,
        summary="Run {{ $labels.run }}: a checkpoint is overdue",
        summary_zh="训练 {{ $labels.run }}：检查点逾期未保存",
        description=(
            "{{ $value | humanizeDuration }} of training are not saved"
            + last_step(": the run is at step ")
            + listed(
                "max(trainvitals_checkpoint_step{run=%q})", ', its last checkpoint at step {{ .Value | printf "%.0f" }}'
            )
            + "."
        ),
        description_zh=(
            "已有 {{ $value | humanizeDuration }} 的训练未保存"
            + last_step("：当前为第 ", " 步")
            + listed("max(trainvitals_checkpoint_step{run=%q})", '，最后一个检查点在第 {{ .Value | printf "%.0f" }} 步')
            + "。"
        ),
        action=(
            "See in the log whether a save hangs or is skipped, and whether there is room where checkpoints go. "
            "Trigger a save. If the training saves more seldom now by intent, raise the threshold."
        ),
        action_zh=(
            "查看日志中保存是否卡住或被跳过，以及检查点所在的空间是否充足。手动触发一次保存。"
            "若有意降低了保存频率，请调高阈值。"
        ),
        impact="A failure now costs all of that work.",
        impact_zh="此时发生故障会丢失这段时间的全部成果。",
        diagnosis=(
            f"More steps without a save than {LIMITS.checkpoint_overdue_times} usual distances between saves of the "
            f"last day, and {LIMITS.checkpoint_overdue_least:words} of training or more; or "
            f"{LIMITS.checkpoint_overdue_longest:words} without a save. A run that never reported a checkpoint is not "
            "judged."
        ),
        diagnosis_zh=(
            f"未保存的步数超过最近一天通常保存间隔的 {LIMITS.checkpoint_overdue_times} 倍，"
            f"且训练时间达到 {LIMITS.checkpoint_overdue_least:zh}以上；"
            f"或 {LIMITS.checkpoint_overdue_longest:zh}没有保存。"
            "从未上报过检查点的训练不作判断。"
        ),
    ),
    Alert(
        name="TrainvitalsGoodputLow",
        file="resource",
        category="resource",
        severity="warning",
        gauge="efficiency",
        expr=f"max by (run) (\n{_FAST}\nor\n{_SLOW}\n)\nand on (run) {_ALL_SHOWN}",
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: much of its time is no training",
        summary_zh="训练 {{ $labels.run }}：大量时间没有用于训练",
        description="{{ $value | humanizePercentage }} of the time of its ranks were lost. The last hour: "
        + _PHASES
        + ".",
        description_zh="各 rank 共损失 {{ $value | humanizePercentage }} 的时间。最近一小时的构成：" + _PHASES + "。",
        action=(
            "Look at the largest phase that is not training. init: restarts; find out why attempts end. data: the "
            "loader. checkpoint: save less often or asynchronously. evaluation: fewer samples, or more seldom. "
            "Nothing large: ranks are dead or wait for a restart."
        ),
        action_zh=(
            "查看除训练外占比最大的阶段。init：频繁重启，查明每次中断的原因。data：数据加载。"
            "checkpoint：减少保存次数或改为异步保存。evaluation：减少样本或次数。都不大：有 rank 已死亡或在等待重启。"
        ),
        impact="The run ends later by as much, and its devices are paid for meanwhile.",
        impact_zh="训练会相应推迟完成，期间设备照常计费。",
        diagnosis=(
            f"The budget is {LIMITS.goodput_lost_ratio:percent} of the time. Lost are {LIMITS.goodput_burn_fast} times "
            f"as much over an hour and over 5 minutes, or {LIMITS.goodput_burn_slow} times as much over 6 hours and "
            "over 30 minutes. A run younger than the longer window, or with ranks that no exporter shows, is not "
            "judged."
        ),
        diagnosis_zh=(
            f"时间预算为 {LIMITS.goodput_lost_ratio:percent}。一小时与 5 分钟内的损失都达到预算的 "
            f"{LIMITS.goodput_burn_fast} 倍，或 6 小时与 30 分钟内都达到 {LIMITS.goodput_burn_slow} 倍。"
            "运行时间短于较长窗口、或有 rank 未被任何导出器看到的训练不作判断。"
        ),
    ),
    Alert(
        name="TrainvitalsGoodputBelowBudget",
        file="resource",
        category="resource",
        severity="info",
        gauge="efficiency",
        expr=f"max by (run) (\n{_LASTING}\n)\nand on (run) {_ALL_SHOWN}",
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: it lost more than its budget of time within a day",
        summary_zh="训练 {{ $labels.run }}：一天内损失的时间超出预算",
        description="{{ $value | humanizePercentage }} of the last day were no training. The last hour: "
        + _PHASES
        + ".",
        description_zh="最近一天有 {{ $value | humanizePercentage }} 的时间没有用于训练。最近一小时的构成："
        + _PHASES
        + "。",
        action=(
            "Nothing at once. See on the dashboard of incidents what the time went into; raise the budget where long "
            "evaluations are planned."
        ),
        action_zh="无需立即处理。在事件仪表盘上查看时间用在了哪里；若计划内评估较长，请调高预算。",
        impact="The run ends later than its steps alone would let it.",
        impact_zh="训练会比仅按步耗时估计的更晚完成。",
        diagnosis=(
            f"More than {LIMITS.goodput_lost_ratio:percent} of the last day and of the last two hours; large "
            "trainings that were published kept 90 to 97 %."
        ),
        diagnosis_zh=(
            f"最近一天和最近两小时的损失都超过 {LIMITS.goodput_lost_ratio:percent}；公开的大规模训练可保持 90 到 97 %。"
        ),
    ),
)
