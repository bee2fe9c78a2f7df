"""Alerts of the category resource about the processes of a run: dead, failed, stalled, unable to save."""

from __future__ import annotations

from trainvitals.generate.alerts_affected import AFFECTED
from trainvitals.generate.alerts_progress import PROGRESS
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.records import ENDED, PACE, RANK, STEP_AGE, ranks_in, step_age
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import ON_RANK, last_step, listed


def _ended(state: str) -> str:
    """Return the number of ranks of a run's newest attempt that ended in a state; absent when none did."""
    return f'max by (run) ({ENDED}{{state="{state}"}}) > 0'


def _ended_ranks(state: str) -> str:
    return listed(ranks_in(state, ",run=%q"), ON_RANK)


_FAILURES = "trainvitals_checkpoint_failures_total"
_FAILURE_WINDOW = f"{LIMITS.checkpoint_failure_window:duration}"
# An exporter that starts again has forgotten the attempts before the last: a counter that fell is no new failure.
_FAILED_SAVES = f"increase({_FAILURES}[{_FAILURE_WINDOW}]) unless resets({_FAILURES}[{_FAILURE_WINDOW}]) > 0"
_FAILED_SAVES_OF_RUN = _FAILED_SAVES.replace(_FAILURES, _FAILURES + "{run=%q}")

# The usual pace is that of the last hour, without the time in which no step ended.
_STALLED = f"""
max by (run) (
  (
    ({STEP_AGE} > {LIMITS.stall})
    and {RANK} trainvitals_phase{{phase!~"init|evaluation|checkpoint"}} == 1
    and {RANK} (
      ({STEP_AGE} > {LIMITS.stall}) * on (run) group_left () avg_over_time(({PACE} > 0)[1h:1m])
      > {LIMITS.stall_steps}
    )
    or
    ({STEP_AGE} > {LIMITS.stall_start})
    and {RANK} trainvitals_phase{{phase!~"evaluation|checkpoint"}} == 1
    or
    {STEP_AGE} > {LIMITS.stall_slow_phase}
  )
  unless {RANK} trainvitals_step >= trainvitals_target_steps - 1
  unless {RANK} trainvitals_phase{{phase="paused"}} == 1
)
"""
_STALLED_RANKS = listed(
    f"trainvitals_phase{{run=%q}} * {RANK} group_left () ({step_age()})",
    ON_RANK + " for {{ .Value | humanizeDuration }} (phase {{ .Labels.phase }})",
)

_PROCESSES: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsRankDied",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        expr=_ended("died"),
        summary="Run {{ $labels.run }}: a training process died",
        summary_zh="训练 {{ $labels.run }}：训练进程异常死亡",
        description=(
            _ended_ranks("died")
            + ' ({{ $value | printf "%.0f" }} in all) ended without a word'
            + last_step(", the last step of the run was ")
            + "."
        ),
        description_zh=(
            _ended_ranks("died")
            + '（共 {{ $value | printf "%.0f" }} 个）未正常结束便消失'
            + last_step("，最后一步为 ")
            + "。"
        ),
        action=(
            "Look for the reason on that node: `dmesg` for the out-of-memory killer, the scheduler for a time limit or "
            "preemption, the log of the launcher for the first rank that failed. "
            "Then resume from the last checkpoint; after an out-of-memory kill with fewer loader workers or smaller "
            "batches."
        ),
        action_zh=(
            "在该节点上找原因：用 `dmesg` 查内存不足（OOM）杀进程，查调度器的时限或抢占，"
            "在启动器日志中找最先失败的 rank。"
            "然后从最后一个检查点恢复；若为内存不足，减少加载进程或批大小。"
        ),
        impact=(
            "The other ranks wait for it in their next collective operation; work since the last checkpoint is lost."
        ),
        impact_zh="其他 rank 会在下一次集合通信中一直等待它；上一个检查点之后的成果丢失。",
        diagnosis=(
            "The process let go of its lock without reporting an end: SIGKILL, a crash in native code or `os._exit`. "
            "The alert ends when the run is started again, or an hour later when the exporter forgets the run."
        ),
        diagnosis_zh=(
            "进程未报告结束就释放了锁：可能是 SIGKILL、原生代码崩溃或 `os._exit`。训练重新启动后告警结束；"
            "否则一小时后导出器不再记录该训练时结束。"
        ),
    ),
    Alert(
        name="TrainvitalsRankFailed",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        expr=_ended("failed"),
        summary="Run {{ $labels.run }}: a training process ended with an error",
        summary_zh="训练 {{ $labels.run }}：训练进程因错误结束",
        description=(
            _ended_ranks("failed")
            + ' ({{ $value | printf "%.0f" }} in all) ended with an exception'
            + last_step(", the last step of the run was ")
            + "."
        ),
        description_zh=(
            _ended_ranks("failed")
            + '（共 {{ $value | printf "%.0f" }} 个）因异常结束'
            + last_step("，最后一步为 ")
            + "。"
        ),
        action=(
            "Read the exception in the log of that rank, or in its events file in the spool. "
            "Data: a damaged sample names its file. Parameters: out of device memory asks for a smaller batch. "
            "Model: a shape or index error asks for a fix. Then resume from the last checkpoint."
        ),
        action_zh=(
            "查看该 rank 的日志或 spool 中的事件文件里的异常。"
            "数据：损坏样本会给出文件名。参数：显存不足则减小批大小。模型：形状或索引错误需修代码。"
            "然后从最后一个检查点恢复。"
        ),
        impact="The run has ended or will; work since the last checkpoint is lost.",
        impact_zh="训练已经或即将结束；上一个检查点之后的成果丢失。",
        diagnosis=(
            "The interpreter ended with an exception, or the training called `finish` with another status than ok. "
            "Ctrl-C is a clean end. The alert ends when the run is started again, or an hour later."
        ),
        diagnosis_zh=(
            "解释器因异常退出，或训练调用 `finish` 时给出的状态不是 ok。Ctrl-C 视为正常结束。"
            "训练重新启动后或一小时后告警结束。"
        ),
    ),
    Alert(
        name="TrainvitalsStepStalled",
        file="resource",
        category="resource",
        severity="critical",
        gauge="progress",
        expr=_STALLED,
        summary="Run {{ $labels.run }}: no step is finished any more",
        summary_zh="训练 {{ $labels.run }}：训练步停滞",
        description="No step was finished for {{ $value | humanizeDuration }}"
        + last_step(", the last was ")
        + ": "
        + _STALLED_RANKS
        + ".",
        description_zh="已 {{ $value | humanizeDuration }} 没有新的步"
        + last_step("，最后一步为 ")
        + ":"
        + _STALLED_RANKS
        + "。",
        action=(
            "Dump the stacks (`py-spy dump --pid PID`) of the rank that is in another phase than the others, or of "
            "all: a "
            "rank in its loader waits for storage, ranks in a collective operation wait for the one that is missing "
            "there. "
            "Check devices and links of that rank's node, then resume from the last checkpoint without that node. "
            "If the training evaluates or saves here without saying so, wrap that in `trainvitals.phase`; if it is "
            "over, call `trainvitals.finish`."
        ),
        action_zh=(
            "对阶段与众不同的 rank（或全部 rank）导出堆栈（`py-spy dump --pid PID`）：停在加载器的在等存储，"
            "停在集合通信的在等缺席者。"
            "检查该 rank 所在节点的设备和链路，再排除该节点并从最后一个检查点恢复。"
            "若此时在评估或保存而未标明，请用 `trainvitals.phase` 标明；若训练已结束，请调用 `trainvitals.finish`。"
        ),
        impact=(
            "Every device of the run idles, and nothing ends this by itself until a time limit of the launcher does."
        ),
        impact_zh="该训练的所有设备都在空转；在启动器的超时生效之前，这种状态不会自行结束。",
        diagnosis=(
            f"A step took longer than {LIMITS.stall:words} and than {LIMITS.stall_steps} usual steps; the start may "
            f"take {LIMITS.stall_start:words}, a phase evaluation or checkpoint {LIMITS.stall_slow_phase:words}. "
            "A rank that has reached its target steps is not stalled. "
            "See the phases and the table of ranks."
        ),
        diagnosis_zh=(
            f"单步耗时超过 {LIMITS.stall:zh}且超过平时 {LIMITS.stall_steps} 步的时间；"
            f"启动阶段允许 {LIMITS.stall_start:zh}，评估或保存检查点允许 {LIMITS.stall_slow_phase:zh}。"
            "已到达目标步数的 rank 不算停滞。请查看各阶段耗时和 rank 列表。"
        ),
    ),
    Alert(
        name="TrainvitalsCheckpointFailed",
        file="resource",
        category="resource",
        severity="critical",
        gauge="progress",
        expr=f"max by (run) ({_FAILED_SAVES}) > 0",
        summary="Run {{ $labels.run }}: a checkpoint could not be saved",
        summary_zh="训练 {{ $labels.run }}：检查点保存失败",
        description=(
            "A save raised an exception on "
            + listed(f"({_FAILED_SAVES_OF_RUN}) > 0", ON_RANK, "run", "run")
            + last_step(", the last step was ")
            + "."
        ),
        description_zh=(
            "保存时出现异常："
            + listed(f"({_FAILED_SAVES_OF_RUN}) > 0", ON_RANK, "run", "run")
            + last_step("，最后一步为 ")
            + "。"
        ),
        action=(
            "Keep the run alive until a save succeeds: what it has learned since the last checkpoint exists nowhere "
            "else. "
            "Free space or quota where checkpoints go, check rights and mounts, then trigger a save."
        ),
        action_zh=(
            "在保存成功之前不要停止训练：上次检查点之后的成果别处没有。清理检查点所在的空间或配额，检查权限和挂载，"
            "然后触发一次保存。"
        ),
        impact="The next failure costs all work since the last checkpoint that was saved.",
        impact_zh="下一次故障会丢失上一个成功保存的检查点之后的全部成果。",
        diagnosis=(
            "The events file of the rank names the exception and the path. Compare with the free space of the file "
            "systems."
        ),
        diagnosis_zh="rank 的事件文件给出异常和路径。与文件系统的剩余空间对照。",
    ),
)

RUNS: tuple[Alert, ...] = (*_PROCESSES, *PROGRESS, *AFFECTED)
