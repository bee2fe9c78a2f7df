"""Alerts of the category resource about file systems that are full, or will be."""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert, indent, tidy

_FREE = "trainvitals_host_filesystem_available_bytes"
_MOUNT = "{{ $labels.mountpoint }} on {{ $labels.instance }}"
_MOUNT_ZH = "{{ $labels.instance }} 上的 {{ $labels.mountpoint }}"
_FULL = tidy(
    f"""
    max by (instance, mountpoint) (
      trainvitals_host_filesystem_available_bytes{{mountpoint!~"/(boot|snap)(/.*)?"}}
      / (trainvitals_host_filesystem_size_bytes > 0)
    ) < {LIMITS.filesystem_available_ratio}
    and on (instance, mountpoint)
    max by (instance, mountpoint) (trainvitals_host_filesystem_available_bytes)
      < {LIMITS.filesystem_available_bytes}
    """
)

SPACE: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsFilesystemFull",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=_FULL,
        wait=LIMITS.filesystem_for,
        keep=LIMITS.signal_keep,
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
            "在下一个检查点之前删除旧检查点和缓存。若为 /dev/shm，删除死进程的遗留：写满会杀死加载进程，"
            "并使新的训练无法被记录。"
        ),
        impact="The next checkpoint fails; a full /dev/shm kills loader workers.",
        impact_zh="下一个检查点会保存失败；/dev/shm 写满会杀死加载进程。",
        diagnosis="`du -xh --max-depth=2 MOUNTPOINT` shows what takes the space.",
        diagnosis_zh="`du -xh --max-depth=2 MOUNTPOINT` 显示空间被什么占用。",
    ),
    Alert(
        name="TrainvitalsFilesystemFills",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        # Two points rather than predict_linear(): 6 hours of 10,000 mounts are too much to read every 15 seconds, and
        # checkpoints that are written and deleted in between weigh nothing.
        expr=f"""
        min by (instance, mountpoint) (
          {_FREE}{{mountpoint!~"/(boot|snap)(/.*)?"}}
          / (({_FREE} offset {LIMITS.filesystem_pace_window:duration} - {_FREE}) > 0)
        ) * {LIMITS.filesystem_pace_window} < {LIMITS.filesystem_full_in}
        and on (instance, mountpoint)
        {_FREE} / (trainvitals_host_filesystem_size_bytes > 0) < {LIMITS.filesystem_fills_ratio}
        unless on (instance, mountpoint) (
{indent(_FULL, 10)}
        )
        """,
        wait=LIMITS.filesystem_fills_for,
        keep=LIMITS.signal_keep,
        summary=f"File system {_MOUNT} will be full within hours",
        summary_zh=f"{_MOUNT_ZH} 将在数小时内写满",
        description=(
            f"At the pace of the last {LIMITS.filesystem_pace_window:words} it is full in "
            "{{ $value | humanizeDuration }}."
        ),
        description_zh=(
            f"按最近 {LIMITS.filesystem_pace_window:zh}的速度，将在 {{{{ $value | humanizeDuration }}}} 后写满。"
        ),
        action="Remove old checkpoints and caches, or keep fewer of them; see who else writes there.",
        action_zh="删除旧检查点和缓存，或减少保留数量；查看还有谁在写入。",
        impact="A checkpoint fails when it is full.",
        impact_zh="写满后检查点会保存失败。",
        diagnosis="`du -xh --max-depth=2 MOUNTPOINT` shows what takes the space.",
        diagnosis_zh="`du -xh --max-depth=2 MOUNTPOINT` 显示空间被什么占用。",
    ),
    Alert(
        name="TrainvitalsFilesystemInodesLow",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        max by (instance, mountpoint) (
          trainvitals_host_filesystem_files_free / (trainvitals_host_filesystem_files > 0)
        ) < {LIMITS.filesystem_inodes_ratio}
        """,
        wait=LIMITS.filesystem_for,
        keep=LIMITS.signal_keep,
        summary="File system {{ $labels.mountpoint }} on {{ $labels.instance }} has hardly room for another file",
        summary_zh="{{ $labels.instance }} 的文件系统 {{ $labels.mountpoint }} 的 inode 即将用尽",
        description="{{ $value | humanizePercentage }} of the inodes are free.",
        description_zh="仅剩 {{ $value | humanizePercentage }} 的 inode。",
        action="Remove or pack what consists of very many small files: caches, unpacked data sets, old logs.",
        action_zh="删除或打包由大量小文件组成的内容：缓存、解压后的数据集、旧日志。",
        impact='A checkpoint fails with "no space left" though there is space.',
        impact_zh="明明还有空间，检查点却会以“空间不足”失败。",
        diagnosis="`df -i` on the node; `find MOUNTPOINT -xdev -type d -size +1M` finds folders with very many files.",
        diagnosis_zh="在节点上运行 `df -i`；`find MOUNTPOINT -xdev -type d -size +1M` 可找到文件极多的目录。",
    ),
)
