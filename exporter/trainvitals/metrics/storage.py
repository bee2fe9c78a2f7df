"""Families about file systems and disks."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

_FILESYSTEMS = rows(
    "storage",
    ("mountpoint",),
    ("host_filesystem_info", "gauge", "Type of a file system, and what is mounted.", "fstype", "source"),
    ("host_filesystem_size_bytes", "gauge", "Size of a file system; absent while it is stuck."),
    ("host_filesystem_available_bytes", "gauge", "Space that users can still fill; absent while it is stuck."),
    ("host_filesystem_files", "gauge", "Inodes in all, where a file system counts them."),
    ("host_filesystem_files_free", "gauge", "Inodes that are free."),
    ("host_filesystem_read_only", "gauge", "1 when nothing can be written: mounted so, or made so after errors."),
    ("host_filesystem_stuck", "gauge", "1 when the last probe has not come back in time (storage.timeout), else 0."),
    ("host_filesystem_stuck_timestamp_seconds", "gauge", "When the probe began that has not come back."),
    ("host_filesystem_probe_duration_seconds", "gauge", "How long the last finished probe took."),
    ("host_filesystem_probe_timestamp_seconds", "gauge", "When the last probe finished: the age of these values."),
    ("host_filesystem_probe_error_info", "gauge", "The error of the last probe; only while it fails.", "error"),
)
_PROBES = rows(
    "storage",
    (),
    ("host_filesystems_left_out", "gauge", "File systems beyond the limit (storage.limit), which are not shown."),
    ("host_filesystem_probe_restarts_total", "counter", "Restarts of the process that probes the file systems."),
)
_NFS = rows(
    "storage",
    ("mountpoint",),
    ("host_nfs_operations_total", "counter", "Requests to an NFS server."),
    ("host_nfs_retransmissions_total", "counter", "Requests that were sent again."),
    ("host_nfs_timeouts_total", "counter", 'Requests that timed out after all repetitions ("server not responding").'),
    ("host_nfs_queue_seconds_total", "counter", "Time that requests waited in the client before they were sent."),
    ("host_nfs_response_seconds_total", "counter", "Time from sending a request to its answer, summed."),
    ("host_nfs_read_bytes_total", "counter", "Bytes read from the server."),
    ("host_nfs_written_bytes_total", "counter", "Bytes written to the server."),
)
_DISKS = rows(
    "storage",
    ("disk",),
    ("host_disk_reads_total", "counter", "Reads that were completed."),
    ("host_disk_read_bytes_total", "counter", "Bytes read from a physical disk."),
    ("host_disk_read_time_seconds_total", "counter", "Time that reads took, summed."),
    ("host_disk_writes_total", "counter", "Writes that were completed."),
    ("host_disk_written_bytes_total", "counter", "Bytes written to a physical disk."),
    ("host_disk_write_time_seconds_total", "counter", "Time that writes took, summed."),
    ("host_disk_io_time_seconds_total", "counter", "Time in which the disk had something to do."),
)

FAMILIES: tuple[Family, ...] = (*_FILESYSTEMS, *_PROBES, *_NFS, *_DISKS)
