"""Alerts of the category resource about nodes: devices that are there or not, and memory."""

from __future__ import annotations

from trainvitals.generate.expressions import DEVICE_USERS_ZH, chinese
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import DEVICE_USERS, listed

_DOWN_REASON = listed(
    "trainvitals_device_down_info{instance=%q,device=%q,uuid=%q}",
    "{{ .Labels.reason }}",
    "instance",
    "device",
    "uuid",
    by="reason",
    none="unknown",
)
_SOURCE_REASON = listed(
    "trainvitals_device_source_down_info{instance=%q,vendor=%q}",
    "{{ .Labels.reason }}",
    "instance",
    "vendor",
    by="reason",
    none="unknown",
)
_MISSING = listed(
    "trainvitals_device_missing_info{instance=%q,vendor=%q}",
    "{{ .Labels.pci_bus_id }}",
    "instance",
    "vendor",
    by="pci_bus_id",
    none="no address known",
)
_IS_IDLE = f"trainvitals_device_idle_seconds > {LIMITS.device_idle}"
_IDLE = listed(
    f"trainvitals_device_idle_seconds{{instance=%q}} > {LIMITS.device_idle}",
    "device {{ .Labels.device }}",
    "instance",
    by="device",
)
_IDLE_RANKS = listed(
    f"trainvitals_rank_device_info{{instance=%q}} and on (instance, uuid) ({_IS_IDLE})",
    "rank {{ .Labels.rank }} of run {{ .Labels.run }}",
    "instance",
    none="none",
)
_IDLE_JOBS = listed(
    f"trainvitals_device_slurm_job_info{{instance=%q}} and on (instance, uuid) ({_IS_IDLE})",
    "{{ .Labels.slurm_job_id }} (device {{ .Labels.device }})",
    "instance",
    by="slurm_job_id",
    none="none",
)

NODES: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsDeviceDown",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        expr="""
        max by (instance, device, uuid) (trainvitals_device_up) == 0
        unless on (instance, device, uuid)
        trainvitals_device_down_info{reason="paused"}
        """,
        wait=LIMITS.device_down_for,
        keep=LIMITS.signal_keep,
        summary="Device {{ $labels.device }} on {{ $labels.instance }} does not answer",
        summary_zh="{{ $labels.instance }} 上的设备 {{ $labels.device }} 无响应",
        description="Device {{ $labels.device }} ({{ $labels.uuid }}) does not answer. Reason: "
        + _DOWN_REASON
        + ". It serves "
        + DEVICE_USERS
        + ".",
        description_zh="设备 {{ $labels.device }}（{{ $labels.uuid }}）无响应。原因："
        + chinese(_DOWN_REASON)
        + "。使用者："
        + DEVICE_USERS_ZH
        + "。",
        action=(
            "Take the node out of the job and resume from the last checkpoint without it. On the node, read `dmesg` "
            "(NVIDIA: "
            "the Xid number), reset the device or reboot; replace it if that does not last."
        ),
        action_zh=(
            "把该节点移出作业，从最后一个检查点恢复。在节点上查看 `dmesg`（NVIDIA：Xid 编号），重置设备或重启；"
            "若再次发生则更换。"
        ),
        impact="The rank on it fails or hangs, and the run with it.",
        impact_zh="该设备上的 rank 会失败或挂起，整个训练随之中断。",
        diagnosis=(
            "The reasons: `lost`, it fell off the bus; `reset_required`; `hung`, a call for it does not return; "
            "`blocked`, a container lost its device nodes (often by `systemctl daemon-reload`: restart the container); "
            "`driver`, the driver as a whole does not answer; `missing`, the driver no longer lists it; "
            "`implausible`, it answers with what no device can have, as 0 C and 65535 W; `unknown`, the driver does "
            "not say, in a container often as `blocked`. "
            "`trainvitals_device_down_since_timestamp_seconds` says since when."
        ),
        diagnosis_zh=(
            "原因：`lost`，已从总线上掉线；`reset_required`，需要重置；`hung`，对它的调用没有返回；"
            "`blocked`，容器失去了设备节点（常由 `systemctl daemon-reload` 引起，请重启容器）；`driver`，"
            "整个驱动无响应；`missing`，驱动不再列出它；"
            "`implausible`，它给出任何设备都不可能有的数值（如 0 C 和 65535 W）；"
            "`unknown`，驱动没有说明，在容器中多与 `blocked` 相同。"
            "`trainvitals_device_down_since_timestamp_seconds` 给出开始时间。"
        ),
    ),
    Alert(
        name="TrainvitalsDevicesMissing",
        file="resource",
        category="resource",
        severity="warning",
        gauge="health",
        # Devices that are known and down have an alert of their own, and so has a driver that does not answer.
        expr="""
        max by (instance, vendor) (trainvitals_devices_expected)
          > on (instance, vendor)
        (
          count by (instance, vendor) (trainvitals_device_info)
          or on (instance, vendor)
          max by (instance, vendor) (trainvitals_devices_readable)
        )
        unless on (instance, vendor) trainvitals_device_source_up == 0
        """,
        wait=LIMITS.devices_missing_for,
        keep=LIMITS.signal_keep,
        summary="Node {{ $labels.instance }} has fewer {{ $labels.vendor }} devices than it should",
        summary_zh="节点 {{ $labels.instance }} 的 {{ $labels.vendor }} 设备少于应有数量",
        description=(
            "{{ $value }} {{ $labels.vendor }} devices are expected on {{ $labels.instance }}, and the driver lists "
            "fewer. Missing on the PCI bus: "
        )
        + _MISSING
        + ".",
        description_zh=(
            "{{ $labels.instance }} 上应有 {{ $value }} 个 {{ $labels.vendor }} 设备，但驱动列出的更少。"
            "PCI 总线上缺少的设备："
        )
        + chinese(_MISSING)
        + "。",
        action=(
            "Start no job that counts on all devices of the node. Read `dmesg` and `lspci` for the address; reset or "
            "reboot, and replace the device if that does not last. If the number is right as it is, set "
            "`devices.expected`."
        ),
        action_zh=(
            "不要在该节点上启动需要全部设备的作业。用 `dmesg` 和 `lspci` 查看该地址；重置或重启，若再次发生则更换。"
            "若当前数量本来就正确，请设置 `devices.expected`。"
        ),
        impact="A job that asks for all devices of the node fails to start, or runs on fewer.",
        impact_zh="需要该节点全部设备的作业无法启动，或只能用更少的设备运行。",
        diagnosis=(
            "`trainvitals_devices_expected` against `trainvitals_devices_readable`. A device that the driver does not "
            "list was refused when the driver was loaded, fell off before, or has no driver; without any driver "
            "package all are missing."
        ),
        diagnosis_zh=(
            "比较 `trainvitals_devices_expected` 与 `trainvitals_devices_readable`。驱动没有列出的设备，"
            "可能在加载驱动时被拒绝、此前已掉线，或没有驱动；未安装任何驱动时所有设备都缺失。"
        ),
    ),
    Alert(
        name="TrainvitalsDevicesPaused",
        file="resource",
        category="resource",
        severity="info",
        gauge="health",
        expr='max by (instance, vendor) (trainvitals_device_source_down_info{reason="paused"}) == 1',
        wait=LIMITS.devices_paused_for,
        keep=LIMITS.signal_keep,
        summary="The {{ $labels.vendor }} devices on {{ $labels.instance }} are not watched",
        summary_zh="{{ $labels.instance }} 上的 {{ $labels.vendor }} 设备未被监控",
        description="Somebody paused the reading of the devices, for a reset or a new driver, and it is still paused.",
        description_zh="有人为重置设备或更换驱动暂停了设备读取，至今仍未恢复。",
        action="If the work is done, remove the file that `devices.pause_file` names.",
        action_zh="若工作已完成，请删除 `devices.pause_file` 指定的文件。",
        impact="A device that fails meanwhile is not noticed.",
        impact_zh="这段时间内设备故障不会被发现。",
        diagnosis="The file is `/run/trainvitals-devices.pause` unless the settings say otherwise.",
        diagnosis_zh="未另行配置时，该文件是 `/run/trainvitals-devices.pause`。",
    ),
    Alert(
        name="TrainvitalsDeviceSourceHung",
        file="resource",
        category="resource",
        severity="critical",
        gauge="health",
        expr="""
        max by (instance, vendor) (trainvitals_device_source_up) == 0
        unless on (instance, vendor)
        trainvitals_device_source_down_info{reason="paused"}
        """,
        wait=LIMITS.device_source_for,
        keep=LIMITS.signal_keep,
        summary="The driver of the {{ $labels.vendor }} devices on {{ $labels.instance }} does not answer",
        summary_zh="{{ $labels.instance }} 上 {{ $labels.vendor }} 设备的驱动无响应",
        description=(
            "The process that reads the {{ $labels.vendor }} devices hangs or fails again and again, so their values "
            "are missing. Most often a device or its driver is stuck. Reason: "
        )
        + _SOURCE_REASON
        + ".",
        description_zh=(
            "读取 {{ $labels.vendor }} 设备的进程卡住或反复失败，因此没有这些设备的数据。最常见的原因是设备或驱动卡死。"
            "原因："
        )
        + chinese(_SOURCE_REASON)
        + "。",
        action=(
            "Run the vendor's tool (`nvidia-smi`) on the node: if it hangs too, take the node out of the job and "
            "reboot it. "
            "If it works, read the log of the exporter."
        ),
        action_zh="在该节点运行厂商工具（如 `nvidia-smi`）：若同样卡住，把节点移出作业并重启；若正常，查看导出器日志。",
        impact="A hung driver soon hangs the training; until then its devices are not watched.",
        impact_zh="驱动卡死很快会使训练挂起；在此之前该节点的设备也无人监视。",
        diagnosis=(
            "`trainvitals_device_source_restarts_total` counts the attempts. `dmesg` shows the driver's own complaint."
        ),
        diagnosis_zh="`trainvitals_device_source_restarts_total` 是重试次数。`dmesg` 中有驱动自己的报错。",
    ),
    Alert(
        name="TrainvitalsDevicesIdle",
        file="resource",
        category="resource",
        severity="warning",
        gauge="efficiency",
        # One per node, however many devices idle; the text names them and who has them.
        expr=f"count by (instance) ({_IS_IDLE}) > 0",
        keep=LIMITS.signal_keep,
        summary="Node {{ $labels.instance }}: devices are taken and not used",
        summary_zh="节点 {{ $labels.instance }}：设备被占用但未使用",
        description=(
            "{{ $value }} devices on {{ $labels.instance }} belong to a rank, a job or a process, and did no work for "
            f"{LIMITS.device_idle:words}. Which: "
        )
        + _IDLE
        + ". Ranks on them: "
        + _IDLE_RANKS
        + ". Slurm jobs: "
        + _IDLE_JOBS
        + ".",
        description_zh=(
            "{{ $labels.instance }} 上有 {{ $value }} 个设备属于某个 rank、作业或进程，"
            f"但 {LIMITS.device_idle:zh}内没有工作。设备："
        )
        + chinese(_IDLE)
        + "。其上的 rank："
        + chinese(_IDLE_RANKS)
        + "。Slurm 作业："
        + chinese(_IDLE_JOBS)
        + "。",
        action=(
            "No rank, but a job: it asked for more devices than it uses, or its training has ended: give them back. "
            "Neither: a process of an ended run holds them; `nvidia-smi` names it, end it. A rank: see whether its run "
            "does steps; if it does, it computes elsewhere than it should, and if not, look at its stall first."
        ),
        action_zh=(
            "没有 rank 但有作业：申请的设备多于所用，或训练已结束，请归还。两者都没有：已结束训练的进程仍占用设备，"
            "用 `nvidia-smi` 找到并结束它。有 rank：先看该训练是否在推进；"
            "若在推进，则计算不在该设备上；若没有，先处理停滞。"
        ),
        impact="Device time is paid for and used by nobody, and others may wait for it.",
        impact_zh="设备时间照常计费却无人使用，其他人可能正在排队等待。",
        diagnosis=(
            "`trainvitals_device_idle_seconds` begins at 0 with each look at which kernels ran in 5 % of the time or "
            "more. A device in a collective operation that waits is busy: that is a stall."
        ),
        diagnosis_zh=(
            "只要核函数运行时间占到 5% 以上，`trainvitals_device_idle_seconds` 就从 0 重新计。"
            "在集合通信中等待的设备显示为忙：那属于停滞。"
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
        ) < {LIMITS.memory_available_ratio}
        """,
        wait=LIMITS.memory_for,
        keep=LIMITS.signal_keep,
        summary="Node {{ $labels.instance }} runs out of memory",
        summary_zh="节点 {{ $labels.instance }} 内存即将耗尽",
        description="Only {{ $value | humanizePercentage }} of the memory can still be had without swapping.",
        description_zh="仅剩 {{ $value | humanizePercentage }} 的内存无需换页即可使用。",
        action=(
            "Data first: fewer loader workers, less prefetch, no copy of the data set per worker. Remove what other "
            "processes left in /dev/shm. Save a checkpoint before the kernel kills a rank."
        ),
        action_zh=(
            "先查数据：减少加载进程和预取，避免每个进程各存一份数据集。清理 /dev/shm 中的遗留文件。在内核杀掉 rank "
            "之前保存检查点。"
        ),
        impact="The kernel kills the largest process, which is a training process.",
        impact_zh="内核会杀掉占用内存最多的进程，也就是训练进程。",
        diagnosis=(
            "A slow, steady fall is a leak in the loader or in the training; a jump is an evaluation or a checkpoint."
        ),
        diagnosis_zh="持续缓慢下降，是数据加载或训练中的内存泄漏；突然下降，多为评估或保存检查点。",
    ),
)
