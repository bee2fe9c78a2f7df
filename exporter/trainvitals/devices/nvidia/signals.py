"""The table of what is read of one GPU, in this order.  A new signal is one row in the file of its subject.

A reader gets the GPU and the sample that it fills, with the families of :mod:`trainvitals.metrics.devices`.  It may
raise whatever the binding raises: that costs its own values only, unless the error says that the device or the driver
is gone.  So a row reads one thing.  Only calls that cost microseconds belong here.
"""

from __future__ import annotations

from trainvitals.devices.nvidia import (
    clocks,
    ecc,
    fabric,
    gpm,
    identity,
    memory,
    mig,
    nvlink,
    pcie,
    power,
    processes,
    recovery,
    thermal,
    utilization,
)
from trainvitals.devices.nvidia.rows import Signal

SIGNALS: tuple[Signal, ...] = (
    *utilization.SIGNALS,
    *memory.SIGNALS,
    *power.SIGNALS,
    *clocks.SIGNALS,
    *thermal.SIGNALS,
    *ecc.SIGNALS,
    *pcie.SIGNALS,
    *recovery.SIGNALS,
    *identity.SIGNALS,
    *nvlink.SIGNALS,
    *fabric.SIGNALS,
    *mig.SIGNALS,
    *gpm.SIGNALS,
    *processes.SIGNALS,
)
