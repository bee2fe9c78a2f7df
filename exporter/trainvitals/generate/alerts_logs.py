"""Alerts about logs that are followed: the errors that they tell of, and their silence."""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert, Category
from trainvitals.generate.texts import findings, last_step

_SILENT = f"""
max by (run) (
  (trainvitals_snapshot_timestamp_seconds - on (job, instance) group_right () trainvitals_log_grown_timestamp_seconds)
  < {LIMITS.log_silent_longest}
  and on (job, instance, run) trainvitals_rank_state{{state="silent"}} == 1
)
"""


def _error(category: Category, summary: str, summary_zh: str, action: str, action_zh: str) -> Alert:
    """Return the alert about errors of one category."""
    return Alert(
        name=f"TrainvitalsLogError{category.capitalize()}",
        file=category,
        category=category,
        severity="critical",
        gauge="health",
        expr=f'count by (run) (trainvitals_finding_info{{signal="log_error",category="{category}"}}) > 0',
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: " + summary,
        summary_zh="训练 {{ $labels.run }}：" + summary_zh,
        description=findings("log_error", "The log told of an error") + ".",
        description_zh=findings("log_error", "日志中出现错误") + "。",
        action=action,
        action_zh=action_zh,
        impact="Such an error mostly ends the run; work since the last checkpoint is lost.",
        impact_zh="这类错误大多会使训练终止；上一个检查点之后的成果会丢失。",
        diagnosis=(
            "The finding names the root cause and where it was, not what followed from it; "
            "`trainvitals_log_errors_total` counts all causes. Read the log around that line."
        ),
        diagnosis_zh=(
            "告警正文给出根因及其位置，而不是随之而来的后续错误；`trainvitals_log_errors_total` 统计所有原因。"
            "请查看日志中该行前后的内容。"
        ),
    )


LOGS: tuple[Alert, ...] = (
    _error(
        "resource",
        "its log tells of an error of a resource",
        "日志报告了资源错误",
        "Look first at the place that is named: memory, device, link, disk or process. "
        "Put that node or device aside when the error comes back, free memory or disk, "
        "then resume from the last checkpoint.",
        "先查看所指出的位置：内存、设备、链路、磁盘或进程。若错误重现则隔离该节点或设备，释放内存或磁盘，"
        "然后从最后一个检查点恢复。",
    ),
    _error(
        "data",
        "its log tells of data that cannot be used",
        "日志报告了不可用的数据",
        "Data first: open the file that is named, copy it anew or take it out of the list; then resume from the last "
        "checkpoint.",
        "先查数据：打开所指出的文件，重新复制或从清单中剔除；然后从最后一个检查点恢复。",
    ),
    _error(
        "parameter",
        "its log tells of an error of the program or its parameters",
        "日志报告了程序或参数错误",
        "Read the error in the log: correct the option, the shape or the code that it names, then resume from the last "
        "checkpoint.",
        "查看日志中的错误：修正其指出的选项、形状或代码，然后从最后一个检查点恢复。",
    ),
    Alert(
        name="TrainvitalsLogSilent",
        file="resource",
        category="resource",
        severity="warning",
        gauge="progress",
        expr=_SILENT,
        summary="Run {{ $labels.run }}: its log says nothing more",
        summary_zh="训练 {{ $labels.run }}：日志不再更新",
        description=(
            "The log has not grown for {{ $value | humanizeDuration }}, several times its usual pause"
            + last_step(", the last step was ")
            + "."
        ),
        description_zh=(
            "日志已 {{ $value | humanizeDuration }} 未更新，是其通常间隔的数倍" + last_step("，最后一步为 ") + "。"
        ),
        action=(
            "See whether the process still lives. It ended: look for the reason, and resume from the last checkpoint. "
            "It lives and its devices idle: it hangs; dump the stacks (`py-spy dump --pid PID`). It lives and works: "
            "its output is buffered; start it with PYTHONUNBUFFERED=1."
        ),
        action_zh=(
            "查看进程是否仍在。已结束：查找原因并从最后一个检查点恢复。仍在但设备空闲：已挂起，"
            "导出堆栈（`py-spy dump --pid PID`）。仍在且工作正常：输出被缓冲，用 PYTHONUNBUFFERED=1 启动。"
        ),
        impact="Nothing is known of the run since then.",
        impact_zh="此后该训练的状况不得而知。",
        diagnosis=(
            "A log cannot tell an end without a word from a hang or from a buffer; `trainvitals_log_silence_seconds` "
            "is the pause from which it counts as silent. "
            f"The alert ends by itself after {LIMITS.log_silent_longest:words}. "
            "With the probe in the training, all three can be told apart."
        ),
        diagnosis_zh=(
            "仅凭日志无法区分进程已无声结束、挂起，还是输出被缓冲；超过 `trainvitals_log_silence_seconds` 即视为沉默。"
            f"告警会在 {LIMITS.log_silent_longest:zh}后自行结束。在训练中接入探针后，三种情况就能区分。"
        ),
    ),
)
