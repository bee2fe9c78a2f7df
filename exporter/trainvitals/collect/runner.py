"""Runs the collectors side by side, and keeps one from hurting another."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.metrics_core import Metric

from trainvitals.collect.base import Collector, NoData, Sink, Tally

log = logging.getLogger(__name__)


class _Worker:
    """Runs one collector in a thread of its own.  One that hangs is left alone and never started twice."""

    def __init__(self, collector: Collector, make_sink: Callable[[str], Sink]) -> None:
        self.name = collector.name
        self._collector = collector
        self._make_sink = make_sink
        self._go = threading.Event()
        self._done = threading.Event()
        self._done.set()
        self._stopped = False
        self.result: tuple[list[Metric], bool] = ([], False)
        self.duration = 0.0
        self._last_error = ""
        self._thread = threading.Thread(target=self._loop, name=f"collect-{self.name}", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._collector.start()

    def start(self) -> bool:
        """Begin a round; False when the one before is still going on."""
        if not self._done.is_set():
            return False
        self._done.clear()
        self._go.set()
        return True

    def wait(self, deadline: float) -> bool:
        return self._done.wait(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        self._stopped = True
        self._go.set()
        self._thread.join(timeout=1.0)
        self._collector.stop()

    def _loop(self) -> None:
        while True:
            self._go.wait()
            self._go.clear()
            if self._stopped:
                return
            begun = time.monotonic()
            sink = self._make_sink(self.name)
            try:
                self._collector.collect(sink)
                success = True
            except NoData:
                success = True
            except BaseException as error:
                # A native library may raise anything; the thread must live to try again.
                success = False
                self._complain(error)
            # What was added before a failure is kept: it was read.
            self.result = (sink.families(), success)
            self.duration = time.monotonic() - begun
            self._done.set()

    def _complain(self, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._last_error:
            self._last_error = text
            log.warning("collector %s failed: %s", self.name, text)


class Runner:
    """Runs all collectors side by side and gathers what came within the time limit.

    ``limit`` is the cap on series per collector, ``timeout`` in seconds.
    """

    def __init__(self, collectors: Iterable[Collector], *, timeout: float, limit: int) -> None:
        self._timeout = timeout
        self._limit = limit
        self.tally = Tally()
        self._workers = [_Worker(collector, self._sink) for collector in collectors]

    def start(self) -> None:
        """Start what the collectors own."""
        for worker in self._workers:
            worker.begin()

    def _sink(self, collector: str) -> Sink:
        return Sink(self.tally, limit=self._limit, collector=collector)

    def run(self, info: Mapping[str, tuple[object, ...]], now: float) -> list[Metric]:
        """Return the families of one round, those about the exporter itself last.

        ``info`` maps info families to their label values; ``now`` is the wall time of the snapshot.
        """
        deadline = time.monotonic() + self._timeout
        started = [worker for worker in self._workers if worker.start()]
        finished = [worker for worker in started if worker.wait(deadline)]
        families: list[Metric] = []
        # What is counted must be shown, however low the cap: a few series per collector and family.
        sink = Sink(self.tally, limit=10_000, collector="exporter")
        for worker in self._workers:
            found, success = worker.result if worker in finished else ([], False)
            families += found
            sink.add("trainvitals_collector_success", float(success), worker.name)
            if worker in finished:
                sink.add("trainvitals_collector_duration_seconds", worker.duration, worker.name)
        for name, labels in info.items():
            sink.add(name, 1.0, *labels)
        sink.add("trainvitals_snapshot_timestamp_seconds", now)
        for family, count in sorted(self.tally.rejected.items()):
            sink.add("trainvitals_values_rejected_total", count, family)
        sink.add("trainvitals_labels_cleaned_total", self.tally.cleaned)
        for worker in self._workers:
            sink.add("trainvitals_series_dropped_total", self.tally.dropped.get(worker.name, 0), worker.name)
        return families + sink.families()

    def stop(self) -> None:
        """Stop the threads and the collectors; a thread that hangs is a daemon and dies with the process."""
        for worker in self._workers:
            worker.stop()
