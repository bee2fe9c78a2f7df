"""Thresholds and waits of the alert rules, in one place and in the operator's words.

Thresholds of the detectors (a spike of the loss, ...) live with the detectors: rules only see their ratio.
A row of the table of alerts names one as ``LIMITS.NAME`` (:mod:`trainvitals.generate.limits`), so that users can put
their own number in its place; deploy/prometheus/thresholds.yml shows them all.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

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
#: Bytes.
Bytes = Annotated[float, Field(strict=True, ge=0, le=1e18)]


class Thresholds(Section):
    """Durations are seconds, ratios go from 0 to 1.

    The comment above each is shown to users too; docs/alerts.md says how they set one.
    """

    # Parameters ---------------------------------------------------------------------------------------------------
    #: A signal stays an alert for so long after it ended, so that one that flaps is one message.
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


DEFAULTS = Thresholds()
