"""What the node, or the container of the exporter, runs short of -> families.  Parts of the collector "host"."""

from __future__ import annotations

from collections.abc import Callable

from trainvitals.collect.base import Sink
from trainvitals.host import files, timesync
from trainvitals.host.limits import Limits
from trainvitals.host.pressure import Pressure
from trainvitals.host.throttle import CpuThrottle


class Shortages:
    """Pressure, throttling, limits of a container, and the clock.  Each of ``parts`` adds its own series."""

    def __init__(
        self,
        pressure: Pressure | None = None,
        throttle: CpuThrottle | None = None,
        limits: Limits | None = None,
        clock: Callable[[], timesync.Clock] = timesync.read,
    ) -> None:
        self._pressure = pressure or Pressure()
        self._throttle = throttle or CpuThrottle()
        self._limits = limits or Limits()
        self._clock = clock
        self.parts: tuple[Callable[[Sink], None], ...] = (
            self._add_stalls,
            self._add_events,
            self._add_throttling,
            self._add_limits,
            self._add_clock,
        )

    def _add_stalls(self, sink: Sink) -> None:
        for resource, stall in self._pressure.stalls().items():
            sink.add("trainvitals_host_pressure_some_seconds_total", stall.some, resource)
            sink.add("trainvitals_host_pressure_full_seconds_total", stall.full, resource)

    def _add_events(self, sink: Sink) -> None:
        shortage = self._pressure.shortage()
        sink.add("trainvitals_host_oom_kills_total", shortage.oom_kills)
        sink.add("trainvitals_host_major_page_faults_total", shortage.major_faults)

    def _add_throttling(self, sink: Sink) -> None:
        for scope, throttling in self._throttle.read().items():
            sink.add("trainvitals_host_cpu_throttles_total", throttling.events, scope)
            sink.add("trainvitals_host_cpu_throttled_seconds_total", throttling.seconds, scope)

    def _add_limits(self, sink: Sink) -> None:
        usage = self._limits.of_container()
        sink.add("trainvitals_container_memory_limit_bytes", usage.memory_limit)
        sink.add("trainvitals_container_memory_used_bytes", usage.memory_used)
        sink.add("trainvitals_container_oom_kills_total", usage.oom_kills)
        sink.add("trainvitals_container_cpus", usage.cpus)
        sink.add("trainvitals_container_cpu_throttled_seconds_total", usage.throttled_seconds)

    def _add_clock(self, sink: Sink) -> None:
        try:
            clock = self._clock()
        except OSError as error:
            # A container may be forbidden to ask.
            if files.is_absent(error):
                return
            raise
        sink.add("trainvitals_host_clock_synchronized", float(clock.synchronized))
        sink.add("trainvitals_host_clock_offset_seconds", clock.offset)
        sink.add("trainvitals_host_clock_max_error_seconds", clock.max_error)
