"""Families about the node itself."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

FAMILIES: tuple[Family, ...] = (
    *rows(
        "host",
        (),
        ("host_cpu_seconds_total", "counter", "CPU time by mode, summed over all CPUs.", "mode"),
        ("host_cpus", "gauge", "Logical CPUs."),
        ("host_load1", "gauge", "Load average over one minute."),
        ("host_memory_total_bytes", "gauge", "Memory in all."),
        ("host_memory_available_bytes", "gauge", "Memory that can be had without swapping."),
        ("host_swap_used_bytes", "gauge", "Swap in use."),
        ("host_boot_timestamp_seconds", "gauge", "When the node booted."),
        ("host_filesystem_size_bytes", "gauge", "Size of a file system.", "mountpoint"),
        ("host_filesystem_available_bytes", "gauge", "Space that users can still fill.", "mountpoint"),
        ("host_network_receive_bytes_total", "counter", "Bytes received.", "interface"),
        ("host_network_transmit_bytes_total", "counter", "Bytes sent.", "interface"),
        ("host_disk_read_bytes_total", "counter", "Bytes read from block devices, summed."),
        ("host_disk_written_bytes_total", "counter", "Bytes written to block devices, summed."),
    ),
)
