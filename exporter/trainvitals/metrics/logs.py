"""Families about logs that are followed, besides those that every run has."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

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
        ("log_parse_errors_total", "counter", "Lines, records and files of the run that made no sense."),
        ("log_errors_total", "counter", "Errors that the log tells of, by category and cause.", "category", "cause"),
    ),
    *rows(
        "logs",
        (),
        ("log_files", "gauge", "Logs by what is the matter with them: followed, unknown (format) or problem.", "state"),
        ("log_files_rejected", "gauge", "What could not be followed at the last search, by reason.", "reason"),
    ),
)
