"""The node itself -> families."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from trainvitals.collect.base import Collector, Sink
from trainvitals.collect.shortages import Shortages
from trainvitals.host.system import Host


class HostCollector(Collector):
    """Shows CPU and memory of this node, and what it runs short of."""

    name = "host"

    def __init__(self, host: Host | None = None, shortages: Shortages | None = None) -> None:
        host = host or Host()
        own = [functools.partial(part, host) for part in _PARTS]
        self._parts: Sequence[Callable[[Sink], None]] = (*own, *(shortages or Shortages()).parts)

    def collect(self, sink: Sink) -> None:
        """Add all parts; one that fails costs the others nothing and is raised at the end."""
        failure: Exception | None = None
        for add in self._parts:
            try:
                add(sink)
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


_PARTS: tuple[Callable[[Host, Sink], None], ...] = (
    _cpu,
    _cpus,
    _load,
    _memory,
    _swap,
    _boot,
)
