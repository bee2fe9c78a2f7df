"""Thresholds and waits of the alert rules, in one place and in the operator's words.

Thresholds of the detectors (a spike of the loss, ...) live with the detectors: rules only see their ratio.
A row of the table of alerts names one as ``LIMITS.NAME`` (:mod:`trainvitals.generate.limits`), so that users can put
their own number in its place; deploy/prometheus/thresholds.yml shows them all.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from trainvitals.config import Seconds as Duration
from trainvitals.config import Section


def _no_truth(value: object) -> object:
    """Refuse `yes` and `on`, which YAML takes for true and Python for 1."""
    return str(value) if isinstance(value, bool) else value


_MONTH = 30 * 86400
_Whole = Annotated[Duration, BeforeValidator(_no_truth), Field(multiple_of=1, le=_MONTH)]
#: Until something counts, or how old it may be: two scrapes of 15 seconds or more.
Seconds = Annotated[_Whole, Field(ge=30)]
#: What rules look back on, in which four scrapes must lie.
Window = Annotated[_Whole, Field(ge=60)]
#: A share.
Ratio = Annotated[float, Field(strict=True, gt=0, lt=1)]
#: How many.
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
#: A number of seconds, or of something else, that need not be whole.
Number = Annotated[float, Field(strict=True, gt=0, le=1_000_000)]
#: Bytes.
Bytes = Annotated[float, Field(strict=True, ge=0, le=1e18)]


class Thresholds(Section):
    """Durations are seconds, ratios go from 0 to 1.

    The comment above each is shown to users too; docs/thresholds.md says how they set one.
    """

    # Parameters ---------------------------------------------------------------------------------------------------
    #: A signal, or what waited for minutes, stays an alert for so long after it ended: one that flaps is one message.
    signal_keep: Seconds = 300

    # Data ---------------------------------------------------------------------------------------------------------
    #: The training waits for its input in more than this share of its time ...
    data_wait_ratio: Ratio = 0.3
    #: ... for so long.  A resumed run that skips what it has already seen gets this much time.
    data_wait_for: Seconds = 600

    # Resources ----------------------------------------------------------------------------------------------------
    #: No step for so long: the training hangs.  PyTorch's NCCL watchdog aborts after the same 10 minutes.
    stall: Seconds = 600
    #: Slow steps (BLOOM: 106 s) are no stall: so many usual steps must have been missed as well.
    stall_steps: Count = 10
    #: No first step for so long after the start, which loads data and weights and compiles.
    stall_start: Seconds = 1800
    #: No step for so long in a phase that the training calls evaluation or checkpoint.
    #: BLOOM hung twice in an evaluation, for 18 hours together; a good one of a large model takes an hour.
    stall_slow_phase: Seconds = 7200
    #: A log that has said nothing for so long is no news any more: most runs end without a word in their log.
    log_silent_longest: Seconds = 21600
    #: A failed checkpoint stays an alert for so long.
    checkpoint_failure_window: Window = 1800
    #: A checkpoint is overdue after so many usual distances between saves (2 is one that was left out) ...
    checkpoint_overdue_times: Count = 3
    #: ... and after so much training that is not saved: less is cheap to do again.
    checkpoint_overdue_least: Seconds = 1800
    #: So much training that is not saved is too much, whatever is usual.
    checkpoint_overdue_longest: Seconds = 86400
    #: No rank finished a step for so long, while devices are busy and cool: a collective operation hangs.
    collective_stall: Seconds = 300
    #: A device that only waits in one is busy for more than this share of the time ...
    spinning_busy_ratio: Ratio = 0.9
    #: ... and takes less than this share of its power limit: 70 W were seen (NCCL's issue 968); training takes half.
    spinning_power_ratio: Ratio = 0.35
    #: So much of the time of all ranks may be lost; large trainings that were published lost 3 to 10 %.
    goodput_lost_ratio: Ratio = 0.1
    #: So many times as much lost over an hour is an alert: a restart in it, with a start of half an hour, is not.
    goodput_burn_fast: Count = 6
    #: So many times as much lost over 6 hours is an alert.
    goodput_burn_slow: Count = 3
    #: A device that does not answer for so long is down; drivers are slow while a process starts or ends.
    device_down_for: Seconds = 60
    #: The process that reads a vendor's devices does not answer for so long: the driver hangs.
    device_source_for: Seconds = 120
    #: Fewer devices than expected for so long; a driver that was just loaded lists them one after the other.
    devices_missing_for: Seconds = 300
    #: The reading of devices is paused for so long: perhaps somebody forgot.
    devices_paused_for: Seconds = 7200
    #: A device that somebody has did no work for so long; data and weights are loaded, and kernels compiled, in less.
    device_idle: Seconds = 3600
    #: Less of the host's memory is left than this share ...
    memory_available_ratio: Ratio = 0.05
    #: ... for so long.
    memory_for: Seconds = 300
    #: Less of a file system is left than this share ...
    filesystem_available_ratio: Ratio = 0.05
    #: ... and less than so many bytes: 5 % of a large store is still room for many checkpoints.
    filesystem_available_bytes: Bytes = 500e9
    #: ... for so long.
    filesystem_for: Seconds = 300

    #: A fault that happened, and is over, stays an alert for so long.
    fault_window: Window = 600
    #: A device is busy when its kernels run in more than this share of the time.
    busy_ratio: Ratio = 0.5
    #: The hardware of a busy device holds its clocks down for so long; short peaks cost nothing.
    device_slowed_for: Seconds = 600
    #: A port is down for so long; a retrain takes seconds.
    link_down_for: Seconds = 60
    #: A port that goes down so often within an hour is no accident.
    link_flaps: Count = 3
    #: A probe of a file system has been stuck for so long; a server that restarts is away for a minute or two.
    filesystem_stuck_for: Seconds = 120
    #: Less than this share of the inodes is free ...
    filesystem_inodes_ratio: Ratio = 0.03
    #: Nobody has set the clock for so long; after a reboot it takes minutes.
    clock_for: Seconds = 1800

    #: What was counted over a span must hold for so long: an exporter that starts again is away for less, and with it
    #: what else is asked of the same node.
    restart_for: Seconds = 120

    # Links --------------------------------------------------------------------------------------------------------
    #: After a boot so long, errors of links are those of their training.
    boot_settles: Seconds = 1800
    #: A device has not joined the fabric of NVSwitches for so long; the fabric manager takes minutes after a boot.
    fabric_for: Seconds = 600
    #: The fabric of a device is not well for so long; it repairs routes by itself in less.
    fabric_unhealthy_for: Seconds = 300
    #: NVLinks repeat or recover something within every such span ...
    nvlink_errors_window: Window = 900
    #: ... for so long.  A single one heals; links that broke went on for days (505 recoveries before an XID 149).
    nvlink_errors_for: Seconds = 3600
    #: Or so many wrong checksums a second; fewer do not matter (DCGM, dcgm_gpu_hardware_limits.h).
    nvlink_crc: Count = 100
    #: The PCIe link of a busy device is slower or narrower than it can be for so long.
    pcie_slow_for: Seconds = 600
    #: More packets a minute than this are sent again over PCIe: what NVIDIA recommends at most (DCGM, as above) ...
    pcie_replays: Count = 8
    #: ... for so long.
    pcie_replays_for: Seconds = 900
    #: A port or interface is slower than it was, or than its neighbours, for so long.
    link_slow_for: Seconds = 600
    #: More errors of an InfiniBand port than this (ibqueryerrors complains beyond 10) ...
    infiniband_errors: Count = 10
    #: ... or of an Ethernet interface: 10 Gb/s at the error rate that IEEE 802.3 allows have 9 in 15 minutes ...
    network_errors: Count = 100
    #: ... within every such span ...
    link_errors_window: Window = 900
    #: ... for so long.
    link_errors_for: Seconds = 900
    #: An interface that worked is down for so long; a switch that restarts takes minutes.
    interface_down_for: Seconds = 300

    # Memory and heat of devices -----------------------------------------------------------------------------------
    #: More corrected errors of device memory a second; sound memory has none for days, and at 17,700 drivers hang.
    ecc_corrected: Count = 10
    #: ... for so long.
    ecc_corrected_for: Seconds = 600
    #: Memory pages of an older device that were taken out of use: the most that NVIDIA lets pass (DCGM, as above).
    retired_pages: Count = 60
    #: A device is at a limit of its own temperature for so long.
    device_hot_for: Seconds = 300
    #: The hardware holds the clocks of a busy device down in more than this share of the time.
    device_slowed_ratio: Ratio = 0.3

    # The node -----------------------------------------------------------------------------------------------------
    #: Nothing at all ran for want of memory in more than this share of the time (systemd-oomd kills at 0.6) ...
    memory_pressure_ratio: Ratio = 0.1
    #: ... for so long.
    memory_pressure_for: Seconds = 300
    #: Swap grew by more than so many bytes ...
    swap_growth: Bytes = 1e9
    #: ... within so long, while ranks live.  What was swapped out before, and is not missed, does no harm.
    swap_window: Window = 900
    #: The clock still has to be corrected by more than so many seconds; time services leave milliseconds.
    clock_offset: Number = 0.5
    #: Or it may be wrong by more: the kernel adds 1.8 s an hour while nobody vouches for it.
    clock_error: Number = 4.0
    #: Or it is ahead of the clock of Prometheus by more than this.
    clock_ahead: Seconds = 30
    #: ... for so long.
    clock_wrong_for: Seconds = 600
    #: A rank uses more than this share of the files that it may open ...
    descriptors_ratio: Ratio = 0.9
    #: ... for so long.
    descriptors_for: Seconds = 300
    #: A job uses more than this share of the memory that it may use, and half of that is its processes' ...
    cgroup_memory_ratio: Ratio = 0.95
    #: ... for so long.
    cgroup_memory_for: Seconds = 300
    #: Workers of training processes that are gone hold more than this share of the node's memory ...
    orphans_ratio: Ratio = 0.05
    #: ... for so long; a run that ends needs a minute to take its workers with it.
    orphans_for: Seconds = 900
    #: CPUs are slowed by heat in more than this share of the time ...
    cpu_slowed_ratio: Ratio = 0.2
    #: ... for so long.
    cpu_slowed_for: Seconds = 600
    #: What the kernel complained of stays an alert for so long, so that a storm is one message.
    kernel_window: Window = 3600
    #: So many corrected hardware errors within that time; mcelog complains of a memory module at 10 a day.
    corrected_errors: Count = 10

    # Storage ------------------------------------------------------------------------------------------------------
    #: An NFS request takes more seconds than this on average ...
    nfs_seconds: Number = 1.0
    #: ... or more than this share of them is sent again ...
    nfs_retransmitted_ratio: Ratio = 0.05
    #: ... while there are more than so many a second ...
    nfs_operations: Count = 1
    #: ... for so long.
    nfs_slow_for: Seconds = 600
    #: NFS requests that were given up stay an alert for so long.
    nfs_timeouts_window: Window = 900
    #: Less than this share of a file system is left ...
    filesystem_fills_ratio: Ratio = 0.2
    #: ... and at the pace of so long, which spans several checkpoints and what is deleted after them ...
    filesystem_pace_window: Window = 21600
    #: ... it is full within this time ...
    filesystem_full_in: Seconds = 14400
    #: ... for so long.
    filesystem_fills_for: Seconds = 900
    #: A probe of a file system fails for so long.
    filesystem_broken_for: Seconds = 120

    # The monitoring itself ----------------------------------------------------------------------------------------
    #: The exporter missed more than half of its scrapes over so long; a restart misses one or two.
    exporter_down_window: Window = 300
    #: ... and goes on missing them for so long.
    exporter_down_for: Seconds = 60
    #: Prometheus knows no exporter at all for so long.
    no_exporter_for: Seconds = 600
    #: The exporter answers, but its values are older than this.
    snapshot_age: Seconds = 120
    #: A source fails for so long.
    collector_for: Seconds = 300
    #: Something was lost or dropped within so long.
    loss_window: Window = 900
    #: A file in the spool cannot be used for so long.
    rejected_for: Seconds = 300

    @model_validator(mode="after")
    def _in_order(self) -> Thresholds:
        """A stall in any phase counts after the longest of the times, so the others must be shorter."""
        if max(self.stall, self.stall_start) > self.stall_slow_phase:
            raise ValueError("stall and stall_start: expected at most stall_slow_phase")
        return self


DEFAULTS = Thresholds()
