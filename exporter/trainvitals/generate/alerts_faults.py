"""Alerts of the category resource about devices that fail, wait for a repair or are slowed down."""

from __future__ import annotations

from trainvitals.generate.expressions import DEVICE, DEVICE_USERS_ZH, DEVICE_ZH, DEVICES, chinese, recent
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import DEVICE_USERS, listed

#: By what the exporter knows of it: some codes are fatal or not by their text.
_FATAL_XIDS = """
(
  trainvitals_device_xid_last_timestamp_seconds
  and on (job, instance, pci_bus_id, xid)
  trainvitals_device_xid_info{xid_severity="critical"}
  or
  trainvitals_device_fallen_off_bus_last_timestamp_seconds
)
"""
#: A device that was lost before the exporter came has no number.
_AT = "the device at {{ $labels.pci_bus_id }}{{ with $labels.device }} (number {{ . }}){{ end }}"
_AT_ZH = "位于 {{ $labels.pci_bus_id }} 的设备{{ with $labels.device }}（编号 {{ . }}）{{ end }}"


def _xids(item: str, none: str) -> str:
    """Return a template that writes ``item`` for each fatal XID of late on the alert's device."""
    return listed(
        'trainvitals_device_xid_info{instance=%q,pci_bus_id=%q,xid_severity="critical"} and on (instance, '
        "pci_bus_id, xid) "
        f"time() - trainvitals_device_xid_last_timestamp_seconds < {LIMITS.fault_window}",
        item,
        "instance",
        "pci_bus_id",
        by="xid",
        none=none,
    )


_XIDS = _xids("XID {{ .Labels.xid }} ({{ .Labels.meaning }})", "that it fell off the bus")
_XIDS_ZH = _xids("XID {{ .Labels.xid }}", "从总线上掉线")
_FAULTS = listed(
    "trainvitals_device_fault_info{instance=%q,uuid=%q}",
    "{{ .Labels.code }}",
    "instance",
    "uuid",
    by="code",
    none="none",
)
_SLOWED = "hw_slowdown|hw_thermal|hw_power_brake"
_LIMITS = listed(
    f'max_over_time(trainvitals_device_clock_limited{{uuid=%q,reason=~"{_SLOWED}"}}[10m]) == 1',
    "{{ .Labels.reason }}",
    "uuid",
    by="reason",
)

FAULTS: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsDeviceFatalXid",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        # By the time of the event: a counter is above 0 already when the exporter comes.
        expr=recent("instance, device, uuid, pci_bus_id", _FATAL_XIDS.strip(), LIMITS.fault_window),
        summary="A device on {{ $labels.instance }} reports a fault after which it cannot go on",
        summary_zh="{{ $labels.instance }} 上有设备报告致命故障",
        description=f"The driver reports of {_AT}: {_XIDS}. Used by: {DEVICE_USERS}.",
        description_zh=f"驱动报告{_AT_ZH}：{_XIDS_ZH}。使用者：{DEVICE_USERS_ZH}。",
        action=(
            "Take the node out of the job and resume from the last checkpoint on another. Then reset the device or "
            "reboot the node; a device that does it again is replaced. The XID's own advice is on the exporter's page."
        ),
        action_zh=(
            "把该节点移出作业，在其他节点上从最后一个检查点恢复。然后重置设备或重启节点；再次发生则更换。"
            "导出器页面上有该 XID 对应的处理建议。"
        ),
        impact="The process on the device ends or hangs, and with it the run.",
        impact_zh="该设备上的进程会终止或挂起，整个训练随之中断。",
        diagnosis=(
            "XIDs after which NVIDIA's catalogue asks for a reset or a repair at once, NVLink errors (144 to 150) that "
            "are called fatal among them, and a device that fell off the bus. `dmesg` has the driver's whole line; "
            "`trainvitals_device_xid_errors_total` counts all XIDs, those of programs too."
        ),
        diagnosis_zh=(
            "包括 NVIDIA 手册要求立即重置或维修的 XID、被标为 fatal 的 NVLink 错误（144 到 150），"
            "以及从总线上掉线的设备。`dmesg` 中有驱动的完整报错；"
            "`trainvitals_device_xid_errors_total` 统计所有 XID，包括程序自身引起的。"
        ),
    ),
    Alert(
        name="TrainvitalsDeviceMemoryWorn",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        {DEVICES} (
          trainvitals_device_row_remap_failed == 1 or trainvitals_device_ecc_sram_threshold_exceeded == 1
        )
        """,
        wait=LIMITS.device_down_for,
        keep=LIMITS.signal_keep,
        summary="A device on {{ $labels.instance }} must be replaced: its memory cannot be repaired any more",
        summary_zh="{{ $labels.instance }} 上有设备的显存已无法修复，需要更换",
        description=f"Of {DEVICE} a row could not be replaced, or its SRAM has had more errors than its maker allows.",
        description_zh=f"{DEVICE_ZH}：有显存行无法替换，或 SRAM 错误超过厂商允许的数量。",
        action="Take the device out of use at the next checkpoint and have it replaced.",
        action_zh="在下一个检查点之后停用该设备并更换。",
        impact="The next memory error ends the process on the device.",
        impact_zh="下一次显存错误就会终止该设备上的进程。",
        diagnosis="`trainvitals_device_row_remap_failed`, `trainvitals_device_ecc_sram_threshold_exceeded`.",
        diagnosis_zh="查看 `trainvitals_device_row_remap_failed` 与 `trainvitals_device_ecc_sram_threshold_exceeded`。",
    ),
    Alert(
        name="TrainvitalsDeviceNeedsReset",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        {DEVICES} (
          trainvitals_device_recovery_needed == 1
          or trainvitals_device_row_remap_pending == 1
          or trainvitals_device_retired_pages_pending == 1
          or trainvitals_device_repair_pending == 1
        )
        """,
        wait=LIMITS.device_down_for,
        keep=LIMITS.signal_keep,
        summary="A device on {{ $labels.instance }} waits for a reset",
        summary_zh="{{ $labels.instance }} 上有设备等待重置",
        description=(
            f"The driver asks for an action on {DEVICE} before it can be trusted again. Used by: {DEVICE_USERS}."
        ),
        description_zh=f"驱动要求先对 {DEVICE_ZH}执行恢复操作，完成之前该设备不可信赖。使用者：{DEVICE_USERS_ZH}。",
        action="Reset the device between two jobs, or reboot the node; nothing has to be stopped for it at once.",
        action_zh="在两个作业之间重置该设备或重启节点；无需立即中断训练。",
        impact="A repair of the memory is not done yet; more errors there end the process.",
        impact_zh="显存修复尚未生效；同一位置再次出错会终止进程。",
        diagnosis=(
            "`trainvitals_device_recovery_action_info` says which action the driver wants, "
            "the other two which repair waits."
        ),
        diagnosis_zh="`trainvitals_device_recovery_action_info` 说明驱动要求的操作，另外两个序列说明等待的是哪种修复。",
    ),
    Alert(
        name="TrainvitalsDeviceUnhealthy",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        {DEVICES} (trainvitals_device_health_state{{state="critical"}}) == 1
        """,
        wait=LIMITS.device_down_for,
        keep=LIMITS.signal_keep,
        summary="The driver calls a device on {{ $labels.instance }} faulty",
        summary_zh="驱动报告 {{ $labels.instance }} 上有设备故障",
        description=f"Health of {DEVICE}: critical. Faults: {_FAULTS}. Used by: {DEVICE_USERS}.",
        description_zh=f"{DEVICE_ZH}的健康状态为 critical。故障码：{chinese(_FAULTS)}。使用者：{DEVICE_USERS_ZH}。",
        action=(
            "Look the codes up in the maker's list of faults (Ascend: `npu-smi info -t health -i N -c 0` says them in "
            "words); save a checkpoint, and move the run to other devices if the fault stays."
        ),
        action_zh=(
            "在厂商的故障码表中查找（昇腾：`npu-smi info -t health -i N -c 0` 给出文字说明）；"
            "先保存检查点，若故障持续，把训练迁到其他设备。"
        ),
        impact="The device may fail at any step, or compute wrongly.",
        impact_zh="该设备可能在任意一步失败，或算出错误的结果。",
        diagnosis=(
            "`trainvitals_device_health_state` is the driver's word, `trainvitals_device_fault_info` has the codes."
        ),
        diagnosis_zh="`trainvitals_device_health_state` 是驱动的结论，`trainvitals_device_fault_info` 给出故障码。",
    ),
    Alert(
        name="TrainvitalsDeviceSlowed",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="efficiency",
        # Shares of the time: what holds the clocks down comes and goes within a minute, and so does work.
        expr=f"""
        {DEVICES} (avg_over_time(trainvitals_device_clock_limited{{reason=~"{_SLOWED}"}}[10m]))
          > {LIMITS.device_slowed_ratio}
        and on (instance, device, uuid)
        {DEVICES} (avg_over_time(trainvitals_device_utilization_ratio[10m])) > {LIMITS.busy_ratio}
        """,
        wait=LIMITS.device_slowed_for,
        keep=LIMITS.signal_keep,
        summary="A busy device on {{ $labels.instance }} is slowed down by its hardware",
        summary_zh="{{ $labels.instance }} 上忙碌的设备被硬件降频",
        description=(
            f"The clocks of {DEVICE} are held down in {{{{ $value | humanizePercentage }}}} of the last 10 minutes: "
            f"{_LIMITS}. Used by: {DEVICE_USERS}."
        ),
        description_zh=(
            f"{DEVICE_ZH}的频率在最近 10 分钟中有 {{{{ $value | humanizePercentage }}}} "
            f"的时间被压低：{chinese(_LIMITS)}。"
            f"使用者：{DEVICE_USERS_ZH}。"
        ),
        action=(
            "hw_thermal: look at fans, air and coolant of the node, and at its neighbors. hw_power_brake: look at "
            "power supplies and the rack's power. Both at once or hw_slowdown alone: let the node be looked at."
        ),
        action_zh=(
            "hw_thermal：检查该节点及相邻节点的风扇、风道和冷却液。hw_power_brake：检查电源和机柜供电。"
            "两者同时出现或只有 hw_slowdown：安排检修该节点。"
        ),
        impact="In a synchronous training all devices wait for this one.",
        impact_zh="同步训练中所有设备都要等它。",
        diagnosis=(
            "The device says so itself, no temperature is guessed. Power limits by software (sw_power_cap) are usual "
            "under load and no reason."
        ),
        diagnosis_zh="依据是设备自身的上报，不猜测温度阈值。负载下的软件功耗限制（sw_power_cap）属正常，不在此列。",
    ),
)
