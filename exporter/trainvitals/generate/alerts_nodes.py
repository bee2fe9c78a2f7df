"""Alerts of the category resource about nodes: devices, memory, disks."""

from __future__ import annotations

from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import listed
from trainvitals.generate.thresholds import DEFAULTS

_DEVICE_USERS = listed(
    'trainvitals_rank_info{uuid=%q,uuid!=""}',
    "rank {{ .Labels.rank }} of run {{ .Labels.run }}",
    "uuid",
    none="no rank known",
)

NODES: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsDeviceDown",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        expr="max by (instance, device, uuid) (trainvitals_device_up) == 0",
        wait=DEFAULTS.device_down_for,
        summary="Device {{ $labels.device }} on {{ $labels.instance }} does not answer",
        summary_zh="{{ $labels.instance }} 上的设备 {{ $labels.device }} 无响应",
        description="Device {{ $labels.device }} ({{ $labels.uuid }}) does not answer; it serves "
        + _DEVICE_USERS
        + ".",
        description_zh="设备 {{ $labels.device }}({{ $labels.uuid }})无响应;使用者:" + _DEVICE_USERS + "。",
        action=(
            "Take the node out of the job and resume from the last checkpoint without it. On the node, read `dmesg` "
            "(NVIDIA: "
            "the Xid number), reset the device or reboot; replace it if that does not last."
        ),
        action_zh=(
            "把该节点移出作业,从最后一个检查点恢复。在节点上查看 `dmesg`(NVIDIA:Xid 编号),重置设备或重启;"
            "若再次发生则更换。"
        ),
        impact="The rank on it fails or hangs, and the run with it.",
        diagnosis="The vendor's library lists the device but cannot read it: it fell off the bus or needs a reset.",
    ),
    Alert(
        name="TrainvitalsDeviceSourceHung",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        expr="max by (instance, vendor) (trainvitals_device_source_up) == 0",
        wait=DEFAULTS.device_source_for,
        summary="The driver of the {{ $labels.vendor }} devices on {{ $labels.instance }} does not answer",
        summary_zh="{{ $labels.instance }} 上 {{ $labels.vendor }} 设备的驱动无响应",
        description=(
            "The process that reads the {{ $labels.vendor }} devices hangs or fails again and again, so their values "
            "are "
            "missing. Most often a device or its driver is stuck."
        ),
        description_zh=(
            "读取 {{ $labels.vendor }} 设备的进程卡住或反复失败,因此没有这些设备的数据。最常见的原因是设备或驱动卡死。"
        ),
        action=(
            "Run the vendor's tool (`nvidia-smi`) on the node: if it hangs too, take the node out of the job and "
            "reboot it. "
            "If it works, read the log of the exporter."
        ),
        action_zh="在该节点运行厂商工具(如 `nvidia-smi`):若同样卡住,把节点移出作业并重启;若正常,查看导出器日志。",
        impact="A hung driver soon hangs the training; until then its devices are not watched.",
        diagnosis=(
            "`trainvitals_device_source_restarts_total` counts the attempts. `dmesg` shows the driver's own complaint."
        ),
    ),
    Alert(
        name="TrainvitalsHostMemoryLow",
        file="resource",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        max by (instance) (
          trainvitals_host_memory_available_bytes / (trainvitals_host_memory_total_bytes > 0)
        ) < {DEFAULTS.memory_available_ratio}
        """,
        wait=DEFAULTS.memory_for,
        summary="Node {{ $labels.instance }} runs out of memory",
        summary_zh="节点 {{ $labels.instance }} 内存即将耗尽",
        description="Only {{ $value | humanizePercentage }} of the memory can still be had without swapping.",
        description_zh="仅剩 {{ $value | humanizePercentage }} 的内存无需换页即可使用。",
        action=(
            "Data first: fewer loader workers, less prefetch, no copy of the data set per worker. Remove what other "
            "processes left in /dev/shm. Save a checkpoint before the kernel kills a rank."
        ),
        action_zh=(
            "先查数据:减少加载进程和预取,避免每个进程各存一份数据集。清理 /dev/shm 中的遗留文件。在内核杀掉 rank "
            "之前保存检查点。"
        ),
        impact="The kernel kills the largest process, which is a training process.",
        diagnosis=(
            "A slow, steady fall is a leak in the loader or in the training; a jump is an evaluation or a checkpoint."
        ),
    ),
    Alert(
        name="TrainvitalsFilesystemFull",
        file="resource",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        max by (instance, mountpoint) (
          trainvitals_host_filesystem_available_bytes{{mountpoint!~"/(boot|snap)(/.*)?"}}
          / (trainvitals_host_filesystem_size_bytes > 0)
        ) < {DEFAULTS.filesystem_available_ratio}
        and on (instance, mountpoint)
        max by (instance, mountpoint) (trainvitals_host_filesystem_available_bytes)
          < {DEFAULTS.filesystem_available_bytes:.0f}
        """,
        wait=DEFAULTS.filesystem_for,
        summary="File system {{ $labels.mountpoint }} on {{ $labels.instance }} is almost full",
        summary_zh="{{ $labels.instance }} 上的文件系统 {{ $labels.mountpoint }} 即将写满",
        description="Only {{ $value | humanizePercentage }} of {{ $labels.mountpoint }} is free.",
        description_zh="{{ $labels.mountpoint }} 仅剩 {{ $value | humanizePercentage }} 空间。",
        action=(
            "Remove old checkpoints and caches before the next checkpoint is due. On /dev/shm, remove what dead "
            "processes "
            "left: a full one kills loader workers and keeps new runs from being recorded."
        ),
        action_zh=(
            "在下一个检查点之前删除旧检查点和缓存。若为 /dev/shm,删除死进程的遗留:写满会杀死加载进程,"
            "并使新的训练无法被记录。"
        ),
        impact="The next checkpoint fails; a full /dev/shm kills loader workers.",
        diagnosis="`du -xh --max-depth=2 MOUNTPOINT` shows what takes the space.",
    ),
)
