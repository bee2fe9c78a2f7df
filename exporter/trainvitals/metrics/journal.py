"""Families about the journal of a node, and the interruptions that are in it."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

_CAUSE = ("run", "cause")

FAMILIES: tuple[Family, ...] = (
    *rows(
        "journal",
        _CAUSE,
        ("incidents_total", "counter", "Interruptions of a run in the journal, by cause."),
        ("incident_steps_lost_total", "counter", "Steps that these interruptions cost, as far as it is known."),
        ("incident_seconds_lost_total", "counter", "Time of work that was done again because of them."),
        (
            "incident_seconds_to_recover_total",
            "counter",
            "Time from the last step before to the first step after them.",
        ),
        ("last_incident_timestamp_seconds", "gauge", "When the last of them was detected."),
    ),
    *rows(
        "journal",
        (),
        ("journal_bytes", "gauge", "Size of what is in the journal."),
        ("journal_rows_waiting", "gauge", "Rows that could not be written yet and wait in memory."),
        ("journal_rows_dropped_total", "counter", "Rows that were too many to wait, or too many of one run at once."),
        (
            "journal_errors_total",
            "counter",
            "Writes that failed: full, busy (another writer), damaged, newer (of a later version), file (all else).",
            "reason",
        ),
    ),
)
