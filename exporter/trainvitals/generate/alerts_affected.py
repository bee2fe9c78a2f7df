"""Alerts that tie a run to what is wrong below it, so that one message tells of a fault and not one more of each stall.

They page nobody: their cause has an alert of its own, which knows no run.  Alertmanager mutes by labels that cause and
effect share (deploy/alertmanager/alertmanager.yml); these have the run.
"""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS
from trainvitals.generate.records import CURRENT_RANKS, RANK, START
from trainvitals.generate.rules import Alert, indent
from trainvitals.generate.texts import listed

#: Alerts with a uuid after which the process on the device cannot go on.
DEVICE_FAULTS = ("TrainvitalsDeviceDown", "TrainvitalsDeviceFatalXid")
#: Alerts with an instance that hold up whatever runs there.
NODE_FAULTS = ("TrainvitalsDeviceSourceHung", "TrainvitalsFilesystemStuck", "TrainvitalsInfinibandPortDown")

# Also those that still wait for their time: a rank that fails by them is told at once.
_DEVICE = f'ALERTS{{alertname=~"{"|".join(DEVICE_FAULTS)}",uuid!=""}}'
# A stall takes longer than these wait, so they are sure by then; a driver is away for a moment with each restart.
_NODE = f'ALERTS{{alertname=~"{"|".join(NODE_FAULTS)}",alertstate="firing"}}'
_DOWN = 'ALERTS{alertname="TrainvitalsExporterDown",alertstate="firing"}'

_ON_DEVICE = f"""
count by (run) (
  (
    trainvitals_rank_info{{uuid!=""}} and on (uuid) {_DEVICE}
    or
    trainvitals_rank_device_info and on (uuid) {_DEVICE}
  )
  and {RANK} {CURRENT_RANKS}
) > 0
"""
# What a node showed before it went, if the run has not been started again since; ranks start minutes apart.
_WAS_THERE = f"""
(
  trainvitals_start_timestamp_seconds offset 15m and on (instance) {_DOWN}
  or
  trainvitals_start_timestamp_seconds offset 1h and on (instance) {_DOWN}
) + 600
  > on (run) group_left () {START}
"""
_ON_NODE = f"""
count by (run) (
  (trainvitals_rank_up and on (instance) {_NODE})
  and {RANK} {CURRENT_RANKS}
  or
{indent(_WAS_THERE)}
) > 0
"""

_DEVICES = listed(
    f"count by (alertname, instance, device) ({_DEVICE} and on (uuid) trainvitals_rank_info{{run=%q}})",
    "{{ .Labels.alertname }} (device {{ .Labels.device }} on {{ .Labels.instance }})",
    by="instance",
    none="?",
)
_NODES = listed(
    f"count by (alertname, instance) ({_NODE} and on (instance) trainvitals_rank_up{{run=%q}}"
    f" or {_DOWN} and on (instance) trainvitals_rank_up{{run=%q}} offset 1h"
    f" or {_DOWN} and on (instance) trainvitals_rank_up{{run=%q}} offset 15m)",
    "{{ .Labels.alertname }} on {{ .Labels.instance }}",
    "run",
    "run",
    "run",
    by="instance",
    none="?",
)

AFFECTED: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsRunOnFaultyDevice",
        file="resource",
        category="resource",
        severity="info",
        gauge="health",
        expr=_ON_DEVICE,
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: a device that it computes on is at fault",
        summary_zh="训练 {{ $labels.run }}：所用设备发生故障",
        description=("Faults of its devices: " + _DEVICES + "."),
        description_zh=("其设备的故障：" + _DEVICES + "。"),
        action="Do what the alert of the device says; this one only mutes what follows from it.",
        action_zh="按设备告警的说明处理；本告警只用于抑制由它引起的告警。",
        impact="Alerts that the run stalls, or that its processes ended, are muted while this one is on.",
        impact_zh="本告警存在期间，该训练停滞或进程结束的告警会被抑制。",
        diagnosis=(
            "A rank of the newest attempt is on a device whose alert is on or waits for its time. The ranks are found "
            "by the uuid that they told, or by their processes on the device."
        ),
        diagnosis_zh=("最新一次尝试中有 rank 所在的设备正在告警或等待告警。rank 由其上报的 uuid 或设备上的进程确定。"),
    ),
    Alert(
        name="TrainvitalsRunOnFaultyNode",
        file="resource",
        category="resource",
        severity="info",
        gauge="health",
        expr=_ON_NODE,
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: a node that it computes on is at fault",
        summary_zh="训练 {{ $labels.run }}：所在节点发生故障",
        description=(
            "A driver, a file system or a port of one of its nodes fails, or the node does not answer: " + _NODES + "."
        ),
        description_zh=("其某个节点的驱动、文件系统或端口出错，或节点无响应：" + _NODES + "。"),
        action="Do what the alert of the node says; this one only mutes what follows from it.",
        action_zh="按节点告警的说明处理；本告警只用于抑制由它引起的告警。",
        impact="Alerts that the run stalls or has become slow are muted while this one is on.",
        impact_zh="本告警存在期间，该训练停滞或变慢的告警会被抑制。",
        diagnosis=(
            "A rank of the newest attempt is on a node where such an alert is on. Of a node whose exporter is down, "
            "what it showed 15 minutes or an hour ago counts, so a stall is told after that hour if it still lasts."
        ),
        diagnosis_zh=(
            "最新一次尝试中有 rank 所在的节点存在上述告警。若节点的导出器无响应，则以它 15 分钟前或一小时前的数据为准；"
            "因此超过一小时仍停滞时会发出停滞告警。"
        ),
    ),
)
