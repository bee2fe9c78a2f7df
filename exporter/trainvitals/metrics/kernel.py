"""Families about what the kernel complains of.

Counters begin at the oldest record of the kernel's log; without the right to read it there are none.
"""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

FAMILIES: tuple[Family, ...] = (
    *rows(
        "kernel",
        (),
        ("kernel_log_readable", "gauge", "1 when the kernel's log can be read, else 0."),
        ("kernel_log_oldest_timestamp_seconds", "gauge", "Time of the oldest record: nothing before it is counted."),
        ("kernel_log_records_lost_total", "counter", "Records that were overwritten before they were read."),
        ("kernel_events_total", "counter", "Complaints of the kernel by kind; see docs/kernel.md.", "kind"),
        (
            "kernel_event_last_timestamp_seconds",
            "gauge",
            "When the last complaint of a kind happened, and where: a PCI address, a disk, an interface or a server.",
            "kind",
            "place",
        ),
    ),
)
