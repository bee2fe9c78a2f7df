"""Alerts of the category resource about the fabric of NVSwitches."""

from __future__ import annotations

from trainvitals.generate.expressions import DEVICE, DEVICE_USERS_ZH, DEVICE_ZH, DEVICES, chinese, recent
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import DEVICE_USERS, listed

_NOT_JOINED = """
trainvitals_device_fabric_failed == 1
or on (instance, device, uuid)
trainvitals_device_fabric_state{state=~"not_started|in_progress"} == 1
and on (instance, device, uuid)
trainvitals_device_links_up > 0
"""
_OUTSIDE = listed(
    "trainvitals_device_fabric_failed{instance=%q} == 1 or on (uuid) trainvitals_device_fabric_state{instance=%q,"
    'state=~"not_started|in_progress"} == 1',
    "device {{ .Labels.device }}{{ with .Labels.state }} ({{ . }}){{ end }}",
    "instance",
    "instance",
    by="device",
)
_ASPECTS = listed(
    "trainvitals_device_fabric_unhealthy_info{instance=%q,uuid=%q}",
    "{{ .Labels.aspect }}",
    "instance",
    "uuid",
    by="aspect",
    none="not told",
)
_SXIDS = listed(
    'trainvitals_nvswitch_sxid_last_timestamp_seconds{instance=%q,pci_bus_id=%q,effect="fatal"}',
    "SXID {{ .Labels.sxid }}{{ with .Labels.link }} on link {{ . }}{{ end }}",
    "instance",
    "pci_bus_id",
    by="sxid",
)

FABRIC: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsNvswitchFault",
        file="hardware",
        category="resource",
        severity="critical",
        gauge="health",
        expr=recent(
            "instance, pci_bus_id",
            'trainvitals_nvswitch_sxid_last_timestamp_seconds{effect="fatal"}',
            LIMITS.fault_window,
        ),
        summary="An NVSwitch of {{ $labels.instance }} reports a fatal fault",
        summary_zh="{{ $labels.instance }} 的 NVSwitch 报告致命故障",
        description=f"The driver reported of the switch at {{{{ $labels.pci_bus_id }}}}: {_SXIDS}.",
        description_zh=f"驱动报告位于 {{{{ $labels.pci_bus_id }}}} 的交换机：{chinese(_SXIDS)}。",
        action=(
            "Take the node out of the job and resume from the last checkpoint on another. Then reset all devices and "
            "switches of the node together, or reboot it; if it comes again on the same link, have it repaired."
        ),
        action_zh=(
            "把该节点移出作业，在其他节点上从最后一个检查点恢复。然后把该节点的所有设备和交换机一起重置，"
            "或重启节点；若同一链路再次出错，送修。"
        ),
        impact="Devices no longer reach each other over NVLink: collective operations hang or fail.",
        impact_zh="设备之间无法再通过 NVLink 通信：集合通信会挂起或失败。",
        diagnosis=(
            "`dmesg` has the whole line of the SXID. Nonfatal ones are no alert: "
            "`trainvitals_nvswitch_sxid_errors_total` counts them."
        ),
        diagnosis_zh=(
            "`dmesg` 中有 SXID 的完整报错。非致命的不触发告警，由 `trainvitals_nvswitch_sxid_errors_total` 统计。"
        ),
    ),
    Alert(
        name="TrainvitalsFabricNotJoined",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        # Links that work say that there is a fabric to join.
        expr=f"count by (instance) ({_NOT_JOINED}) > 0",
        wait=LIMITS.fabric_for,
        keep=LIMITS.signal_keep,
        summary="Devices on {{ $labels.instance }} have not joined the NVLink fabric",
        summary_zh="{{ $labels.instance }} 上有设备没有加入 NVLink fabric",
        description=f"Devices of {{{{ $labels.instance }}}} that are outside: {{{{ $value }}}} ({_OUTSIDE}).",
        description_zh=f"{{{{ $labels.instance }}}} 上有 {{{{ $value }}}} 个设备未加入：{chinese(_OUTSIDE)}。",
        action=(
            "Start the fabric manager of the node (`systemctl status nvidia-fabricmanager`; it must be of the same "
            "version as the driver) and read its log. If it runs, reset all devices of the node together or reboot."
        ),
        action_zh=(
            "启动该节点的 fabric manager（`systemctl status nvidia-fabricmanager`，版本须与驱动一致）并查看其日志。"
            "若它在运行，把该节点的所有设备一起重置，或重启节点。"
        ),
        impact="Programs that start on these devices fail with CUDA error 802 (system not yet initialized).",
        impact_zh="在这些设备上启动的程序会以 CUDA 错误 802（system not yet initialized）失败。",
        diagnosis="`trainvitals_device_fabric_state` and `trainvitals_device_fabric_failed`; `nvidia-smi -q` has both.",
        diagnosis_zh=(
            "查看 `trainvitals_device_fabric_state` 与 `trainvitals_device_fabric_failed`；`nvidia-smi -q` 中也有。"
        ),
    ),
    Alert(
        name="TrainvitalsFabricUnhealthy",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"{DEVICES} (trainvitals_device_fabric_unhealthy) == 1",
        wait=LIMITS.fabric_unhealthy_for,
        keep=LIMITS.signal_keep,
        summary="The NVLink fabric of a device on {{ $labels.instance }} is not well",
        summary_zh="{{ $labels.instance }} 上有设备的 NVLink fabric 不健康",
        description=f"The driver says so of {DEVICE}: {_ASPECTS}. Used by: {DEVICE_USERS}.",
        description_zh=f"驱动报告 {DEVICE_ZH}：{chinese(_ASPECTS)}。使用者：{DEVICE_USERS_ZH}。",
        action=(
            "degraded_bandwidth, route_unhealthy: let the run go on if it keeps its pace, and have links and switches "
            "looked at. manager_disconnected: start the fabric manager. incorrect_configuration, partition_missing: "
            "compare the settings of the node with those of its neighbors. Anything that stays: reset all devices of "
            "the node together."
        ),
        action_zh=(
            "degraded_bandwidth、route_unhealthy：若训练速度正常可继续，安排检查链路和交换机。"
            "manager_disconnected：启动 fabric manager。incorrect_configuration、partition_missing："
            "与相邻节点对比配置。若一直不恢复：把该节点的所有设备一起重置。"
        ),
        impact="Traffic between devices is slower, or does not reach some of them.",
        impact_zh="设备之间的通信变慢，或无法到达其中一些设备。",
        diagnosis="`trainvitals_device_fabric_unhealthy_info` has each aspect that the driver complains of.",
        diagnosis_zh="`trainvitals_device_fabric_unhealthy_info` 列出驱动报告的每个方面。",
    ),
)
