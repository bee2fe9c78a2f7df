"""Panels about devices and hosts that the dashboards "Run" and "Node" share.

Each function takes ``keep``, which narrows an expression to the devices or nodes that a dashboard is about.
"""

from __future__ import annotations

from collections.abc import Callable

from trainvitals.generate.panels import WELL, Panel, lines, states
from trainvitals.generate.thresholds import DEFAULTS

Keep = Callable[[str], str]

_DEVICE = "{{instance}} {{device}}"
_NONE = ("no devices", "没有设备")


def device_panels(keep: Keep) -> tuple[Panel, ...]:
    """Return what devices do: how busy, how full, how warm, at which power and clocks."""
    return (
        lines(
            ("Utilization", "利用率"),
            (
                "Share of time in which at least one kernel ran; not how busy the device was.",
                "至少有一个内核在运行的时间占比，并不等于设备的忙碌程度。",
            ),
            "percentunit",
            (keep("trainvitals_device_utilization_ratio"), _DEVICE),
            minimum=0.0,
            maximum=1.0,
            empty=_NONE,
        ),
        lines(
            ("Memory", "显存"),
            ("Share of the device memory that is in use.", "已用设备内存的占比。"),
            "percentunit",
            (keep("trainvitals_device_memory_used_bytes / (trainvitals_device_memory_total_bytes > 0)"), _DEVICE),
            thresholds=((None, "green"), (0.95, "red")),
            minimum=0.0,
            maximum=1.0,
            empty=_NONE,
        ),
        lines(
            ("Temperature", "温度"),
            (
                "By sensor. Limits differ between models and sensors, so there is no line for them.",
                "按传感器。不同型号和传感器的限值不同，因此不画阈值线。",
            ),
            "celsius",
            (keep("trainvitals_device_temperature_celsius"), _DEVICE + " {{sensor}}"),
            empty=_NONE,
        ),
        lines(
            ("Power", "功率"),
            (
                "Power draw of each device: at the instant, or as the driver averages it.",
                "每个设备的功率：瞬时值，或驱动给出的平均值。",
            ),
            "watt",
            (keep("trainvitals_device_power_watts"), _DEVICE + " {{kind}}"),
            minimum=0.0,
            empty=_NONE,
        ),
        lines(
            ("Clocks", "时钟频率"),
            ("Clocks by domain; a fall under load is throttling.", "各时钟域频率；负载下降低即为降频。"),
            "hertz",
            (keep("trainvitals_device_clock_hertz"), _DEVICE + " {{clock}}"),
            minimum=0.0,
            empty=_NONE,
        ),
        states(
            ("Devices that answer", "设备响应"),
            ("Green while a device answers, red while it does not.", "绿色：设备有响应；红色：无响应。"),
            "none",
            (keep("trainvitals_device_up"), _DEVICE),
            thresholds=WELL,
            minimum=0.0,
            maximum=1.0,
            decimals=0,
            empty=_NONE,
        ),
    )


_CPU = "rate(trainvitals_host_cpu_seconds_total[$__rate_interval])"
_CPU_BUSY = 'rate(trainvitals_host_cpu_seconds_total{mode!~"idle|iowait"}[$__rate_interval])'


def host_panels(keep: Keep) -> tuple[Panel, ...]:
    """Return what hosts do: processors, memory, file systems, network, disks."""
    return (
        lines(
            ("CPU", "CPU"),
            ("Share of the CPUs that is busy.", "CPU 忙碌时间占比。"),
            "percentunit",
            (keep(f"sum by (instance) ({_CPU_BUSY}) / (sum by (instance) ({_CPU}) > 0)"), "{{instance}}"),
            minimum=0.0,
            maximum=1.0,
        ),
        lines(
            ("Memory available", "可用内存"),
            ("Share of the memory that can be had without swapping.", "不触发换页即可取得的内存占比。"),
            "percentunit",
            (
                keep("trainvitals_host_memory_available_bytes / (trainvitals_host_memory_total_bytes > 0)"),
                "{{instance}}",
            ),
            thresholds=((None, "red"), (DEFAULTS.memory_available_ratio, "green")),
            minimum=0.0,
            maximum=1.0,
        ),
        lines(
            ("File systems, free", "文件系统剩余空间"),
            ("Share of each file system that users can still fill.", "每个文件系统中用户仍可写入的空间占比。"),
            "percentunit",
            (
                keep("trainvitals_host_filesystem_available_bytes / (trainvitals_host_filesystem_size_bytes > 0)"),
                "{{instance}} {{mountpoint}}",
            ),
            thresholds=((None, "red"), (DEFAULTS.filesystem_available_ratio, "green")),
            minimum=0.0,
            maximum=1.0,
        ),
        lines(
            ("Network", "网络"),
            (
                "Bytes received (above) and sent (below) per second, all interfaces together, without RDMA.",
                "每秒接收（上）和发送（下）的字节数，所有网卡合计，不含 RDMA。",
            ),
            "Bps",
            (
                keep("sum by (instance) (rate(trainvitals_network_receive_bytes_total[$__rate_interval]))"),
                "{{instance}} received",
                "{{instance}} 接收",
            ),
            (
                keep("-sum by (instance) (rate(trainvitals_network_transmit_bytes_total[$__rate_interval]))"),
                "{{instance}} sent",
                "{{instance}} 发送",
            ),
            width=12,
        ),
        lines(
            ("Disks", "磁盘"),
            (
                "Bytes read (above) and written (below) per second, all block devices together.",
                "每秒读取（上）和写入（下）的字节数，所有块设备合计。",
            ),
            "Bps",
            (
                keep("sum by (instance) (rate(trainvitals_host_disk_read_bytes_total[$__rate_interval]))"),
                "{{instance}} read",
                "{{instance}} 读",
            ),
            (
                keep("-sum by (instance) (rate(trainvitals_host_disk_written_bytes_total[$__rate_interval]))"),
                "{{instance}} written",
                "{{instance}} 写",
            ),
            width=12,
        ),
    )
