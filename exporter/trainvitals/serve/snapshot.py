"""What a scrape gets: rendered and compressed once per round of the collectors, never once per scrape.

Text format 0.0.4, by prometheus_client: 1,500 series cost it 12 to 20 ms, once per interval and in the thread
of the daemon.  Our own renderer took 5 ms, which is not worth a second implementation of the format: what a scrape
feels is not the length of the rendering but whether it lets others run in between.
"""

from __future__ import annotations

import gzip
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from trainvitals.metrics import FAMILIES

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAILURES = FAMILIES["trainvitals_families_failed_total"]
#: What the text format appends to the name of a family, by type.
_SUFFIXES = {"counter": "_total", "info": "_info"}
#: Level 1 takes a twentieth of the time of level 9 for a text that is 1.2 to 1.7 times as long.
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One answer to a scrape, as bytes."""

    #: Text format 0.0.4.
    text: bytes
    #: The same, compressed.
    gzipped: bytes


class SnapshotStore:
    """Holds the newest snapshot.  Readers take one reference and never wait for the writer."""

    def __init__(self) -> None:
        self._current: Snapshot | None = None
        self._writing = threading.Lock()
        self._failed = 0
        self._complained: set[str] = set()

    @property
    def current(self) -> Snapshot | None:
        """The newest snapshot; None before the first."""
        return self._current

    def publish(self, families: Iterable[Metric]) -> Snapshot:
        """Render ``families`` and make them what scrapes get.

        Families of one name and type are merged; the second of two with one name and different types is refused.
        A family that is refused or cannot be rendered costs itself: it is counted and logged once.
        """
        with self._writing:
            blocks = [*self._blocks(self._merge(families))]
            blocks += self._blocks([self._failures()])
            text = b"".join(blocks)
            snapshot = Snapshot(text, gzip.compress(text, _LEVEL))
            self._current = snapshot
        return snapshot

    def _blocks(self, families: Iterable[Metric]) -> Iterator[bytes]:
        for family in families:
            try:
                block = generate_latest(_Only(_without_creation_times(family)))
            except Exception as error:
                # Whatever a collector put into its family, the others are still good.  The library adds the whole
                # family to the error's arguments: only the first is fit for a log.
                self._fail(family, f"{type(error).__name__}: {str(error.args[0])[:200] if error.args else ''}")
                continue
            yield block
            # Here a scrape that waits for the interpreter lock may run.
            time.sleep(0)

    def _merge(self, families: Iterable[Metric]) -> list[Metric]:
        merged: dict[str, Metric] = {}
        for family in families:
            name = family.name + _SUFFIXES.get(family.type, "")
            first = merged.setdefault(name, family)
            if first is family:
                continue
            if first.type != family.type:
                self._fail(family, f"it is a {family.type} here and a {first.type} in another collector")
                continue
            merged[name] = _union(first, family)
        return list(merged.values())

    def _fail(self, family: Metric, reason: str) -> None:
        self._failed += 1
        if family.name not in self._complained:
            self._complained.add(family.name)
            log.warning("family %s is left out of the scrape: %s", family.name, reason)

    def _failures(self) -> Metric:
        return CounterMetricFamily(_FAILURES.name, _FAILURES.help, value=self._failed)


def _union(first: Metric, second: Metric) -> Metric:
    """Return both in one; of two samples with the same labels the first one stays."""
    union = _empty(first)
    samples = {(sample.name, *sorted(sample.labels.items())): sample for sample in (*second.samples, *first.samples)}
    union.samples = list(samples.values())
    return union


def _without_creation_times(family: Metric) -> Metric:
    """Return ``family`` without its ``_created`` series: they double the counters and nobody asks for them."""
    name = family.name + "_created"
    if all(sample.name != name for sample in family.samples):
        return family
    rest = _empty(family)
    rest.samples = [sample for sample in family.samples if sample.name != name]
    return rest


def _empty(family: Metric) -> Metric:
    return Metric(family.name, family.documentation, family.type)


class _Only(Collector):
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)
