"""The page of the documentation that is made from the catalogue of metrics."""

from __future__ import annotations

from collections.abc import Iterable

from trainvitals.generate.records import RECORDS
from trainvitals.generate.runbooks import NOTE, table
from trainvitals.metrics import FAMILIES

_SOURCES = {
    "ranks": ("Runs and ranks", "From the rank files that training processes write, or from logs that are followed."),
    "logs": ("Logs", "About the [logs that are followed](follow.md)."),
    "devices": ("Devices", "From the vendors' libraries; a field that a device does not tell has no series."),
    "faults": ("Faults", "XIDs and what comes with them, from the driver's events and from the kernel's log."),
    "attribution": (
        "Attribution",
        "Mapping series: join them with `group_left`; device series never change their labels.",
    ),
    "host": ("Host", "From the operating system."),
    "processes": ("Training processes", "From `/proc`, for ranks whose process can be seen."),
    "storage": ("Storage", "File systems, probed so that a stuck server costs only itself, and disks."),
    "network": ("Network", "InfiniBand, RoCE and Ethernet."),
    "kernel": ("Kernel", "What the kernel complains of."),
    "journal": ("Journal", "The [journal](journal.md) of the node, and the interruptions that are in it."),
    "exporter": (
        "Exporter",
        "The exporter about itself; its `process_*` metrics are those of every Prometheus client: CPU, memory, files.",
    ),
    "notify": ("Notifier", "From [`trainvitals notify`](notify.md), which is scraped by itself."),
}


def metrics_page() -> str:
    """Return docs/metrics.md."""
    head = (
        f"# Metrics\n\n{NOTE}\n"
        "Missing is absent: a value that could not be read has no series, and is never 0, -1 or NaN.\n"
        "A loss that is NaN is shown as NaN.\n"
        "Prometheus adds `job` and `instance`; the exporter sets neither.\n"
    )
    parts = [head]
    for source in dict.fromkeys(family.source for family in FAMILIES.values()):
        title, text = _SOURCES.get(source, (source.capitalize(), ""))
        rows = (
            (f"`{family.name}`", family.type, _labels(family.labels), family.help)
            for family in FAMILIES.values()
            if family.source == source
        )
        parts.append(f"## {title}\n\n{text}\n\n" + table(("name", "type", "labels", "meaning"), rows))
    recorded = ((f"`{record.name}`", _labels(record.labels), record.help) for record in RECORDS)
    parts.append(
        "## Recorded series\n\nPrometheus computes these by `alert_rules/recording.yml`; ratios go from 0 to 1.\n\n"
        + table(("name", "labels", "meaning"), recorded)
    )
    return "\n".join(parts)


def _labels(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels) or "-"
