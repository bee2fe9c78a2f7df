"""Which series exist, and which an expression selects."""

from __future__ import annotations

import re

from trainvitals.generate.records import RECORDS
from trainvitals.metrics import FAMILIES

#: What Prometheus makes of every target, and of the process behind it, with its labels beside job and instance.
OWN = {
    "up": (),
    "ALERTS": ("alertname", "alertstate", "severity", "category", "gauge", "run", "device", "uuid"),
    "scrape_samples_scraped": (),
    "scrape_duration_seconds": (),
    "process_resident_memory_bytes": (),
    "process_cpu_seconds_total": (),
    "prometheus_rule_group_last_duration_seconds": ("rule_group",),
    "prometheus_rule_evaluation_failures_total": ("rule_group",),
    "prometheus_rule_group_iterations_missed_total": ("rule_group",),
    "prometheus_tsdb_head_series": (),
    "prometheus_notifications_dropped_total": (),
    "alertmanager_notifications_total": ("integration",),
    "alertmanager_notifications_failed_total": ("integration",),
    "alertmanager_alerts": ("state",),
}


def _labels():
    found = {name: set(labels) for name, labels in OWN.items()}
    found |= {record.name: set(record.labels) for record in RECORDS}
    for family in FAMILIES.values():
        endings = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
        for ending in endings:
            found[family.name + ending] = {*family.labels, *(("le",) if ending == "_bucket" else ())}
    return {name: labels | {"job", "instance"} for name, labels in found.items()}


_LABELS = _labels()


def series_names():
    """Return the names of all series that the exporter and the recording rules make, and Prometheus' own."""
    return set(_LABELS)


def labels_of(name):
    """Return the labels that a series can have, those of its target included."""
    return _LABELS[name]


def names_in(expression):
    """Return the names of the series that an expression selects."""
    plain = re.sub(r"\[[^\]]*\]", "", re.sub(r'"(?:\\.|[^"\\])*"', '""', expression))
    own = r"^(trainvitals|prometheus|alertmanager|process|scrape)_|:|^up$|^ALERTS$"
    return {name for name in re.findall(r"[a-zA-Z_:][\w:]*", plain) if re.search(own, name)}


def labels_in(expression):
    """Return name and matched labels of each selector that has matchers."""
    found = re.findall(r'([a-zA-Z_:][\w:]*)\{((?:[^"}]|"(?:\\.|[^"\\])*")*)\}', expression)
    return [(name, set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', matchers))) for name, matchers in found]
