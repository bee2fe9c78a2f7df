"""Alerts of the category resource about what the kernel complains of, by the time of its last complaint.

One alert per node and kind; the places (disks, cards) are in the text.  Which kinds there are, and what they mean, is
in :mod:`trainvitals.host.kernel_kinds`.
"""

from __future__ import annotations

from trainvitals.generate.expressions import chinese, recent
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import listed

_LAST = "trainvitals_kernel_event_last_timestamp_seconds"

#: After these data is lost, or will be.
DAMAGED = ("filesystem_error", "filesystem_read_only")
DISKS = ("disk_error", "nvme_error")
HARDWARE = (
    *("machine_check", "memory_uncorrected", "pcie_uncorrected", "pcie_contained"),
    *("gpu_init_failed", "gpu_driver_lost", "nic_health", "nic_cable"),
)
#: The kernel itself, or a CPU, does not go on.
STUCK = ("soft_lockup", "hard_lockup", "kernel_bug")
#: Often harmless, and worth a look when something else is wrong.
NOTICES = (
    *("hung_task", "rcu_stall", "segfault", "pcie_corrected", "pcie_removed"),
    *("gpu_rdma_error", "gpu_driver_mismatch", "cpu_throttled"),
)
#: Counted, for a single one means nothing.
CORRECTED = ("memory_corrected", "machine_check_corrected")

_CORRECTED = f'trainvitals_kernel_events_total{{kind=~"{"|".join(CORRECTED)}"}}'


def _complained(kinds: tuple[str, ...]) -> str:
    return recent("instance, kind", f'{_LAST}{{kind=~"{"|".join(kinds)}"}}', LIMITS.kernel_window)


_PLACES = listed(
    f'{_LAST}{{instance=%q,kind=%q,place!=""}}',
    "{{ .Labels.place }}",
    "instance",
    "kind",
    by="place",
    none="not told",
)
_SAID = f"The kernel's log has {{{{ $labels.kind }}}}, last {{{{ $value | humanizeDuration }}}} ago. Where: {_PLACES}."
_SAID_ZH = (
    "内核日志中有 {{ $labels.kind }}，最近一次在 {{ $value | humanizeDuration }} 前。"
    f"位置：{chinese(_PLACES)}。"
)
_WHERE = "`dmesg -T` has the whole message; docs/kernel.md explains each kind."
_WHERE_ZH = "`dmesg -T` 中有完整信息；docs/kernel.md 解释每种类型。"

KERNEL: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsFilesystemDamaged",
        file="hardware",
        category="resource",
        severity="critical",
        gauge="health",
        expr=_complained(DAMAGED),
        summary="A file system of node {{ $labels.instance }} is damaged",
        summary_zh="节点 {{ $labels.instance }} 有文件系统损坏",
        description=_SAID,
        description_zh=_SAID_ZH,
        action=(
            "Let checkpoints go elsewhere at once, and stop what writes there. Check the disk (`smartctl -a`, "
            "`nvme smart-log`), then repair the file system."
        ),
        action_zh=(
            "立即把检查点改存到别处，并停止对它的写入。检查磁盘（`smartctl -a`、`nvme smart-log`），然后修复文件系统。"
        ),
        impact="Files there may be lost, and checkpoints fail from now on.",
        impact_zh="其上的文件可能丢失，之后的检查点都会失败。",
        diagnosis=_WHERE,
        diagnosis_zh=_WHERE_ZH,
    ),
    Alert(
        name="TrainvitalsDiskErrors",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=_complained(DISKS),
        summary="A disk of node {{ $labels.instance }} fails",
        summary_zh="节点 {{ $labels.instance }} 有磁盘出错",
        description=_SAID,
        description_zh=_SAID_ZH,
        action=(
            "Look at the state of the disk (`smartctl -a`, `nvme smart-log`) and at PCIe errors beside it; copy "
            "what is "
            "needed from it and replace it."
        ),
        action_zh="查看磁盘状态（`smartctl -a`、`nvme smart-log`）以及同时出现的 PCIe 错误；备份所需数据并更换磁盘。",
        impact="Data on it cannot be read in part, or checkpoints there are incomplete.",
        impact_zh="其上的部分数据无法读取，或检查点不完整。",
        diagnosis=_WHERE,
        diagnosis_zh=_WHERE_ZH,
    ),
    Alert(
        name="TrainvitalsHardwareError",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=_complained(HARDWARE),
        summary="Node {{ $labels.instance }} reports a hardware error",
        summary_zh="节点 {{ $labels.instance }} 报告硬件错误",
        description=_SAID,
        description_zh=_SAID_ZH,
        action=(
            "machine_check, memory_uncorrected: take the node out at the next checkpoint and replace what the log of "
            "the BMC names. pcie_*: see which device is behind the address. gpu_*: reboot the node. nic_*: reseat the "
            "cable, then reset the card."
        ),
        action_zh=(
            "machine_check、memory_uncorrected：在下一个检查点之后移出该节点，按 BMC 日志更换部件。"
            "pcie_*：查看该地址后面是哪个设备。gpu_*：重启节点。nic_*：重新插拔线缆，然后重置网卡。"
        ),
        impact="What was computed or sent at that time may be wrong or lost; often the process ends with it.",
        impact_zh="当时计算或传输的数据可能出错或丢失；相关进程往往随之终止。",
        diagnosis=_WHERE,
        diagnosis_zh=_WHERE_ZH,
    ),
    Alert(
        name="TrainvitalsKernelStuck",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=_complained(STUCK),
        summary="The kernel of node {{ $labels.instance }} failed or hung",
        summary_zh="节点 {{ $labels.instance }} 的内核出错或卡死",
        description=_SAID,
        description_zh=_SAID_ZH,
        action=(
            "See whether the ranks there make steps. If not, take the node out of the job and reboot it. If they do, "
            "reboot it at the next pause, and keep the log for whoever looks after kernel and drivers."
        ),
        action_zh=(
            "看该节点上的 rank 是否仍在推进。若没有，把节点移出作业并重启；若在推进，下次停顿时重启，"
            "并把日志交给维护内核和驱动的人。"
        ),
        impact="Processes on the node may hang in a way that nothing but a reboot ends.",
        impact_zh="该节点上的进程可能卡死，只有重启才能解决。",
        diagnosis=_WHERE,
        diagnosis_zh=_WHERE_ZH,
    ),
    Alert(
        name="TrainvitalsCorrectedErrors",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        # After a restart the exporter counts again from the oldest record that is left: a fall is no new error.
        expr=f"""
        max by (instance, kind) (increase({_CORRECTED}[{LIMITS.kernel_window:duration}])) >= {LIMITS.corrected_errors}
        unless on (instance, kind)
        resets({_CORRECTED}[{LIMITS.kernel_window:duration}]) > 0
        """,
        keep=LIMITS.signal_keep,
        summary="Hardware of node {{ $labels.instance }} has more and more errors, corrected so far",
        summary_zh="节点 {{ $labels.instance }} 的硬件错误不断增加，目前均已纠正",
        description=(
            f"In the last {LIMITS.kernel_window:words} the kernel told of {{{{ $labels.kind }}}} "
            '{{ $value | printf "%.0f" }} times. '
            f"Where: {_PLACES}."
        ),
        description_zh=(
            f"最近 {LIMITS.kernel_window:zh}内，内核报告 {{{{ $labels.kind }}}} "
            '{{ $value | printf "%.0f" }} 次。'
            f"位置：{chinese(_PLACES)}。"
        ),
        action=(
            "Plan to replace the memory module that `ras-mc-ctl --errors` or the log of the BMC names; no run has to "
            "be stopped for it."
        ),
        action_zh="安排更换 `ras-mc-ctl --errors` 或 BMC 日志指出的内存条；不必为此停止训练。",
        impact="None yet. An error that cannot be corrected ends a process or the node.",
        impact_zh="目前没有影响。一旦出现无法纠正的错误，进程或节点会停止。",
        diagnosis=_WHERE,
        diagnosis_zh=_WHERE_ZH,
    ),
    Alert(
        name="TrainvitalsKernelNotice",
        file="hardware",
        category="resource",
        severity="info",
        gauge="health",
        expr=_complained(NOTICES),
        summary="The kernel of node {{ $labels.instance }} complains of {{ $labels.kind }}",
        summary_zh="节点 {{ $labels.instance }} 的内核报告 {{ $labels.kind }}",
        description=_SAID,
        description_zh=_SAID_ZH,
        action=(
            "Nothing by itself. When a run hangs, ends or is slow at that time, begin here: hung_task with storage and "
            "drivers, rcu_stall with the host of a virtual machine, segfault with the library that is named."
        ),
        action_zh=(
            "本身无需处理。若此时有训练挂起、结束或变慢，从这里查起：hung_task 查存储和驱动，rcu_stall "
            "查虚拟机的宿主机，"
            "segfault 查其中指出的库。"
        ),
        impact="Mostly none.",
        impact_zh="多数情况下没有影响。",
        diagnosis=_WHERE,
        diagnosis_zh=_WHERE_ZH,
    ),
)
