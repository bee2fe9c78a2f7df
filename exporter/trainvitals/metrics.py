"""The catalogue: every metric family that the exporter can show, written once.

The scrape, the recording and alert rules, the dashboards and docs/metrics.md read it.
Conventions: prefix ``trainvitals_``, base units, ``_total`` for counters, ``_ratio`` from 0 to 1, ``_info`` for
strings, ``_timestamp_seconds`` for points in time.  Missing is absent: never 0, -1 or NaN for "could not read".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "trainvitals_"

Type = Literal["gauge", "counter", "histogram"]

#: Upper bounds in seconds for the time of a step: from a toy on a CPU to a 100-billion model (BLOOM: 106 s).
STEP_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


@dataclass(frozen=True, kw_only=True)
class Family:
    """One metric family.  ``source`` names the collector that shows it."""

    name: str
    type: Type
    labels: tuple[str, ...]
    help: str
    source: str


def _rows(
    source: str, labels: tuple[str, ...], *rows: tuple[str, Type, str] | tuple[str, Type, str, str]
) -> list[Family]:
    """Return families that share a source and their first labels; a fourth entry of a row is one label more."""
    families = []
    for name, type_, text, *extra in rows:
        families.append(Family(name=PREFIX + name, type=type_, labels=(*labels, *extra), help=text, source=source))
    return families


_RUN = ("run",)
_RANK = ("run", "rank")
_DEVICE = ("device", "uuid")

_FAMILIES: list[Family] = [
    Family(
        name="trainvitals_run_info",
        type="gauge",
        labels=("run", "attempt", "framework", "world_size"),
        help="A run with a rank on this node: its newest attempt, its framework and its number of ranks.",
        source="ranks",
    ),
    Family(
        name="trainvitals_rank_info",
        type="gauge",
        labels=("run", "rank", "local_rank", "attempt", "uuid"),
        help="A rank and, when the process told it, the device that it computes on; join device series with it.",
        source="ranks",
    ),
    *_rows(
        "ranks",
        _RANK,
        ("rank_up", "gauge", "1 while the training process lives, else 0."),
        ("rank_state", "gauge", "1 for the state that the rank is in: running, finished, failed or died.", "state"),
        ("probe_disabled", "gauge", "1 when the probe switched itself off after errors of its own."),
        ("probe_errors_total", "counter", "Errors inside the probe; the training never sees them."),
        ("probe_dropped_total", "counter", "Values and events that the probe could not take."),
        ("start_timestamp_seconds", "gauge", "When the current attempt of this rank started."),
        ("step", "gauge", "Number of the last optimizer step."),
        ("target_steps", "gauge", "Planned number of steps of the run."),
        ("steps_total", "counter", "Optimizer steps done, over all attempts seen."),
        ("last_step_timestamp_seconds", "gauge", "When the last optimizer step ended."),
        ("heartbeat_timestamp_seconds", "gauge", "When the training last called the probe."),
        (
            "step_duration_seconds",
            "histogram",
            "Time from the end of one step to the end of the next, pauses for evaluation and checkpoints included.",
        ),
        ("skipped_steps_total", "counter", "Steps that the loss scaler skipped."),
        ("nonfinite_steps_total", "counter", "Steps whose loss was NaN or infinite."),
        ("samples_total", "counter", "Samples trained on by this rank."),
        ("tokens_total", "counter", "Tokens trained on by this rank."),
        ("loss", "gauge", "Training loss of the last step that reported one; NaN when it was NaN."),
        ("learning_rate", "gauge", "Learning rate of the last step that reported one."),
        ("grad_norm", "gauge", "Gradient norm of the last step that reported one."),
        ("value", "gauge", "Last value of any other quantity that the training reports.", "name"),
        ("phase", "gauge", "1 for the phase that the rank is in.", "phase"),
        (
            "phase_seconds_total",
            "counter",
            "Wall time spent in each phase; all phases add up to the wall time.",
            "phase",
        ),
        ("checkpoint_step", "gauge", "Step of the last checkpoint that was saved."),
        ("checkpoint_timestamp_seconds", "gauge", "When the last checkpoint was saved."),
        ("checkpoint_duration_seconds", "gauge", "How long the last save of a checkpoint took."),
        ("checkpoints_total", "counter", "Checkpoints saved."),
        ("checkpoint_failures_total", "counter", "Checkpoints whose save raised an exception."),
        ("events_total", "counter", "Events that the training reported, by kind.", "kind"),
    ),
    Family(
        name="trainvitals_evaluation",
        type="gauge",
        labels=("run", "rank", "split", "name"),
        help="Result of the last evaluation on a split, by the name of the quantity.",
        source="ranks",
    ),
    Family(
        name="trainvitals_evaluation_step",
        type="gauge",
        labels=("run", "rank", "split"),
        help="Step of the last evaluation on a split.",
        source="ranks",
    ),
    *_rows(
        "ranks",
        _RUN,
        ("world_size", "gauge", "Ranks that the newest attempt of the run was started with."),
        ("signal_ratio", "gauge", "Statistic of a signal over its threshold: 1 or more is active.", "signal"),
    ),
    Family(
        name="trainvitals_signal_statistic",
        type="gauge",
        labels=("run", "signal", "statistic"),
        help="The numbers behind a signal.",
        source="ranks",
    ),
    Family(
        name="trainvitals_finding_info",
        type="gauge",
        labels=("run", "signal", "category", "location", "evidence"),
        help="A signal that is active: where, since which step and with which numbers.",
        source="ranks",
    ),
    *_rows(
        "ranks",
        (),
        ("rank_files", "gauge", "Rank files that are being read."),
        ("rank_files_rejected", "gauge", "Files in the spool that cannot be used now, by reason.", "reason"),
        ("records_lost_total", "counter", "Step records that were overwritten before they were read."),
        ("records_invalid_total", "counter", "Step records and states whose checksum was wrong."),
        (
            "values_rejected_total",
            "counter",
            "Values that were dropped because they are impossible, by family.",
            "family",
        ),
        ("labels_cleaned_total", "counter", "Label values that were cut or cleaned."),
        ("event_lines_rejected_total", "counter", "Lines of events files that are not an event."),
    ),
    Family(
        name="trainvitals_device_info",
        type="gauge",
        labels=("device", "uuid", "vendor", "name", "pci_bus_id", "driver_version"),
        help="An accelerator of this node.",
        source="devices",
    ),
    *_rows(
        "devices",
        _DEVICE,
        ("device_up", "gauge", "1 when the device answers, else 0."),
        ("device_utilization_ratio", "gauge", "Share of time in which at least one kernel ran; not how busy it was."),
        ("device_memory_used_bytes", "gauge", "Device memory in use."),
        ("device_memory_total_bytes", "gauge", "Device memory in all."),
        ("device_memory_activity_ratio", "gauge", "Share of time in which device memory was read or written."),
        ("device_temperature_celsius", "gauge", "Temperature by sensor: gpu, memory.", "sensor"),
        (
            "device_power_watts",
            "gauge",
            "Power draw; kind is instant, or default where the driver chooses: on newer devices the mean of a second.",
            "kind",
        ),
        ("device_power_limit_watts", "gauge", "Power limit in force."),
        ("device_clock_hertz", "gauge", "Clock by domain: sm, memory.", "clock"),
    ),
    *_rows(
        "devices",
        (),
        ("device_source_up", "gauge", "1 while the process that reads a vendor's devices answers, else 0.", "vendor"),
        ("device_source_restarts_total", "counter", "Restarts of the process that reads a vendor's devices.", "vendor"),
        ("device_source_read_timestamp_seconds", "gauge", "When a vendor's devices were last read.", "vendor"),
        ("device_reads_failed_total", "counter", "Failed reads of a device field, by reason.", "reason"),
    ),
    *_rows(
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
    Family(
        name="trainvitals_build_info",
        type="gauge",
        labels=("version", "python"),
        help="The exporter.",
        source="exporter",
    ),
    *_rows(
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
        ("families_failed_total", "counter", "Families left out of a scrape because they could not be rendered."),
    ),
]

FAMILIES: dict[str, Family] = {family.name: family for family in _FAMILIES}
