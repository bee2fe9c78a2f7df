"""From an answer of Prometheus to the numbers on the terminal."""

from __future__ import annotations

import math

from trainvitals.bundle.vitals import Vitals, parse


def series(name, value, **labels):
    """Return one entry of an instant query's result."""
    return {"metric": {"__name__": name, **labels}, "value": [0, value]}


def test_gauges_numbers_and_alerts_are_gathered_by_run():
    """The lowest rank speaks for the run; NaN is a number."""
    result = [
        series("run:trainvitals_progress:ratio", "0.3", run="b"),
        series("run:trainvitals_health:ratio", "1", run="b"),
        series("trainvitals_step", "30", run="b", rank="0", instance="x"),
        series("trainvitals_step", "31", run="b", rank="10", instance="x"),
        series("trainvitals_loss", "NaN", run="b", rank="0"),
        series("ALERTS", "1", run="b", alertname="TrainvitalsLossNonfinite", alertstate="firing"),
        series("ALERTS", "1", alertname="TrainvitalsExporterDown", alertstate="firing"),
        series("run:trainvitals_learning:ratio", "0.5", run="a"),
    ]
    a, b = parse(result)
    assert a == Vitals("a", {"learning": 0.5})
    assert math.isnan(b.numbers.pop("loss"))
    assert b == Vitals("b", {"progress": 0.3, "health": 1.0}, {"step": 30.0}, ["TrainvitalsLossNonfinite"])


def test_without_a_run_there_is_nothing():
    """An alert that outlives its run is no run."""
    assert parse([]) == []
    assert parse([series("ALERTS", "1", run="gone", alertname="X", alertstate="firing")]) == []
