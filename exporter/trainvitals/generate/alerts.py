"""The table of alerts, in the order in which a person should look at them."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.generate.alerts_clock import CLOCK
from trainvitals.generate.alerts_data import DATA
from trainvitals.generate.alerts_evaluations import EVALUATIONS
from trainvitals.generate.alerts_fabric import FABRIC
from trainvitals.generate.alerts_faults import FAULTS
from trainvitals.generate.alerts_host import HOST
from trainvitals.generate.alerts_infiniband import INFINIBAND
from trainvitals.generate.alerts_kernel import KERNEL
from trainvitals.generate.alerts_learning import LEARNING
from trainvitals.generate.alerts_links import LINKS
from trainvitals.generate.alerts_logs import LOGS
from trainvitals.generate.alerts_meta import META
from trainvitals.generate.alerts_network import NETWORK
from trainvitals.generate.alerts_nodes import NODES
from trainvitals.generate.alerts_pace import PACE
from trainvitals.generate.alerts_parameter import PARAMETER
from trainvitals.generate.alerts_runs import RUNS
from trainvitals.generate.alerts_space import SPACE
from trainvitals.generate.alerts_storage import STORAGE
from trainvitals.generate.alerts_wear import WEAR
from trainvitals.generate.records import RECORDS
from trainvitals.generate.rules import MINUTE, Alert, file_of_rules
from trainvitals.generate.threshold_file import changed
from trainvitals.generate.thresholds import DEFAULTS, Thresholds

_DEVICES = (*NODES, *FAULTS, *WEAR, *LINKS, *FABRIC)
_HOSTS = (*INFINIBAND, *NETWORK, *STORAGE, *SPACE, *HOST, *KERNEL, *CLOCK)
ROWS: tuple[Alert, ...] = (*PARAMETER, *LEARNING, *EVALUATIONS, *DATA, *RUNS, *PACE, *LOGS, *_DEVICES, *_HOSTS, *META)

#: The rule files besides recording.yml.
FILES = ("resource", "hardware", "data", "parameter", "meta")
#: Rules that wait for minutes anyway and look at many series of each rank, device or node: once a minute is enough, and
#: a quarter of the cost (docs/fleet.md).  Those about hardware are all of this kind; of the others, these.
_PATIENT = frozenset(
    {
        *("TrainvitalsStepStalled", "TrainvitalsCollectiveStalled", "TrainvitalsCheckpointFailed"),
        *("TrainvitalsCheckpointOverdue", "TrainvitalsGoodputLow", "TrainvitalsGoodputBelowBudget"),
        *("TrainvitalsRunOnFaultyDevice", "TrainvitalsRunOnFaultyNode", "TrainvitalsDevicesIdle"),
        *("TrainvitalsHostMemoryLow", "TrainvitalsLogSilent", "TrainvitalsSnapshotStale"),
        *("TrainvitalsCollectorFailed", "TrainvitalsRecordsLost", "TrainvitalsSeriesDropped"),
        *("TrainvitalsRankFilesRejected", "TrainvitalsProbeDisabled", "TrainvitalsJournalNotWritten"),
        *("TrainvitalsStateErrors", "TrainvitalsFamiliesFailed"),
    }
)


def alerts(thresholds: Thresholds) -> tuple[Alert, ...]:
    """Return all alerts with the numbers of some thresholds."""
    return tuple(_paced(row).at(thresholds) for row in ROWS)


def _paced(row: Alert) -> Alert:
    return replace(row, every=MINUTE) if row.file == "hardware" or row.name in _PATIENT else row


#: The alerts as they are shipped.
ALERTS = alerts(DEFAULTS)


def rule_files(thresholds: Thresholds = DEFAULTS) -> dict[str, str]:
    """Return the rule files by name: recording.yml and one per kind of alert; their heads name what is no default."""
    found = alerts(thresholds)
    own = ", ".join(f"{name}: {value}" for name, value in changed(thresholds).items())
    note = f"# Thresholds of this site: {own}\n" if own else ""
    files = {"recording.yml": file_of_rules("trainvitals-recording", RECORDS)}
    for name in FILES:
        rules = [alert for alert in found if alert.file == name]
        files[f"{name}.yml"] = file_of_rules(f"trainvitals-{name}", rules, note)
    return files
