"""Thresholds and waits of the alert rules, in one place and in the operator's words.

Thresholds of the detectors (a spike of the loss, ...) live with the detectors: rules only see their ratio.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Durations are seconds, ratios go from 0 to 1."""

    # Parameters ---------------------------------------------------------------------------------------------------
    #: A signal stays an alert for so long after it ended, so that one that flaps is one message.
    signal_keep: int = 300

    # Data ---------------------------------------------------------------------------------------------------------
    #: The training waits for its input in more than this share of its time ...
    data_wait_ratio: float = 0.3
    #: ... for so long.  A resumed run that skips what it has already seen gets this much time.
    data_wait_for: int = 600

    # Resources ----------------------------------------------------------------------------------------------------
    #: No step for so long: the training hangs.  PyTorch's NCCL watchdog aborts after the same 10 minutes.
    stall: int = 600
    #: Slow steps (BLOOM: 106 s) are no stall: so many usual steps must have been missed as well.
    stall_steps: int = 10
    #: No first step for so long after the start, which loads data and weights and compiles.
    stall_start: int = 1800
    #: No step for so long in a phase that the training calls evaluation or checkpoint.
    #: BLOOM hung twice in an evaluation, for 18 hours together; a good one of a large model takes an hour.
    stall_slow_phase: int = 7200
    #: A log that has said nothing for so long is no news any more: most runs end without a word in their log.
    log_silent_longest: int = 21600
    #: A failed checkpoint stays an alert for so long.
    checkpoint_failure_window: int = 1800
    #: A device that does not answer for so long is down; drivers are slow while a process starts or ends.
    device_down_for: int = 60
    #: The process that reads a vendor's devices does not answer for so long: the driver hangs.
    device_source_for: int = 120
    #: Fewer devices than expected for so long; a driver that was just loaded lists them one after the other.
    devices_missing_for: int = 300
    #: The reading of devices is paused for so long: perhaps somebody forgot.
    devices_paused_for: int = 7200
    #: A device that somebody has did no work for so long; data and weights are loaded, and kernels compiled, in less.
    device_idle: int = 3600
    #: Less of the host's memory is left than this share ...
    memory_available_ratio: float = 0.05
    #: ... for so long.
    memory_for: int = 300
    #: Less of a file system is left than this share ...
    filesystem_available_ratio: float = 0.05
    #: ... and less than so many bytes: 5 % of a large store is still room for many checkpoints.
    filesystem_available_bytes: float = 500e9
    #: ... for so long.
    filesystem_for: int = 300

    #: A fault that happened, and is over, stays an alert for so long.
    fault_window: int = 600
    #: A device is busy when its kernels run in more than this share of the time.
    busy_ratio: float = 0.5
    #: The hardware of a busy device holds its clocks down for so long; short peaks cost nothing.
    device_slowed_for: int = 600
    #: A port is down for so long; a retrain takes seconds.
    link_down_for: int = 60
    #: A port that goes down so often within an hour is no accident.
    link_flaps: int = 3
    #: A probe of a file system has been stuck for so long; a server that restarts is away for a minute or two.
    filesystem_stuck_for: int = 120
    #: Less than this share of the inodes is free ...
    filesystem_inodes_ratio: float = 0.03
    #: Nobody has set the clock for so long; after a reboot it takes minutes.
    clock_for: int = 1800

    # The monitoring itself ----------------------------------------------------------------------------------------
    #: The exporter missed more than half of its scrapes over so long; a restart misses one or two.
    exporter_down_window: int = 300
    #: ... and goes on missing them for so long.
    exporter_down_for: int = 60
    #: Prometheus knows no exporter at all for so long.
    no_exporter_for: int = 600
    #: The exporter answers, but its values are older than this.
    snapshot_age: int = 120
    #: A source fails for so long.
    collector_for: int = 300
    #: Something was lost or dropped within so long.
    loss_window: int = 900
    #: A file in the spool cannot be used for so long.
    rejected_for: int = 300


DEFAULTS = Thresholds()


def duration(seconds: int) -> str:
    """Write whole seconds as Prometheus does: 600 is "10m"."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
