"""Families about logs that are followed, besides those that every run has."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

#: What may be the matter with a file: it is followed; nothing new can come (packed); nobody knows its format; its
#: library is not installed; it cannot be read.
LOG_STATES = ("followed", "finished", "unknown", "no_library", "unreadable")

FAMILIES: tuple[Family, ...] = (
    Family(
        name="trainvitals_log_info",
        type="gauge",
        labels=("run", "format"),
        help="A run that is known from a log, and the format that was found in it.",
        source="logs",
    ),
    *rows(
        "logs",
        ("run",),
        (
            "log_grown_timestamp_seconds",
            "gauge",
            "When the log of the run last grew; what it says later has not reached the file.",
        ),
        (
            "log_newest_timestamp_seconds",
            "gauge",
            "Time of the newest datum in the log, by the clock of its steps: the last step may be older, not the run.",
        ),
        (
            "log_silence_seconds",
            "gauge",
            "Without a word for longer than this, by the log's own rhythm, a rank counts as silent.",
        ),
        ("log_read_bytes_total", "counter", "Bytes of the run's logs that were read."),
        ("log_pending_bytes", "gauge", "Bytes of the run's logs that were not read yet."),
        ("log_parse_errors_total", "counter", "Lines and records that made the reader of their format fail."),
        ("log_errors_total", "counter", "Errors that the log tells of, by category and cause.", "category", "cause"),
    ),
    *rows(
        "logs",
        (),
        ("log_files", "gauge", "Files below the sources by what is the matter with them; see docs/follow.md.", "state"),
        ("log_read_errors_total", "counter", "Times that a file or folder could not be read."),
    ),
)
