"""Alerts of the category resource about what a node or a job runs short of: memory, files, cooling."""

from __future__ import annotations

from trainvitals.generate.expressions import chinese
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import ON_RANK, listed

_RANKS_HERE = listed(
    "trainvitals_rank_process_resident_memory_bytes{instance=%q}",
    "rank {{ .Labels.rank }} of run {{ .Labels.run }} ({{ .Value | humanize1024 }}B)",
    "instance",
    none="none known",
)
_OPEN_FILES = listed(
    f"trainvitals_rank_process_descriptors_ratio{{run=%q}} > {LIMITS.descriptors_ratio}",
    ON_RANK + ": {{ .Value | humanizePercentage }}",
)
_KILLED = listed(
    f"increase(trainvitals_rank_cgroup_oom_kills_total{{instance=%q}}[{LIMITS.fault_window:duration}]) > 0",
    "rank {{ .Labels.rank }} of run {{ .Labels.run }}",
    "instance",
    none="none",
)

HOST: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsOomKill",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"max by (instance) (increase(trainvitals_host_oom_kills_total[{LIMITS.fault_window:duration}])) > 0",
        summary="Node {{ $labels.instance }}: the kernel killed a process for want of memory",
        summary_zh="节点 {{ $labels.instance }}：内核因内存不足杀死了进程",
        description=(
            f'{{{{ $value | printf "%.0f" }}}} or more in the last {LIMITS.fault_window:words}. '
            f"Ranks whose own limit was met: {_KILLED}."
        ),
        description_zh=(
            f'最近 {LIMITS.fault_window:zh}内 {{{{ $value | printf "%.0f" }}}} 次或更多。'
            f"触及自身内存上限的 rank：{chinese(_KILLED)}。"
        ),
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
        diagnosis=(
            "A kill in a container or a job counts too: `trainvitals_rank_cgroup_oom_kills_total` says whose limit "
            "it was."
        ),
        diagnosis_zh="容器或作业内的也计入：`trainvitals_rank_cgroup_oom_kills_total` 说明触及的是谁的上限。",
    ),
    Alert(
        name="TrainvitalsMemoryPressure",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="efficiency",
        expr=f"""
        max by (instance) (rate(trainvitals_host_pressure_full_seconds_total{{resource="memory"}}[5m]))
          > {LIMITS.memory_pressure_ratio}
        """,
        wait=LIMITS.memory_pressure_for,
        keep=LIMITS.signal_keep,
        summary="Node {{ $labels.instance }} stands still for want of memory",
        summary_zh="节点 {{ $labels.instance }} 因内存不足而停顿",
        description=(
            "In {{ $value | humanizePercentage }} of the last 5 minutes every process that could have run waited for "
            f"memory. Ranks here: {_RANKS_HERE}."
        ),
        description_zh=(
            "最近 5 分钟内有 {{ $value | humanizePercentage }} 的时间，所有可运行的进程都在等待内存。"
            f"该节点上的 rank：{chinese(_RANKS_HERE)}。"
        ),
        action=(
            "Data first: fewer loader workers, less prefetch, no copy of the data set per worker. Remove what ended "
            "processes left in /dev/shm. Save a checkpoint before the kernel kills a rank."
        ),
        action_zh=(
            "先查数据：减少加载进程和预取，避免每个进程各存一份数据集。清理已结束进程留在 /dev/shm 中的文件。"
            "在内核杀掉 rank 之前保存检查点。"
        ),
        impact="Steps are slower on this node, and all ranks wait for it; soon the kernel kills a process.",
        impact_zh="该节点的训练步变慢，所有 rank 都要等它；随后内核会杀死进程。",
        diagnosis=(
            "The kernel's pressure information (/proc/pressure/memory, line full). Memory that is free by the numbers "
            "can still be short where one NUMA node or one control group has none left."
        ),
        diagnosis_zh=(
            "来自内核的压力信息（/proc/pressure/memory 的 full 行）。即使数字上仍有空闲内存，"
            "某个 NUMA 节点或控制组也可能已经用尽。"
        ),
    ),
    Alert(
        name="TrainvitalsSwapGrows",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="efficiency",
        expr=f"""
        max by (instance) (
          trainvitals_host_swap_used_bytes - trainvitals_host_swap_used_bytes offset {LIMITS.swap_window:duration}
        ) > {LIMITS.swap_growth}
        and on (instance)
        trainvitals_rank_up == 1
        """,
        wait=LIMITS.memory_for,
        keep=LIMITS.signal_keep,
        summary="Node {{ $labels.instance }} swaps while a training runs on it",
        summary_zh="节点 {{ $labels.instance }} 在训练期间换页",
        description=(
            f"{{{{ $value | humanize1024 }}}}B more are swapped out than {LIMITS.swap_window:words} ago. "
            f"Ranks here: {_RANKS_HERE}."
        ),
        description_zh=(
            f"与 {LIMITS.swap_window:zh}前相比，换出的内存增加了 {{{{ $value | humanize1024 }}}}B。"
            f"该节点上的 rank：{chinese(_RANKS_HERE)}。"
        ),
        action=(
            "Fewer loader workers, less prefetch; move other programs away from the node. Nodes for training are "
            "better without swap: what is swapped out comes back slower than a checkpoint."
        ),
        action_zh=(
            "减少加载进程和预取；把其他程序移出该节点。训练节点最好不开启 swap：换出的内存读回来比恢复检查点还慢。"
        ),
        impact="Parts of a training that come back from a disk make steps slow, on all ranks.",
        impact_zh="训练的内存要从磁盘读回，使所有 rank 的训练步变慢。",
        diagnosis=(
            "`trainvitals_rank_process_major_page_faults_total` rises where a rank waits for its pages; it also counts "
            "data sets that are mapped into memory."
        ),
        diagnosis_zh=(
            "`trainvitals_rank_process_major_page_faults_total` 上升，说明该 rank 在等待页面；"
            "映射到内存的数据集也计入其中。"
        ),
    ),
    Alert(
        name="TrainvitalsRankMemoryLimit",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        # Files that are read often count as used, and the kernel gives them back: so look at the processes too.
        expr=f"""
        max by (instance, run) (
          trainvitals_rank_cgroup_memory_used_bytes / (trainvitals_rank_cgroup_memory_limit_bytes > 0)
        ) > {LIMITS.cgroup_memory_ratio}
        and on (instance, run)
        sum by (instance, run) (
          trainvitals_rank_process_resident_memory_bytes + trainvitals_rank_loader_resident_memory_bytes
        ) > 0.5 * max by (instance, run) (trainvitals_rank_cgroup_memory_limit_bytes)
        """,
        wait=LIMITS.cgroup_memory_for,
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: almost all memory of its job on {{ $labels.instance }} is used",
        summary_zh="训练 {{ $labels.run }}：其作业在 {{ $labels.instance }} 上的内存即将用尽",
        description="{{ $value | humanizePercentage }} of the memory that the job may use there is in use.",
        description_zh="该作业在此处可用的内存已使用 {{ $value | humanizePercentage }}。",
        action=(
            "Save a checkpoint. Then fewer loader workers, less prefetch, no copy of the data set per worker; or a "
            "higher limit for the job (Slurm: --mem; Kubernetes: resources.limits.memory)."
        ),
        action_zh=(
            "先保存检查点。然后减少加载进程和预取，避免每个进程各存一份数据集；或提高作业的内存上限"
            "（Slurm：--mem；Kubernetes：resources.limits.memory）。"
        ),
        impact="At the limit the kernel kills a process of the job, which ends the run.",
        impact_zh="达到上限时，内核会杀死该作业的一个进程，训练随之终止。",
        diagnosis=(
            "`trainvitals_rank_cgroup_memory_used_bytes` against its limit. /dev/shm of the job counts. A slow, steady "
            "rise is a leak."
        ),
        diagnosis_zh=(
            "比较 `trainvitals_rank_cgroup_memory_used_bytes` 与其上限。作业的 /dev/shm 也计入。"
            "持续缓慢上升是内存泄漏。"
        ),
    ),
    Alert(
        name="TrainvitalsDescriptorsLow",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"max by (run) (trainvitals_rank_process_descriptors_ratio) > {LIMITS.descriptors_ratio}",
        wait=LIMITS.descriptors_for,
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: a rank can hardly open another file",
        summary_zh="训练 {{ $labels.run }}：有 rank 的文件描述符即将用尽",
        description=f"Of the files that a process may open: {_OPEN_FILES}.",
        description_zh=f"占进程可打开文件数的比例：{chinese(_OPEN_FILES)}。",
        action=(
            "Raise the limit before the next start (`ulimit -n`, LimitNOFILE, Slurm: PropagateResourceLimits). In "
            "PyTorch, `torch.multiprocessing.set_sharing_strategy('file_system')` needs fewer descriptors."
        ),
        action_zh=(
            "下次启动前提高上限（`ulimit -n`、LimitNOFILE，Slurm：PropagateResourceLimits）。在 PyTorch 中，"
            "`torch.multiprocessing.set_sharing_strategy('file_system')` 需要的描述符更少。"
        ),
        impact='The run ends with "too many open files", mostly in the data loader or at a checkpoint.',
        impact_zh="训练会以 too many open files 终止，多发生在数据加载或保存检查点时。",
        diagnosis="`ls -l /proc/PID/fd` on the node shows what is open; a number that only rises is a leak.",
        diagnosis_zh="在节点上用 `ls -l /proc/PID/fd` 查看打开了什么；只增不减就是泄漏。",
    ),
    Alert(
        name="TrainvitalsOrphanedWorkers",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        max by (instance) (
          trainvitals_orphaned_loader_resident_memory_bytes / (trainvitals_host_memory_total_bytes > 0)
        ) > {LIMITS.orphans_ratio}
        """,
        wait=LIMITS.orphans_for,
        keep=LIMITS.signal_keep,
        summary="Node {{ $labels.instance }}: loader workers of an ended training hold memory",
        summary_zh="节点 {{ $labels.instance }}：已结束训练的数据加载进程仍占用内存",
        description="They hold {{ $value | humanizePercentage }} of the memory of the node.",
        description_zh="它们占用该节点内存的 {{ $value | humanizePercentage }}。",
        action=(
            "End them: `ps -eo pid,ppid,etime,rss,comm` shows them with the parent 1 or that of the service manager."
        ),
        action_zh="结束它们：用 `ps -eo pid,ppid,etime,rss,comm` 可以看到，其父进程是 1 或服务管理器。",
        impact="The next run has less memory, and perhaps less of /dev/shm and of its devices.",
        impact_zh="下一个训练可用的内存变少，/dev/shm 和设备也可能被占用。",
        diagnosis="`trainvitals_orphaned_loader_workers` counts them.",
        diagnosis_zh="`trainvitals_orphaned_loader_workers` 是它们的数量。",
    ),
    Alert(
        name="TrainvitalsCpuSlowed",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="efficiency",
        expr=f"""
        max by (instance) (rate(trainvitals_host_cpu_throttled_seconds_total{{scope="package"}}[5m]))
          > {LIMITS.cpu_slowed_ratio}
        """,
        wait=LIMITS.cpu_slowed_for,
        keep=LIMITS.signal_keep,
        summary="The CPUs of node {{ $labels.instance }} are slowed down by heat",
        summary_zh="节点 {{ $labels.instance }} 的 CPU 因过热被降频",
        description=(
            "Its CPU packages were held down for {{ $value | humanizePercentage }} of the last 5 minutes, summed."
        ),
        description_zh="最近 5 分钟内，其 CPU 被降频的时间合计占 {{ $value | humanizePercentage }}。",
        action="Look at fans and air flow of the node, at the heat sinks, and at the temperature of the room.",
        action_zh="检查该节点的风扇和风道、散热片以及机房温度。",
        impact="Data loading and the launch of kernels are slower; all ranks wait for this node.",
        impact_zh="数据加载和核函数下发变慢；所有 rank 都要等该节点。",
        diagnosis="The kernel counts this for Intel CPUs only.",
        diagnosis_zh="内核只对 Intel CPU 给出此统计。",
    ),
)
