"""Families of the exporter about itself."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

FAMILIES: tuple[Family, ...] = (
    Family(
        name="trainvitals_build_info",
        type="gauge",
        labels=("version", "python"),
        help="The exporter.",
        source="exporter",
    ),
    *rows(
        "exporter",
        (),
        (
            "collector_success",
            "gauge",
            "1 when the last read of a source went well or found nothing there, else 0.",
            "collector",
        ),
        ("collector_duration_seconds", "gauge", "How long the last read of a source took.", "collector"),
        ("snapshot_timestamp_seconds", "gauge", "When the values of this scrape were taken."),
        ("series_dropped_total", "counter", "Series beyond the cap, by source.", "collector"),
        (
            "state_saved_timestamp_seconds",
            "gauge",
            "When it was last saved what the detectors know, so that they go on after a restart of the exporter.",
        ),
        ("state_bytes", "gauge", "Size of what was saved."),
        (
            "state_errors_total",
            "counter",
            "What could not be saved (save), or be restored after a restart: the file, a rank, a detector.",
            "reason",
        ),
        ("families_failed_total", "counter", "Families left out of a scrape because they could not be rendered."),
    ),
)
