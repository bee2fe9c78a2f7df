"""What the notifier tells Prometheus about itself."""

from __future__ import annotations

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from trainvitals._version import __version__
from trainvitals.metrics.notify import FAMILIES
from trainvitals.notify.courier import Courier
from trainvitals.serve.snapshot import CONTENT_TYPE, SnapshotStore

__all__ = ["CONTENT_TYPE", "render"]

_KNOWN = {family.name: family for family in FAMILIES}


def render(courier: Courier) -> bytes:
    """Return the text of a scrape."""
    sent, suppressed = _family("notify_sent_total"), _family("notify_suppressed_total")
    failed, last = _family("notify_failures_total"), _family("notify_last_success_timestamp_seconds")
    for target in (target for targets in courier.targets.values() for target in targets):
        sent.add_metric([target.name], target.sent)
        suppressed.add_metric([target.name], target.suppressed)
        for reason, count in sorted(target.failed.items()):
            failed.add_metric([target.name, reason], count)
        if target.last:
            last.add_metric([target.name], target.last)
    messages = _family("notify_messages_total")
    for outcome, count in sorted(courier.messages.items()):
        messages.add_metric([outcome], count)
    lossy, info = _family("notify_memory_lossy"), _family("notify_build_info")
    lossy.add_metric([], float(courier.memory.is_lossy))
    info.add_metric([__version__], 1.0)
    return SnapshotStore().publish([info, messages, sent, suppressed, failed, last, lossy]).text


def _family(name: str) -> CounterMetricFamily | GaugeMetricFamily:
    known = _KNOWN[f"trainvitals_{name}"]
    if known.type == "counter":
        return CounterMetricFamily(known.name, known.help, labels=known.labels)
    return GaugeMetricFamily(known.name, known.help, labels=known.labels)
