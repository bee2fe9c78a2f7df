"""Families about faults that devices and their drivers report: XIDs and what comes with them.

Counters begin at the oldest record of the kernel's log and with the exporter, whichever was first.  A fault that never
happened has no series, so a rule asks for the time of the last one rather than for an increase.
"""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

_DEVICE = ("device", "uuid", "pci_bus_id")
_LINK = ("xid", "link", "subcode", "effect", "cause")

FAMILIES: tuple[Family, ...] = (
    *rows(
        "faults",
        _DEVICE,
        (
            "device_xid_errors_total",
            "counter",
            "Errors that the driver numbers (XIDs), by code; told by the driver, by the kernel's log or by both.",
            "xid",
        ),
        ("device_xid_last_timestamp_seconds", "gauge", "When the last XID of this code happened.", "xid"),
        (
            "device_xid_info",
            "gauge",
            "What an XID that happened means and what to do; severity is critical, warning or info.",
            "xid",
            "meaning",
            "xid_severity",
            "xid_category",
            "action",
        ),
        (
            "device_link_faults_total",
            "counter",
            (
                "NVLink 5 errors (XIDs 144 to 150) as the kernel's log tells them: unit (subcode), effect (fatal or "
                "nonfatal), and why a link went down."
            ),
            *_LINK,
        ),
        ("device_link_fault_last_timestamp_seconds", "gauge", "When the last such error happened.", *_LINK),
        (
            "device_fallen_off_bus_total",
            "counter",
            "Times that the device fell off the PCIe bus: XID 79 or the driver's words, together once.",
        ),
        ("device_fallen_off_bus_last_timestamp_seconds", "gauge", "When it last fell off the bus."),
    ),
    *rows(
        "faults",
        ("pci_bus_id", "sxid", "effect", "link"),
        ("nvswitch_sxid_errors_total", "counter", "Errors of an NVSwitch by number: fatal, nonfatal or unknown."),
        ("nvswitch_sxid_last_timestamp_seconds", "gauge", "When the last such error of an NVSwitch happened."),
    ),
    *rows(
        "faults",
        (),
        ("faults_dropped_total", "counter", "Faults not shown because too many different ones were there before."),
    ),
)
