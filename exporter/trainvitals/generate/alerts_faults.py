"""Alerts of the category resource about hardware and what it stands on: devices, links, file systems, the kernel."""

from __future__ import annotations

from trainvitals.devices.nvidia.xids import XIDS
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import DEVICE_USERS, listed

_DEVICE = "device {{ $labels.device }} ({{ $labels.uuid }}) on {{ $labels.instance }}"
_DEVICE_ZH = "{{ $labels.instance }} 上的设备 {{ $labels.device }}（{{ $labels.uuid }}）"
#: After which nothing on the device can go on until somebody acts.
_FATAL = "|".join(str(code) for code, xid in XIDS.items() if xid.severity == "critical")
_RECENT_XIDS = (
    f'time() - max by (instance, device, uuid, xid) (trainvitals_device_xid_last_timestamp_seconds{{xid=~"{_FATAL}"}}) '
    f"< {LIMITS.fault_window}"
)
_XIDS = listed(
    f'trainvitals_device_xid_last_timestamp_seconds{{uuid=%q,xid=~"{_FATAL}"}}',
    "XID {{ .Labels.xid }}",
    "uuid",
    by="xid",
)
_SLOWED = "hw_slowdown|hw_thermal|hw_power_brake"
_LIMITS = listed(
    f'trainvitals_device_clock_limited{{uuid=%q,reason=~"{_SLOWED}"}} == 1', "{{ .Labels.reason }}", "uuid", by="reason"
)
_DEVICES = "max by (instance, device, uuid)"

FAULTS: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsDeviceFatalXid",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        # By the time of the event: a counter is above 0 already when the exporter comes.
        expr=f"{_DEVICES} ({_RECENT_XIDS})",
        summary="A device on {{ $labels.instance }} reports a fault after which it cannot go on",
        summary_zh="{{ $labels.instance }} 上有设备报告致命故障",
        description=f"The driver reported {_XIDS} of {_DEVICE}. Used by: {DEVICE_USERS}.",
        description_zh=f"驱动报告 {_DEVICE_ZH} 出现 {_XIDS}。使用者：{DEVICE_USERS}。",
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
            "XIDs after which NVIDIA's catalogue asks for a reset or a repair at once. `dmesg` has the driver's whole "
            "line; `trainvitals_device_xid_errors_total` counts all XIDs, those of programs too."
        ),
        diagnosis_zh=(
            "只包含 NVIDIA 手册要求立即重置或维修的 XID。`dmesg` 中有驱动的完整报错；"
            "`trainvitals_device_xid_errors_total` 统计所有 XID，包括程序自身引起的。"
        ),
    ),
    Alert(
        name="TrainvitalsDeviceMemoryWorn",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        expr=f"""
        {_DEVICES} (
          trainvitals_device_row_remap_failed == 1 or trainvitals_device_ecc_sram_threshold_exceeded == 1
        )
        """,
        wait=LIMITS.device_down_for,
        summary="A device on {{ $labels.instance }} must be replaced: its memory cannot be repaired any more",
        summary_zh="{{ $labels.instance }} 上有设备的显存已无法修复，需要更换",
        description=f"Of {_DEVICE} a row could not be replaced, or its SRAM has had more errors than its maker allows.",
        description_zh=f"{_DEVICE_ZH}：有显存行无法替换，或 SRAM 错误超过厂商允许的数量。",
        action="Take the device out of use at the next checkpoint and have it replaced.",
        action_zh="在下一个检查点之后停用该设备并更换。",
        impact="The next memory error ends the process on the device.",
        impact_zh="下一次显存错误就会终止该设备上的进程。",
        diagnosis="`trainvitals_device_row_remap_failed`, `trainvitals_device_ecc_sram_threshold_exceeded`.",
        diagnosis_zh="查看 `trainvitals_device_row_remap_failed` 与 `trainvitals_device_ecc_sram_threshold_exceeded`。",
    ),
    Alert(
        name="TrainvitalsDeviceNeedsReset",
        file="resource",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        {_DEVICES} (
          trainvitals_device_recovery_needed == 1
          or trainvitals_device_row_remap_pending == 1
          or trainvitals_device_retired_pages_pending == 1
        )
        """,
        wait=LIMITS.device_down_for,
        summary="A device on {{ $labels.instance }} waits for a reset",
        summary_zh="{{ $labels.instance }} 上有设备等待重置",
        description=(
            f"The driver asks for an action on {_DEVICE} before it can be trusted again. Used by: {DEVICE_USERS}."
        ),
        description_zh=f"驱动要求先处理 {_DEVICE_ZH}，之后才能继续信任它。使用者：{DEVICE_USERS}。",
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
        name="TrainvitalsDeviceSlowed",
        file="resource",
        category="resource",
        severity="warning",
        gauge="efficiency",
        expr=f"""
        {_DEVICES} (trainvitals_device_clock_limited{{reason=~"{_SLOWED}"}}) == 1
        and on (instance, device, uuid)
        {_DEVICES} (trainvitals_device_utilization_ratio) > {LIMITS.busy_ratio}
        """,
        wait=LIMITS.device_slowed_for,
        keep=LIMITS.signal_keep,
        summary="A busy device on {{ $labels.instance }} is slowed down by its hardware",
        summary_zh="{{ $labels.instance }} 上忙碌的设备被硬件降频",
        description=f"The clocks of {_DEVICE} are held down: {_LIMITS}. Used by: {DEVICE_USERS}.",
        description_zh=f"{_DEVICE_ZH} 的频率被压低：{_LIMITS}。使用者：{DEVICE_USERS}。",
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
    Alert(
        name="TrainvitalsInfinibandPortDown",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        expr="""
        max by (instance, hca, port) (trainvitals_infiniband_port_up) == 0
        and on (instance, hca, port)
        max by (instance, hca, port) (max_over_time(trainvitals_infiniband_port_up[1d])) == 1
        """,
        wait=LIMITS.link_down_for,
        keep=LIMITS.signal_keep,
        summary="Port {{ $labels.hca }}/{{ $labels.port }} on {{ $labels.instance }} is down",
        summary_zh="{{ $labels.instance }} 的端口 {{ $labels.hca }}/{{ $labels.port }} 已断开",
        description="The port was up within the last day and is down now.",
        description_zh="该端口在过去一天内曾经连通，现在断开。",
        action=(
            "Look at cable, transceiver and switch port, and at `ibstat` on the node; leave the node out of new jobs "
            "until it is up again."
        ),
        action_zh="检查线缆、光模块和交换机端口，并在节点上运行 `ibstat`；恢复之前不要把新作业派到该节点。",
        impact="Collective operations over the port hang until NCCL gives up, or run at half the rate.",
        impact_zh="经过该端口的集合通信会挂起直到 NCCL 超时，或速率减半。",
        diagnosis="`trainvitals_infiniband_flaps_total` counts how often it went down.",
        diagnosis_zh="`trainvitals_infiniband_flaps_total` 是断开的次数。",
    ),
    Alert(
        name="TrainvitalsInfinibandPortFlaps",
        file="resource",
        category="resource",
        severity="warning",
        gauge="health",
        expr=(
            f"max by (instance, hca, port) (increase(trainvitals_infiniband_flaps_total[1h])) >= {LIMITS.link_flaps}"
        ),
        keep=LIMITS.signal_keep,
        summary="Port {{ $labels.hca }}/{{ $labels.port }} on {{ $labels.instance }} goes down again and again",
        summary_zh="{{ $labels.instance }} 的端口 {{ $labels.hca }}/{{ $labels.port }} 反复断开",
        description='It went down {{ $value | printf "%.0f" }} times in the last hour.',
        description_zh='过去一小时内断开 {{ $value | printf "%.0f" }} 次。',
        action="Clean or replace cable and transceiver; look at the error counters of the switch port.",
        action_zh="清洁或更换线缆与光模块；查看交换机端口的错误计数。",
        impact="Each time collective operations stand still for seconds, or end with a timeout.",
        impact_zh="每次断开都会使集合通信停顿数秒，或以超时告终。",
        diagnosis="`trainvitals_infiniband_errors_total` says of which kind the errors are.",
        diagnosis_zh="`trainvitals_infiniband_errors_total` 按类型列出错误。",
    ),
    Alert(
        name="TrainvitalsFilesystemStuck",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        expr="max by (instance, mountpoint) (trainvitals_host_filesystem_stuck) == 1",
        wait=LIMITS.filesystem_stuck_for,
        summary="File system {{ $labels.mountpoint }} on {{ $labels.instance }} does not answer",
        summary_zh="{{ $labels.instance }} 的文件系统 {{ $labels.mountpoint }} 无响应",
        description="A probe of {{ $labels.mountpoint }} has not come back.",
        description_zh="对 {{ $labels.mountpoint }} 的探测没有返回。",
        action=(
            "See whether other nodes have the same: then it is the server or its network. If only this one, look at "
            "`dmesg` and the mount, and take the node out of the job."
        ),
        action_zh="看其他节点是否相同：若相同，是服务器或网络问题；若只有该节点，查看 `dmesg` 和挂载，并把它移出作业。",
        impact="Loaders and checkpoints on it wait, and cannot be interrupted.",
        impact_zh="其上的数据加载和检查点都会等待，且无法中断。",
        diagnosis="`trainvitals_host_filesystem_stuck_timestamp_seconds` says since when.",
        diagnosis_zh="`trainvitals_host_filesystem_stuck_timestamp_seconds` 是开始无响应的时间。",
    ),
    Alert(
        name="TrainvitalsFilesystemInodesLow",
        file="resource",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        max by (instance, mountpoint) (
          trainvitals_host_filesystem_files_free / (trainvitals_host_filesystem_files > 0)
        ) < {LIMITS.filesystem_inodes_ratio}
        """,
        wait=LIMITS.filesystem_for,
        summary="File system {{ $labels.mountpoint }} on {{ $labels.instance }} has hardly room for another file",
        summary_zh="{{ $labels.instance }} 的文件系统 {{ $labels.mountpoint }} 的 inode 即将用尽",
        description="{{ $value | humanizePercentage }} of the inodes are free.",
        description_zh="仅剩 {{ $value | humanizePercentage }} 的 inode。",
        action="Remove or pack what consists of very many small files: caches, unpacked data sets, old logs.",
        action_zh="删除或打包由大量小文件组成的内容：缓存、解压后的数据集、旧日志。",
        impact='A checkpoint fails with "no space left" though there is space.',
        impact_zh="明明还有空间，检查点却会以“空间不足”失败。",
        diagnosis="`df -i` on the node; `find -xdev -type d -size +1M` finds folders with very many files.",
        diagnosis_zh="在节点上运行 `df -i`；`find -xdev -type d -size +1M` 可找到文件极多的目录。",
    ),
    Alert(
        name="TrainvitalsOomKill",
        file="resource",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"max by (instance) (increase(trainvitals_host_oom_kills_total[{LIMITS.fault_window:duration}])) > 0",
        summary="Node {{ $labels.instance }}: the kernel killed a process for want of memory",
        summary_zh="节点 {{ $labels.instance }}：内核因内存不足杀死了进程",
        description=f'{{{{ $value | printf "%.0f" }}}} or more in the last {LIMITS.fault_window:words}.',
        description_zh=f'最近 {LIMITS.fault_window:zh}内 {{{{ $value | printf "%.0f" }}}} 次或更多。',
        action=(
            "`dmesg` names the process. A rank or its loaders: fewer loader workers, less prefetch, no copy of the "
            "data set per worker. Another program: move it away from the node."
        ),
        action_zh=(
            "`dmesg` 中有进程名。若是 rank 或其加载进程：减少加载进程和预取，避免每个进程各存一份数据集。"
            "若是其他程序：把它移出该节点。"
        ),
        impact="A killed rank ends the run; a killed loader worker mostly does.",
        impact_zh="rank 被杀会使训练终止；加载进程被杀多半也会。",
        diagnosis="`trainvitals_rank_cgroup_oom_kills_total` says whether a rank's own limit was met.",
        diagnosis_zh="`trainvitals_rank_cgroup_oom_kills_total` 说明是否触及 rank 自身的内存上限。",
    ),
    Alert(
        name="TrainvitalsClockUnsynchronized",
        file="resource",
        category="resource",
        severity="warning",
        gauge="health",
        expr="max by (instance) (trainvitals_host_clock_synchronized) == 0",
        wait=LIMITS.clock_for,
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
)
