"""The contract of a collector, and the sink that checks what it adds.

A collector has three outcomes: it adds families to a :class:`Sink`, it raises :class:`NoData` ("nothing here", not
an error), or it raises anything else, which costs its own series and nobody else's.
"""

from __future__ import annotations

import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from trainvitals.devices.blanks import ALL_ONES, BLANKS
from trainvitals.metrics import FAMILIES, STEP_BUCKETS

LONGEST_LABEL = 256
#: Control characters, those that turn the direction of a text or are invisible, and what is no character at all.
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]+"
)
#: Nothing counts to these; a size in bytes may well be 2**47.
_IMPOSSIBLE = ALL_ONES | {float(0x7FFFFFF0)}
_DEVICE = "trainvitals_device_"
_YES_OR_NO = (0.0, 1.0)
#: Bounds by the end of the name: "not supported" survives a conversion of units only as a number that nothing can
#: reach.  A generation of PCIe and a number of lanes leave room for what is not built yet.
_BOUNDS = {
    "_celsius": (-100.0, 250.0),
    "_watts": (0.0, 1e5),
    "_hertz": (0.0, 3e10),
    "_bytes_per_second": (0.0, 1e15),
    "_pcie_generation": (1.0, 10.0),
    "_pcie_max_generation": (1.0, 10.0),
    "_pcie_width": (1.0, 64.0),
    "_pcie_max_width": (1.0, 64.0),
    "_performance_state": (0.0, 15.0),
    "_remapped_rows": (0.0, 1e6),
    "_remap_banks": (0.0, 1e6),
    "_retired_pages": (0.0, 1e6),
    "_pending": _YES_OR_NO,
    "_ecc_enabled": _YES_OR_NO,
    "_remap_failed": _YES_OR_NO,
    "_threshold_exceeded": _YES_OR_NO,
    "_recovery_needed": _YES_OR_NO,
    "_clock_limited": _YES_OR_NO,
}
#: Families in which NaN and infinity are what was measured.
_MAY_BE_NONFINITE = frozenset(
    {
        "trainvitals_loss",
        "trainvitals_grad_norm",
        "trainvitals_value",
        "trainvitals_evaluation",
        "trainvitals_learning_rate",
    }
)


class NoData(Exception):  # noqa: N818  It is no error.
    """There is nothing of this kind on this machine."""


class Collector(ABC):
    """A source of families.  ``name`` is the value of the label ``collector``.

    ``start`` and ``stop`` are for those that own a thread, a process or a descriptor; the others inherit them.
    """

    name: str

    def start(self) -> None:
        """Begin to read; called once, before the first round."""
        return

    @abstractmethod
    def collect(self, sink: Sink) -> None:
        """Add what there is to ``sink``."""

    def stop(self) -> None:
        """End, and leave no thread, process or descriptor behind; called once, after the last round."""
        return


class Tally:
    """Counts what was rejected or cleaned, over the life of the exporter."""

    def __init__(self) -> None:
        self.rejected: dict[str, int] = {}
        self.cleaned = 0
        self.dropped: dict[str, int] = {}


class Sink:
    """Takes samples, checks them, and builds families.  Not thread-safe: one per collector and round."""

    def __init__(self, tally: Tally, *, limit: int, collector: str) -> None:
        self._tally = tally
        self._room = limit
        self._collector = collector
        self._families: dict[str, Metric] = {}
        self._seen: set[tuple[str, ...]] = set()

    def add(self, name: str, value: float | None, *labels: object) -> None:
        """Add one sample of a gauge or a counter; None adds nothing.

        An impossible value (a ratio above 1, an all-ones integer, a NaN that was not measured) is dropped and
        counted, and so is a second sample with the same labels.
        """
        if value is None:
            return
        try:
            number = float(value)
        except OverflowError:  # An integer from a file can have any size.
            self._reject(name)
            return
        if not _possible(name, number):
            self._reject(name)
            return
        texts = self._labels(name, labels)
        if texts is not None:
            self._family(name).add_metric(texts, number)  # type: ignore[attr-defined]

    def _reject(self, name: str) -> None:
        self._tally.rejected[name] = self._tally.rejected.get(name, 0) + 1

    def histogram(self, name: str, counts: Sequence[int], total: float, *labels: object) -> None:
        """Add a histogram: ``counts`` per bucket of STEP_BUCKETS and one for the rest, and the sum of all values."""
        if not (math.isfinite(total) and min(counts, default=0) >= 0):
            self._reject(name)
            return
        texts = self._labels(name, labels, series=len(counts) + 2)
        if texts is None:
            return
        buckets: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip([*map(repr, STEP_BUCKETS), "+Inf"], counts, strict=True):
            running += count
            buckets.append((bound, running))
        self._family(name).add_metric(texts, buckets=buckets, sum_value=total)  # type: ignore[attr-defined]

    def _labels(self, name: str, labels: tuple[object, ...], series: int = 1) -> list[str] | None:
        texts = [str(label) for label in labels]
        whole = "".join(texts)
        if not (len(whole) <= LONGEST_LABEL and whole.isascii() and whole.isprintable()):
            texts = [self._clean(text) for text in texts]
        key = (name, *texts)
        if self._room < series:
            self._tally.dropped[self._collector] = self._tally.dropped.get(self._collector, 0) + series
            return None
        if key in self._seen:
            self._reject(name)
            return None
        self._seen.add(key)
        self._room -= series
        return texts

    def _clean(self, text: str) -> str:
        if len(text) <= LONGEST_LABEL and text.isascii() and text.isprintable():
            return text
        cleaned = clean(text)
        self._tally.cleaned += cleaned != text
        return cleaned

    def _family(self, name: str) -> Metric:
        family = self._families.get(name)
        if family is None:
            row = FAMILIES[name]
            builder = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
            # The library appends _total by itself.
            family = builder[row.type](name.removesuffix("_total"), row.help, labels=row.labels)
            self._families[name] = family
        return family

    def families(self) -> list[Metric]:
        """Return what was added."""
        return list(self._families.values())


def clean(text: str, longest: int = LONGEST_LABEL) -> str:
    """Return so much of a text, with a blank for what is no character or would mislead the reader."""
    return _CONTROL.sub(" ", text[:longest])


def _possible(name: str, value: float) -> bool:
    if name in _MAY_BE_NONFINITE:
        return True
    lowest, highest, never = _limits(name)
    # Neither NaN nor infinity passes.
    return lowest <= value <= highest and value not in never


@lru_cache(maxsize=1024)
def _limits(name: str) -> tuple[float, float, frozenset[float]]:
    """Return the lowest and highest value of a family, and those between that are none."""
    if name.endswith("_ratio") and not name.endswith("signal_ratio"):
        return 0.0, 1.0, frozenset()
    blanks = BLANKS if name.startswith(_DEVICE) else frozenset()
    for end, (lowest, highest) in _BOUNDS.items():
        if name.endswith(end):
            return lowest, highest, blanks
    largest = sys.float_info.max
    return 0.0 if name.endswith(("_total", "_bytes")) else -largest, largest, blanks | _IMPOSSIBLE
