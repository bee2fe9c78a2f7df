"""Alerts of the category resource about the clock of a node."""

from __future__ import annotations

from trainvitals.generate.expressions import chinese
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import listed

_CLOCK = listed(
    'label_replace(trainvitals_host_clock_offset_seconds{instance=%q}, "what", "offset", "", "") or '
    'label_replace(trainvitals_host_clock_max_error_seconds{instance=%q}, "what", "largest error", "", "")',
    "{{ .Labels.what }} {{ .Value | humanizeDuration }}",
    "instance",
    "instance",
    by="what",
    none="the kernel tells nothing",
)

CLOCK: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsClockUnsynchronized",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr="max by (instance) (trainvitals_host_clock_synchronized) == 0",
        wait=LIMITS.clock_for,
        keep=LIMITS.signal_keep,
        summary="The clock of node {{ $labels.instance }} is not synchronized",
        summary_zh="节点 {{ $labels.instance }} 的时钟未同步",
        description=f"No time service has vouched for it for {LIMITS.clock_for:words}.",
        description_zh=f"已有 {LIMITS.clock_for:zh}没有时间服务为其校准。",
        action="Start chrony or another time service on the node, and see whether it reaches its servers.",
        action_zh="在该节点启动 chrony 等时间服务，并确认能访问时间服务器。",
        impact="Times of steps, checkpoints and events of this node do not fit those of others; stalls are misjudged.",
        impact_zh="该节点的步、检查点和事件时间与其他节点对不上，停滞会被误判。",
        diagnosis="`trainvitals_host_clock_offset_seconds`; `chronyc tracking` on the node.",
        diagnosis_zh="查看 `trainvitals_host_clock_offset_seconds`；在节点上运行 `chronyc tracking`。",
    ),
    Alert(
        name="TrainvitalsClockWrong",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        # A clock that nobody sets has an alert of its own; one that is behind looks like old values.
        expr=f"""
        max by (instance) (
          abs(trainvitals_host_clock_offset_seconds) > {LIMITS.clock_offset}
          or on (instance)
          trainvitals_host_clock_max_error_seconds > {LIMITS.clock_error}
          or on (instance)
          trainvitals_snapshot_timestamp_seconds - timestamp(trainvitals_snapshot_timestamp_seconds)
            > {LIMITS.clock_ahead}
        )
        unless on (instance)
        trainvitals_host_clock_synchronized == 0
        """,
        wait=LIMITS.clock_wrong_for,
        keep=LIMITS.signal_keep,
        summary="The clock of node {{ $labels.instance }} is wrong",
        summary_zh="节点 {{ $labels.instance }} 的时钟不准",
        description=f"It is, or may be, wrong by {{{{ $value | humanizeDuration }}}}. The kernel says: {_CLOCK}.",
        description_zh=f"误差已达到或可能达到 {{{{ $value | humanizeDuration }}}}。内核给出：{chinese(_CLOCK)}。",
        action=(
            "See on the node whether chrony or another time service reaches its servers (`chronyc sources`). If all "
            "nodes have this alert at once, it is the clock of Prometheus."
        ),
        action_zh=(
            "在该节点上确认 chrony 等时间服务能访问服务器（`chronyc sources`）。若所有节点同时告警，则是 Prometheus "
            "的时钟有误。"
        ),
        impact="Times of steps, checkpoints and events of this node do not fit those of others; stalls are misjudged.",
        impact_zh="该节点的步、检查点和事件时间与其他节点对不上，停滞会被误判。",
        diagnosis=(
            "`trainvitals_host_clock_offset_seconds`, `trainvitals_host_clock_max_error_seconds`, and the time of a "
            "scrape by the node and by Prometheus."
        ),
        diagnosis_zh=(
            "查看 `trainvitals_host_clock_offset_seconds`、`trainvitals_host_clock_max_error_seconds`，"
            "以及节点与 Prometheus 各自给出的抓取时间。"
        ),
    ),
)
