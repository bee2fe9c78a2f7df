"""Dashboard "Node", the host: processes, storage, network, kernel."""

from __future__ import annotations

from trainvitals.generate.panels import FEW_IS_GOOD, NODE, NONE_IS_GOOD, UP, YES_IS_BAD, Column, lines, states, table

_PORT = "{{instance}} {{hca}}/{{port}}"

PROCESSES = (
    lines(
        ("Waiting for CPU, memory, disks", "资源压力"),
        (
            "Share of the time in which some task waited for a resource (pressure stall information).",
            "有任务等待资源的时间占比（PSI）。",
        ),
        "percentunit",
        (
            (
                "sum by (instance, resource)"
                f" (rate(trainvitals_host_pressure_some_seconds_total{{{NODE}}}[$__rate_interval]))"
            ),
            "{{instance}} {{resource}}",
        ),
        width=12,
        minimum=0.0,
        empty=("not told by the kernel", "内核未提供"),
    ),
    lines(
        ("Memory of the training processes", "训练进程内存"),
        ("Memory of each rank, and of its data-loader workers.", "每个 rank 及其数据加载进程的内存。"),
        "bytes",
        (
            f"max by (instance, run, rank) (trainvitals_rank_process_resident_memory_bytes{{{NODE}}})",
            "{{run}} rank {{rank}}",
        ),
        (
            f"max by (instance, run, rank) (trainvitals_rank_loader_resident_memory_bytes{{{NODE}}})",
            "{{run}} rank {{rank}} workers",
            "{{run}} rank {{rank}} 加载进程",
        ),
        width=12,
        minimum=0.0,
        empty=("no rank lives", "没有存活的 rank"),
    ),
)

STORAGE = (
    table(
        ("File systems", "文件系统"),
        (
            "A line for each file system: room, inodes, and whether it answers.",
            "每个文件系统一行：空间、inode 以及是否有响应。",
        ),
        Column(name="Node", name_zh="节点", label="instance"),
        Column(name="Mounted at", name_zh="挂载点", label="mountpoint"),
        Column(
            name="Free",
            name_zh="剩余空间",
            expr=f"max by (instance, mountpoint) (trainvitals_host_filesystem_available_bytes{{{NODE}}})",
            unit="bytes",
        ),
        Column(
            name="Inodes free",
            name_zh="剩余 inode",
            expr="max by (instance, mountpoint) (trainvitals_host_filesystem_files_free"
            f"{{{NODE}}} / (trainvitals_host_filesystem_files{{{NODE}}} > 0))",
            unit="percentunit",
            decimals=0,
            thresholds=((None, "red"), (0.05, "green")),
        ),
        Column(
            name="Stuck",
            name_zh="卡住",
            expr=f"max by (instance, mountpoint) (trainvitals_host_filesystem_stuck{{{NODE}}})",
            states=YES_IS_BAD,
        ),
        Column(
            name="Read-only",
            name_zh="只读",
            expr=f"max by (instance, mountpoint) (trainvitals_host_filesystem_read_only{{{NODE}}})",
            states=((0, 0, "no", "否", "green"), (1, None, "yes", "是", "orange")),
        ),
        Column(
            name="Answers in",
            name_zh="响应用时",
            expr=f"max by (instance, mountpoint) (trainvitals_host_filesystem_probe_duration_seconds{{{NODE}}})",
            unit="s",
        ),
    ),
    lines(
        ("NFS, time for an answer", "NFS 响应时间"),
        ("Mean time from a request to its answer.", "从请求到应答的平均时间。"),
        "s",
        (
            (
                "sum by (instance, mountpoint)"
                f" (rate(trainvitals_host_nfs_response_seconds_total{{{NODE}}}[$__rate_interval]))"
                " / (sum by (instance, mountpoint)"
                f" (rate(trainvitals_host_nfs_operations_total{{{NODE}}}[$__rate_interval])) > 0)"
            ),
            "{{instance}} {{mountpoint}}",
        ),
        width=12,
        minimum=0.0,
        empty=("no NFS, or no requests", "没有 NFS 或没有请求"),
    ),
    lines(
        ("Disks, busy", "磁盘忙碌"),
        ("Share of the time in which a disk had something to do.", "磁盘有任务的时间占比。"),
        "percentunit",
        (
            f"sum by (instance, disk) (rate(trainvitals_host_disk_io_time_seconds_total{{{NODE}}}[$__rate_interval]))",
            "{{instance}} {{disk}}",
        ),
        width=12,
        minimum=0.0,
        maximum=1.0,
    ),
)

NETWORK = (
    states(
        ("RDMA ports", "RDMA 端口"),
        ("Green while a port is active.", "绿色：端口处于 active 状态。"),
        "none",
        (f"min by (instance, hca, port) (trainvitals_infiniband_port_up{{{NODE}}})", _PORT),
        width=12,
        states=UP,
        thresholds=((None, "red"), (1, "green")),
        empty=("no RDMA ports", "没有 RDMA 端口"),
    ),
    states(
        ("Network interfaces", "网卡"),
        ("Green while an interface that is switched on can carry traffic.", "绿色：已启用的网卡可以传输数据。"),
        "none",
        (
            (
                f"min by (instance, interface) (trainvitals_network_up{{{NODE}}})"
                f" and on (instance, interface) trainvitals_network_enabled{{{NODE}}} == 1"
            ),
            "{{instance}} {{interface}}",
        ),
        width=12,
        states=UP,
        thresholds=((None, "red"), (1, "green")),
        empty=("no interface is switched on", "没有启用的网卡"),
    ),
    lines(
        ("RDMA traffic", "RDMA 流量"),
        ("Bytes received (above) and sent (below) per second.", "每秒接收（上）与发送（下）的字节数。"),
        "Bps",
        (
            (
                "sum by (instance, hca, port)"
                f" (rate(trainvitals_infiniband_receive_bytes_total{{{NODE}}}[$__rate_interval]))"
            ),
            _PORT + " received",
            _PORT + " 接收",
        ),
        (
            (
                "-sum by (instance, hca, port)"
                f" (rate(trainvitals_infiniband_transmit_bytes_total{{{NODE}}}[$__rate_interval]))"
            ),
            _PORT + " sent",
            _PORT + " 发送",
        ),
        empty=("no RDMA ports", "没有 RDMA 端口"),
    ),
    lines(
        ("RDMA errors", "RDMA 错误"),
        ("Errors of the ports per minute, by kind.", "每分钟端口错误数，按类型。"),
        "none",
        (
            (
                "60 * sum by (instance, hca, port, kind)"
                f" (rate(trainvitals_infiniband_errors_total{{{NODE}}}[$__rate_interval]))"
            ),
            _PORT + " {{kind}}",
        ),
        minimum=0.0,
        empty=("no RDMA ports", "没有 RDMA 端口"),
    ),
    lines(
        ("Interface errors", "网卡错误"),
        ("Errors and dropped packets per minute, by kind.", "每分钟错误与丢包数，按类型。"),
        "none",
        (
            (
                "60 * sum by (instance, interface, kind)"
                f" (rate(trainvitals_network_errors_total{{{NODE}}}[$__rate_interval]))"
            ),
            "{{instance}} {{interface}} {{kind}}",
        ),
        minimum=0.0,
    ),
)

KERNEL = (
    lines(
        ("Complaints of the kernel", "内核报错"),
        ("Complaints in the kernel's log by kind, in each interval.", "各时间段内核日志中的报错次数，按类型。"),
        "none",
        (
            f"sum by (instance, kind) (increase(trainvitals_kernel_events_total{{{NODE}}}[$__rate_interval]))",
            "{{instance}} {{kind}}",
        ),
        width=12,
        minimum=0.0,
        thresholds=FEW_IS_GOOD,
        empty=("none, or the log cannot be read", "没有报错，或日志无法读取"),
    ),
    table(
        ("Last complaints", "最近报错"),
        ("When and where the kernel last complained.", "内核最近一次报错的时间与位置。"),
        Column(name="Node", name_zh="节点", label="instance"),
        Column(name="Kind", name_zh="类型", label="kind"),
        Column(name="Place", name_zh="位置", label="place"),
        Column(
            name="When",
            name_zh="时间",
            expr=f"1000 * max by (instance, kind, place) (trainvitals_kernel_event_last_timestamp_seconds{{{NODE}}})",
            unit="dateTimeAsIso",
        ),
        width=12,
        height=8,
        empty=("none, or the log cannot be read", "没有报错，或日志无法读取"),
    ),
    lines(
        ("Killed for want of memory", "OOM 终止"),
        ("Processes that the kernel killed, in each interval.", "各时间段被内核终止的进程数。"),
        "none",
        (
            f"sum by (instance) (increase(trainvitals_host_oom_kills_total{{{NODE}}}[$__rate_interval]))",
            "{{instance}}",
        ),
        width=12,
        minimum=0.0,
        thresholds=NONE_IS_GOOD,
    ),
    lines(
        ("Error of the clock", "时钟误差"),
        ("By how much the clock may be wrong.", "时钟可能的误差。"),
        "s",
        (f"max by (instance) (trainvitals_host_clock_max_error_seconds{{{NODE}}})", "{{instance}}"),
        width=12,
        minimum=0.0,
        empty=("not told by the kernel", "内核未提供"),
    ),
)
