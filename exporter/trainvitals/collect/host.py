"""The node itself -> families."""

from __future__ import annotations

from collections.abc import Callable

from trainvitals.collect.base import Collector, Sink
from trainvitals.host.system import Host


class HostCollector(Collector):
    """Shows CPU, memory, disks, file systems and network of this node."""

    name = "host"

    def __init__(self, host: Host | None = None) -> None:
        self._host = host or Host()

    def collect(self, sink: Sink) -> None:
        """Add all parts; one that fails costs the others nothing and is raised at the end."""
        failure: Exception | None = None
        for add in _PARTS:
            try:
                add(self._host, sink)
            except Exception as error:  # psutil lets through whatever a strange /proc makes of it.
                failure = failure or error
        if failure is not None:
            raise failure


def _cpu(host: Host, sink: Sink) -> None:
    for mode, seconds in host.cpu_seconds().items():
        sink.add("trainvitals_host_cpu_seconds_total", seconds, mode)


def _cpus(host: Host, sink: Sink) -> None:
    sink.add("trainvitals_host_cpus", host.cpus())


def _load(host: Host, sink: Sink) -> None:
    sink.add("trainvitals_host_load1", host.load1())


def _memory(host: Host, sink: Sink) -> None:
    total, available = host.memory()
    sink.add("trainvitals_host_memory_total_bytes", total)
    sink.add("trainvitals_host_memory_available_bytes", available)


def _swap(host: Host, sink: Sink) -> None:
    sink.add("trainvitals_host_swap_used_bytes", host.swap_used())


def _boot(host: Host, sink: Sink) -> None:
    sink.add("trainvitals_host_boot_timestamp_seconds", host.boot_timestamp())


def _filesystems(host: Host, sink: Sink) -> None:
    for filesystem in host.filesystems():
        sink.add("trainvitals_host_filesystem_size_bytes", filesystem.size, filesystem.mountpoint)
        sink.add("trainvitals_host_filesystem_available_bytes", filesystem.available, filesystem.mountpoint)


def _network(host: Host, sink: Sink) -> None:
    for interface, (received, sent) in host.network().items():
        sink.add("trainvitals_host_network_receive_bytes_total", received, interface)
        sink.add("trainvitals_host_network_transmit_bytes_total", sent, interface)


def _disks(host: Host, sink: Sink) -> None:
    disks = host.disks()
    if disks is not None:
        sink.add("trainvitals_host_disk_read_bytes_total", disks[0])
        sink.add("trainvitals_host_disk_written_bytes_total", disks[1])


_PARTS: tuple[Callable[[Host, Sink], None], ...] = (
    _cpu,
    _cpus,
    _load,
    _memory,
    _swap,
    _boot,
    _filesystems,
    _network,
    _disks,
)
