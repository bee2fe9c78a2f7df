"""The detectors of evaluations on real logs, where those are at hand, read as the check-up reads them."""

from __future__ import annotations

import csv

import pytest
from tests.follow.test_real import DATA

from trainvitals.detect.decoupled import MetricDecoupled
from trainvitals.detect.forgetting import Forgetting
from trainvitals.detect.leakage import LeakageSuspected
from trainvitals.detect.mismatch import EvaluationMismatch
from trainvitals.detect.overfitting import Overfitting
from trainvitals.diagnose.read import read
from trainvitals.diagnose.report import make

needs_logs = pytest.mark.skipif(not (DATA / "MANIFEST.tsv").exists(), reason=f"there are no logs in {DATA}")
#: What has evaluations; the other kinds are of machines and of crashes.
KINDS = {
    "hf_trainer_state",
    "issue_recon",
    "keras_csv",
    "lightning_csv",
    "llamafactory_log",
    "mmengine_json",
    "ms_swift_logging",
    "stdout_steps",
    "tfevents",
    "ultralytics_csv",
}


def build():
    """Return the five."""
    return [Overfitting(), EvaluationMismatch(), LeakageSuspected(), MetricDecoupled(), Forgetting()]


def findings(label, severities=("info", "warning", "critical")):
    """Return, for each log with this label, the signals that were active at any time, and their first steps."""
    with (DATA / "MANIFEST.tsv").open() as manifest:
        rows = list(csv.DictReader(manifest, delimiter="\t", quoting=csv.QUOTE_NONE))
    names = {detector.signal for detector in build()}
    return {
        row["file"]: {
            signal.signal: signal.since_step
            for run in make(read([str(DATA / row["file"])], build)).runs
            for signal in run.signals
            if signal.signal in names and signal.is_finding and signal.severity in severities
        }
        for row in rows
        if row["label"] == label and row["kind"] in KINDS
    }


@needs_logs
def test_healthy_logs_have_no_warning():
    """Not one in more than 60 logs."""
    found = findings("healthy", ("warning", "critical"))
    assert len(found) > 60
    assert {file: signals for file, signals in found.items() if signals} == {}


@needs_logs
def test_labelled_overfitting_is_found():
    """In all of them, and nothing else is."""
    found = findings("overfit")
    assert len(found) >= 11
    assert {tuple(signals) for signals in found.values()} == {("overfitting",)}


@needs_logs
def test_a_metric_that_stands_still_is_found():
    """Two of the three are one run with three evaluations, each of them worse than the one before."""
    found = [signals for signals in findings("metric_not_improving").values() if signals]
    assert sorted(signals["metric_decoupled"] for signals in found) == [0, 0, 26]
