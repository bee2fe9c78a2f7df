"""The dashboard "Node": nodes and their devices, links, storage, network and kernel."""

from __future__ import annotations

from trainvitals.generate.dashboard_devices import device_panels, host_panels
from trainvitals.generate.dashboard_fleet_tables import links_down
from trainvitals.generate.dashboard_marks import DEVICES, NODE_ALERTED, NODES
from trainvitals.generate.dashboard_node_devices import FAULTS, STATE, TABLE
from trainvitals.generate.dashboard_node_host import KERNEL, NETWORK, PROCESSES, STORAGE
from trainvitals.generate.panels import EXPORTER, FEW_IS_GOOD, NODE, NONE_IS_GOOD, UP, WELL, Dashboard, Row, stat

_NO_DEVICES = ("no devices", "没有设备")


def _of_devices(expr: str) -> str:
    """Keep the chosen devices: each has a series that says whether it answers."""
    return f'({expr}) and on (instance, device) trainvitals_device_up{{instance=~"$instance",device=~"$device"}}'


def _of_nodes(expr: str) -> str:
    """Keep the chosen nodes."""
    return f"({expr}) and on (instance) trainvitals_build_info{{{NODE}}}"


_REPAIRS = tuple(
    f"trainvitals_device_{name}{{{NODE}}}" for name in ("recovery_needed", "row_remap_pending", "row_remap_failed")
)
#: Only those that are on: `or` keeps one of the series that a device has under the same labels.
_MUST_BE_RESET = (
    f"count by (instance) (count by (instance, device) ({' or '.join(f'{name} > 0' for name in _REPAIRS)}))"
    f" or 0 * max by (instance) ({' or '.join(_REPAIRS)})"
)

HEALTH = Row(
    title="",
    title_zh="",
    panels=(
        stat(
            ("Exporter", "采集器"),
            ("Whether Prometheus can read the exporter of the node.", "Prometheus 能否抓取该节点的采集器。"),
            "none",
            f"max by (instance) (up{{{EXPORTER}}})",
            legend="{{instance}}",
            states=UP,
            thresholds=WELL,
            width=3,
        ),
        stat(
            ("Devices lost", "失联设备"),
            ("Devices that should be there and do not answer.", "应当存在但没有响应的设备数。"),
            "none",
            f"sum by (instance) (clamp_min(trainvitals_devices_expected{{{NODE}}} - trainvitals_devices_readable, 0))",
            legend="{{instance}}",
            thresholds=NONE_IS_GOOD,
            decimals=0,
            width=3,
            empty=_NO_DEVICES,
        ),
        stat(
            ("Must be reset", "需要复位"),
            (
                "Devices for which the driver asks for an action, or that wait for a reset to repair memory.",
                "驱动要求处理、或等待复位以修复显存的设备数。",
            ),
            "none",
            _MUST_BE_RESET,
            legend="{{instance}}",
            thresholds=NONE_IS_GOOD,
            decimals=0,
            width=3,
            empty=("not told by the driver", "驱动未提供"),
        ),
        stat(
            ("Degrees left", "降频余量"),
            ("Degrees until the first device slows down.", "距最先降频的设备还有多少度。"),
            "celsius",
            f"min by (instance) (trainvitals_device_temperature_margin_celsius{{{NODE}}})",
            legend="{{instance}}",
            thresholds=((None, "red"), (0.1, "orange"), (5, "green")),
            decimals=0,
            width=3,
            empty=("no margin told", "未提供余量"),
        ),
        stat(
            ("Links down", "断开的链路"),
            (
                "Links between devices, RDMA ports and network interfaces that are switched on and carry nothing.",
                "设备间链路、RDMA 端口和已启用网卡中断开的数量。",
            ),
            "none",
            links_down(NODE),
            legend="{{instance}}",
            thresholds=FEW_IS_GOOD,
            decimals=0,
            width=3,
        ),
        stat(
            ("File systems in trouble", "异常文件系统"),
            (
                "File systems that are stuck, or that became read-only in the chosen time.",
                "卡住的文件系统，以及所选时间内变为只读的文件系统数。",
            ),
            "none",
            # Many a share is mounted read-only on purpose.
            f"sum by (instance) (trainvitals_host_filesystem_stuck{{{NODE}}} > 0"
            f" or trainvitals_host_filesystem_read_only{{{NODE}}}"
            f" > min_over_time(trainvitals_host_filesystem_read_only{{{NODE}}}[$__range]))"
            f" or 0 * max by (instance) (trainvitals_build_info{{{NODE}}})",
            legend="{{instance}}",
            thresholds=FEW_IS_GOOD,
            decimals=0,
            width=3,
        ),
        stat(
            ("Killed for memory", "OOM 终止"),
            (
                "Processes that the kernel killed for want of memory, in the chosen time.",
                "所选时间内因内存不足被内核终止的进程数。",
            ),
            "none",
            f"sum by (instance) (increase(trainvitals_host_oom_kills_total{{{NODE}}}[$__range]))",
            legend="{{instance}}",
            thresholds=NONE_IS_GOOD,
            decimals=0,
            width=3,
        ),
        stat(
            ("Clock", "时钟同步"),
            ("1 while a time service vouches for the clock.", "有时间服务校准时钟时为 1。"),
            "none",
            f"min by (instance) (trainvitals_host_clock_synchronized{{{NODE}}})",
            legend="{{instance}}",
            states=((0, 0, "adrift", "未同步", "orange"), (1, 1, "in step", "已同步", "green")),
            thresholds=((None, "orange"), (1, "green")),
            width=3,
            empty=("cannot be read", "无法读取"),
        ),
    ),
)

NODE_AND_DEVICES = Dashboard(
    name="node",
    title="Node and devices",
    title_zh="节点与设备",
    description="Nodes and their devices: health first, then state, load, faults, links, storage, network, kernel.",
    description_zh="节点及其设备：先看健康，再看状态、负载、故障、链路、存储、网络和内核。",
    rows=(
        HEALTH,
        Row(title="Devices", title_zh="设备", panels=(TABLE, *STATE)),
        Row(title="Load of the devices", title_zh="设备负载", panels=device_panels(_of_devices)[:-1]),
        Row(title="Faults and links of the devices", title_zh="设备故障与链路", panels=FAULTS, closed=True),
        Row(title="Host", title_zh="主机", panels=(*host_panels(_of_nodes), *PROCESSES), closed=True),
        Row(title="Storage", title_zh="存储", panels=STORAGE, closed=True),
        Row(title="Network", title_zh="网络", panels=NETWORK, closed=True),
        Row(title="Kernel", title_zh="内核", panels=KERNEL, closed=True),
    ),
    variables=(NODES, DEVICES),
    annotations=(NODE_ALERTED,),
)
