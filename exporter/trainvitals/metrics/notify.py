"""Families of the notifier, which are scraped from it and not from the exporter."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

FAMILIES: tuple[Family, ...] = (
    *rows(
        "notify",
        (),
        ("notify_build_info", "gauge", "The notifier.", "version"),
        (
            "notify_messages_total",
            "counter",
            "Messages of Alertmanager: sent, later (to be sent again), refused, duplicate, malformed, too_large.",
            "outcome",
        ),
        ("notify_sent_total", "counter", "Messages that a target accepted; a long one counts by its parts.", "target"),
        ("notify_suppressed_total", "counter", "Messages that a target had accepted before.", "target"),
        ("notify_failures_total", "counter", "Messages that a target did not take, by reason.", "target", "reason"),
        ("notify_last_success_timestamp_seconds", "gauge", "When a target last accepted a message.", "target"),
        (
            "notify_memory_lossy",
            "gauge",
            "1 when it could not be remembered what was sent: a restart may tell something twice.",
        ),
    ),
)
