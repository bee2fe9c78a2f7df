"""Alerts of the category resource about storage: slow or failing."""

from __future__ import annotations

from trainvitals.generate.expressions import chinese
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import listed

_OPERATIONS = "rate(trainvitals_host_nfs_operations_total[5m])"
_SECONDS = f"rate(trainvitals_host_nfs_response_seconds_total[5m]) / ({_OPERATIONS} > 0)"
_AGAIN = f"rate(trainvitals_host_nfs_retransmissions_total[5m]) / ({_OPERATIONS} > 0)"
_MOUNT = "{{ $labels.mountpoint }} on {{ $labels.instance }}"
_MOUNT_ZH = "{{ $labels.instance }} 上的 {{ $labels.mountpoint }}"


def _of_mount(expr: str, item: str) -> str:
    """Return a template that writes something about the mount of the alert; each selector gets its labels."""
    matched = expr.replace("_total[", "_total{instance=%q,mountpoint=%q}[")
    return listed(matched, item, *(("instance", "mountpoint") * matched.count("%q,")), by="mountpoint", none="?")


_SERVER = listed(
    "trainvitals_host_filesystem_info{instance=%q,mountpoint=%q}",
    "{{ .Labels.source }}",
    "instance",
    "mountpoint",
    by="source",
    none="not known",
)
_ERRORS = listed(
    "trainvitals_host_filesystem_probe_error_info{instance=%q,mountpoint=%q}",
    "{{ .Labels.error }}",
    "instance",
    "mountpoint",
    by="error",
)

STORAGE: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsFilesystemStuck",
        file="hardware",
        category="resource",
        severity="critical",
        gauge="health",
        expr="max by (instance, mountpoint) (trainvitals_host_filesystem_stuck) == 1",
        wait=LIMITS.filesystem_stuck_for,
        keep=LIMITS.signal_keep,
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
        name="TrainvitalsFilesystemBroken",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        # A right that the exporter lacks is a matter of settings.
        expr='max by (instance, mountpoint) (trainvitals_host_filesystem_probe_error_info{error!~"EACCES|EPERM"}) == 1',
        wait=LIMITS.filesystem_broken_for,
        keep=LIMITS.signal_keep,
        summary=f"File system {_MOUNT} answers with errors",
        summary_zh=f"{_MOUNT_ZH} 返回错误",
        description=f"The last probe of {_MOUNT} failed: {_ERRORS}. It is a mount of: {_SERVER}.",
        description_zh=f"最近一次对 {_MOUNT_ZH} 的探测失败：{chinese(_ERRORS)}。其来源：{chinese(_SERVER)}。",
        action=(
            "ESTALE: the server no longer has the export; mount it again. ENOTCONN: the process behind a FUSE mount "
            "died; start it again. EIO: read `dmesg`. EDQUOT, ENOSPC: make room. DIFFERENT: what was read is not what "
            "was written; stop using it."
        ),
        action_zh=(
            "ESTALE：服务器已不再提供该导出，请重新挂载。ENOTCONN：FUSE 挂载背后的进程已退出，请重新启动。"
            "EIO：查看 `dmesg`。EDQUOT、ENOSPC：清理空间。DIFFERENT：读到的与写入的不一致，停止使用。"
        ),
        impact="Data on it cannot be read, or checkpoints cannot be saved there.",
        impact_zh="无法读取其上的数据，或无法把检查点保存到那里。",
        diagnosis=(
            "`trainvitals_host_filesystem_probe_timestamp_seconds` says when it was last tried; `stat MOUNTPOINT`."
        ),
        diagnosis_zh=(
            "`trainvitals_host_filesystem_probe_timestamp_seconds` 是最近一次探测的时间；运行 `stat MOUNTPOINT`。"
        ),
    ),
    Alert(
        name="TrainvitalsFilesystemReadOnly",
        file="hardware",
        category="resource",
        severity="critical",
        gauge="health",
        # One that is mounted so was so an hour ago.
        expr="""
        max by (instance, mountpoint) (trainvitals_host_filesystem_read_only) == 1
        and on (instance, mountpoint)
        trainvitals_host_filesystem_read_only offset 1h == 0
        """,
        wait=LIMITS.device_down_for,
        keep=LIMITS.signal_keep,
        summary=f"File system {_MOUNT} can no longer be written to",
        summary_zh=f"{_MOUNT_ZH} 已变为只读",
        description="It could be written to an hour ago, and is read-only now.",
        description_zh="一小时前还可写入，现在为只读。",
        action=(
            "Let checkpoints go elsewhere at once. Read `dmesg` for the error that came before, check the disk, then "
            "repair the file system. If somebody mounted it so on purpose, nothing; the alert ends within the hour."
        ),
        action_zh=(
            "立即把检查点改存到别处。在 `dmesg` 中查看此前的错误，检查磁盘，然后修复文件系统。"
            "若是有人特意挂载为只读，无需处理；告警会在一小时内结束。"
        ),
        impact="Every checkpoint there fails, and work since the last one is lost when the run ends.",
        impact_zh="保存到该处的检查点都会失败；训练中断时，上一个检查点之后的成果丢失。",
        diagnosis="The kernel makes a file system read-only after an error of the disk or of the file system itself.",
        diagnosis_zh="磁盘或文件系统自身出错后，内核会把文件系统改为只读。",
    ),
    Alert(
        name="TrainvitalsNfsSlow",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="efficiency",
        expr=f"""
        max by (instance, mountpoint) (
          {_SECONDS} > {LIMITS.nfs_seconds}
          or
          {_AGAIN} > {LIMITS.nfs_retransmitted_ratio}
        )
        and on (instance, mountpoint)
        {_OPERATIONS} > {LIMITS.nfs_operations}
        """,
        wait=LIMITS.nfs_slow_for,
        keep=LIMITS.signal_keep,
        summary=f"The NFS server of {_MOUNT} is slow",
        summary_zh=f"{_MOUNT_ZH} 的 NFS 服务器响应慢",
        description=(
            f"A request takes {_of_mount(_SECONDS, '{{ .Value | humanizeDuration }}')} on average, and "
            f"{_of_mount(_AGAIN, '{{ .Value | humanizePercentage }}')} of them are sent again. Server: {_SERVER}."
        ),
        description_zh=(
            f"每个请求平均耗时 {_of_mount(_SECONDS, '{{ .Value | humanizeDuration }}')}，"
            f"其中 {_of_mount(_AGAIN, '{{ .Value | humanizePercentage }}')} 需要重发。服务器：{chinese(_SERVER)}。"
        ),
        action=(
            "See whether other nodes have the same: then it is the server, or who else uses it. If only this one, look "
            "at its network. For data that is read again and again, copy it to a local disk."
        ),
        action_zh=(
            "看其他节点是否相同：若相同，是服务器或其他使用者的问题。若只有该节点，检查它的网络。"
            "反复读取的数据可复制到本地盘。"
        ),
        impact="Loaders wait for data, and checkpoints take long.",
        impact_zh="数据加载等待读取，检查点保存很慢。",
        diagnosis=(
            "`trainvitals_host_nfs_queue_seconds_total` rises when requests wait in the node itself: then more than "
            "the mount can send at once is asked for (mount option nconnect)."
        ),
        diagnosis_zh=(
            "若 `trainvitals_host_nfs_queue_seconds_total` 上升，请求是在本节点排队：一次请求太多，可使用挂载选项 "
            "nconnect。"
        ),
    ),
    Alert(
        name="TrainvitalsNfsTimeouts",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        max by (instance, mountpoint) (
          increase(trainvitals_host_nfs_timeouts_total[{LIMITS.nfs_timeouts_window:duration}])
        ) > 0
        unless on (instance, mountpoint)
        trainvitals_host_filesystem_stuck == 1
        """,
        wait=LIMITS.restart_for,
        keep=LIMITS.signal_keep,
        summary=f"The NFS server of {_MOUNT} did not answer for a while",
        summary_zh=f"{_MOUNT_ZH} 的 NFS 服务器曾一度无响应",
        description=(
            f'In the last {LIMITS.nfs_timeouts_window:words} {{{{ $value | printf "%.0f" }}}} requests got no answer '
            f"after all repetitions. Server: {_SERVER}."
        ),
        description_zh=(
            f'最近 {LIMITS.nfs_timeouts_window:zh}内有 {{{{ $value | printf "%.0f" }}}} 个请求在多次重发后仍无应答。'
            f"服务器：{chinese(_SERVER)}。"
        ),
        action="Look at the server's load and log, and at the network to it; see whether the run makes steps again.",
        action_zh="查看服务器的负载和日志以及到它的网络；确认训练已恢复推进。",
        impact="On a hard mount processes wait until the server answers; on a soft one they get errors.",
        impact_zh="hard 挂载的进程会一直等待服务器应答；soft 挂载的进程会得到错误。",
        diagnosis='`dmesg` has "nfs: server ... not responding" and "OK" with the times.',
        diagnosis_zh="`dmesg` 中有 nfs: server ... not responding 与 OK 及其时间。",
    ),
)
