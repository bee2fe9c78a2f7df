"""The catalogue: every metric family that the exporter can show, written once.

The scrape, the recording and alert rules, the dashboards and docs/metrics.md read it.
Conventions: prefix ``trainvitals_``, base units, ``_total`` for counters, ``_ratio`` from 0 to 1, ``_info`` for
strings, ``_timestamp_seconds`` for points in time.  Missing is absent: never 0, -1 or NaN for "could not read".
One file per subject; a new one is a row in ``_SUBJECTS``.
"""

from __future__ import annotations

from trainvitals.metrics import (
    attribution,
    changes,
    devices,
    exporter,
    faults,
    host,
    journal,
    kernel,
    logs,
    network,
    notify,
    runs,
    storage,
)
from trainvitals.metrics.family import PREFIX, Family
from trainvitals.metrics.runs import LOGGED_STATES, PROBED_STATES

__all__ = ["FAMILIES", "LOGGED_STATES", "PREFIX", "PROBED_STATES", "STEP_BUCKETS", "Family"]

#: Upper bounds in seconds for the time of a step: from a toy on a CPU to a 100-billion model (BLOOM: 106 s).
STEP_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)

#: In the order of docs/metrics.md.
_SUBJECTS = (
    *(runs, changes, logs, devices, faults, attribution, host, storage, network),
    *(kernel, journal, exporter, notify),
)

FAMILIES: dict[str, Family] = {family.name: family for subject in _SUBJECTS for family in subject.FAMILIES}
