"""Dashboard "Run", what it runs on: devices and hosts."""

from __future__ import annotations

from trainvitals.generate.panels import RUN, Row, lines
from trainvitals.generate.thresholds import DEFAULTS

_NODE_OF_RUN = f"trainvitals_run_info{{{RUN}}}"


def _on_nodes(expr: str) -> str:
    """Keep series of the nodes that the run has ranks on."""
    return f"({expr}) and on (instance) {_NODE_OF_RUN}"


def _of_devices(expr: str) -> str:
    """Keep devices on the nodes of the run, and those that its ranks use, read by whichever exporter."""
    return f'{_on_nodes(expr)} or ({expr}) and on (uuid) trainvitals_rank_info{{{RUN},uuid!=""}}'


_DEVICE = "{{instance}} {{device}}"
DEVICES = Row(
    title="Devices of the run's nodes",
    panels=(
        lines(
            "Utilization",
            "Share of time in which at least one kernel ran; not how busy the device was.",
            "percentunit",
            (_of_devices("trainvitals_device_utilization_ratio"), _DEVICE),
            minimum=0.0,
            maximum=1.0,
            empty="no devices",
        ),
        lines(
            "Memory",
            "Share of the device memory that is in use.",
            "percentunit",
            (
                _of_devices("trainvitals_device_memory_used_bytes / (trainvitals_device_memory_total_bytes > 0)"),
                _DEVICE,
            ),
            thresholds=((None, "green"), (0.95, "red")),
            minimum=0.0,
            maximum=1.0,
            empty="no devices",
        ),
        lines(
            "Temperature",
            "By sensor. Limits differ between models and sensors, so there is no line for them.",
            "celsius",
            (_of_devices("trainvitals_device_temperature_celsius"), _DEVICE + " {{sensor}}"),
            empty="no devices",
        ),
        lines(
            "Power",
            "Power draw of each device: at the instant, or as the driver averages it.",
            "watt",
            (_of_devices("trainvitals_device_power_watts"), _DEVICE + " {{kind}}"),
            minimum=0.0,
            empty="no devices",
        ),
        lines(
            "Clocks",
            "Clocks by domain; a fall under load is throttling.",
            "hertz",
            (_of_devices("trainvitals_device_clock_hertz"), _DEVICE + " {{clock}}"),
            minimum=0.0,
            empty="no devices",
        ),
        lines(
            "Devices that answer",
            "1 for each device that answers, else 0.",
            "none",
            (_of_devices("trainvitals_device_up"), _DEVICE),
            thresholds=((None, "red"), (1, "green")),
            minimum=0.0,
            maximum=1.0,
            decimals=0,
            empty="no devices",
        ),
    ),
)

_CPU = "rate(trainvitals_host_cpu_seconds_total[$__rate_interval])"
_CPU_BUSY = 'rate(trainvitals_host_cpu_seconds_total{mode!~"idle|iowait"}[$__rate_interval])'

HOST = Row(
    title="The run's nodes",
    panels=(
        lines(
            "CPU",
            "Share of the CPUs that is busy.",
            "percentunit",
            (
                _on_nodes(f"sum by (instance) ({_CPU_BUSY}) / (sum by (instance) ({_CPU}) > 0)"),
                "{{instance}}",
            ),
            minimum=0.0,
            maximum=1.0,
        ),
        lines(
            "Memory available",
            "Share of the memory that can be had without swapping.",
            "percentunit",
            (
                _on_nodes("trainvitals_host_memory_available_bytes / (trainvitals_host_memory_total_bytes > 0)"),
                "{{instance}}",
            ),
            thresholds=((None, "red"), (DEFAULTS.memory_available_ratio, "green")),
            minimum=0.0,
            maximum=1.0,
        ),
        lines(
            "File systems, free",
            "Share of each file system that users can still fill.",
            "percentunit",
            (
                _on_nodes("trainvitals_host_filesystem_available_bytes / (trainvitals_host_filesystem_size_bytes > 0)"),
                "{{instance}} {{mountpoint}}",
            ),
            thresholds=((None, "red"), (DEFAULTS.filesystem_available_ratio, "green")),
            minimum=0.0,
            maximum=1.0,
        ),
        lines(
            "Network",
            "Bytes received (above) and sent (below) per second, all interfaces together, without RDMA.",
            "Bps",
            (
                _on_nodes("sum by (instance) (rate(trainvitals_network_receive_bytes_total[$__rate_interval]))"),
                "{{instance}} received",
            ),
            (
                _on_nodes("-sum by (instance) (rate(trainvitals_network_transmit_bytes_total[$__rate_interval]))"),
                "{{instance}} sent",
            ),
            width=12,
        ),
        lines(
            "Disks",
            "Bytes read (above) and written (below) per second, all block devices together.",
            "Bps",
            (
                _on_nodes("sum by (instance) (rate(trainvitals_host_disk_read_bytes_total[$__rate_interval]))"),
                "{{instance}} read",
            ),
            (
                _on_nodes("-sum by (instance) (rate(trainvitals_host_disk_written_bytes_total[$__rate_interval]))"),
                "{{instance}} written",
            ),
            width=12,
        ),
    ),
)
