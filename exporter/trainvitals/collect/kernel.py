"""The kernel's log -> families, and the faults of devices in it -> the log of faults."""

from __future__ import annotations

import logging
import re

from trainvitals.collect.base import Collector, Sink
from trainvitals.collect.faults import FaultLog
from trainvitals.collect.moments import Moments
from trainvitals.host.kernel_events import KernelEvent, Parser
from trainvitals.host.kernel_kinds import KINDS
from trainvitals.host.kmsg import KernelLog, Problem
from trainvitals.telemetry import Fault

log = logging.getLogger(__name__)

#: Places of one kind that are kept; at a further one an event has no place.  Users choose the names of some.
_MOST_PLACES = 20
#: Reads of the first round: old events that came bit by bit would look like new ones.
_AT_FIRST = 25
_SWITCH = re.compile(r"(?P<effect>Fatal|Non-fatal)\b(?:, Link (?P<link>\d{1,3})\b)?", re.IGNORECASE)


class KernelCollector(Collector):
    """Shows what the kernel complains of, since the oldest record of its log."""

    name = "kernel"

    def __init__(self, source: KernelLog, faults: FaultLog, moments: Moments | None = None) -> None:
        self._source = source
        self._faults = faults
        self._moments = moments or Moments()
        self._oldest: float | None = None
        self._parser = Parser()
        self._problem: Problem | None = None
        self._counts = dict.fromkeys((kind.name for kind in KINDS), 0)
        self._last: dict[tuple[str, str], float] = {}
        #: Kind, place and time of each last complaint; replaced as a whole, so that any thread may take it.
        self.seen: tuple[tuple[str, str, float], ...] = ()

    def collect(self, sink: Sink) -> None:
        """Read what is new and add what was counted.  A log that cannot be read is no failure, but is told once."""
        for _ in range(_AT_FIRST if self._oldest is None else 1):
            for record in self._source.poll():
                event = self._parser.parse(record.text)
                if event is not None:
                    self._take(event, record.time)
            if not self._source.is_behind:
                break
        self._complain(self._source.problem)
        sink.add("trainvitals_kernel_log_readable", float(self._source.problem is None))
        if self._source.oldest is None:
            return
        if self._oldest is None:
            self._oldest = self._moments.keep(self._source.oldest)
        sink.add("trainvitals_kernel_log_oldest_timestamp_seconds", self._moments.show(self._oldest))
        sink.add("trainvitals_kernel_log_records_lost_total", self._source.lost)
        for kind, count in self._counts.items():
            sink.add("trainvitals_kernel_events_total", count, kind)
        self.seen = tuple((*key, self._moments.show(moment)) for key, moment in self._last.items())
        for kind, place, moment in self.seen:
            sink.add("trainvitals_kernel_event_last_timestamp_seconds", moment, kind, place)

    def stop(self) -> None:
        """Close the log."""
        self._source.close()

    def _take(self, event: KernelEvent, moment: float) -> None:
        if event.kind == "xid":
            self._faults.add(Fault("kernel", event.place, event.code, moment, event.text))
        elif event.kind == "sxid":
            match = _SWITCH.match(event.text)
            effect = match["effect"].lower().replace("-", "") if match else "unknown"
            link = str(int(match["link"])) if match and match["link"] else ""
            self._faults.switch(event.place, event.code, effect, link, moment)
        elif event.kind == "fallen_off_bus":
            self._faults.fallen_off_bus(event.place, moment)
        elif event.kind == "gpu_identity":
            self._faults.identify(event.place, event.text)
        else:
            self._counts[event.kind] += 1
            key = (event.kind, event.place)
            if key not in self._last and sum(kind == event.kind for kind, _ in self._last) >= _MOST_PLACES:
                key = (event.kind, "")
            self._last[key] = self._moments.keep(moment)

    def _complain(self, problem: Problem | None) -> None:
        if problem != self._problem:
            self._problem = problem
            if problem is not None:
                log.warning("the kernel's log cannot be read: %s", problem.fix)
