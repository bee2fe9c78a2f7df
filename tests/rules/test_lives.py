"""Every alert fires, does not fire, recovers, ends when its series disappear, and outlives a restart of the exporter.

The last three are made from the alert's own firing case, so that a new alert has them with its first case.
"""

from __future__ import annotations

from functools import cache

import pytest
import yaml
from tests.rules import lives
from tests.rules.test_rules import NEVER_QUIET, needs_promtool, run_against

from trainvitals.generate.alerts import ALERTS

BY_NAME = {alert.name: alert for alert in ALERTS}
FILES = sorted(path.stem for path in lives.HERE.glob("*.yml"))
WATCHDOG = "always on by design"

#: What a way of life does not hold for, and why.
EXCEPTIONS = {
    "disappeared": {
        "TrainvitalsWatchdog": WATCHDOG,
    },
    "quiet_again": {
        "TrainvitalsWatchdog": WATCHDOG,
    },
    "restarted": {
        "TrainvitalsWatchdog": WATCHDOG,
        "TrainvitalsNoExporter": "it says that none is left, and ends when one restarts",
    },
}


@cache
def chosen():
    """Return the case that stands for each alert: the one with the finest samples."""
    return {name: min(cases, key=lambda fires: fires.interval) for name, cases in lives.firing_cases().items()}


def to_make(way):
    """Return the alerts whose life is made in a way: those that are no exception, and have not been shown by hand."""
    by_hand = {name for name, cases in lives.firing_cases().items() if any(map(lives.ends_by_itself, cases))}
    return set(BY_NAME) - set(EXCEPTIONS[way]) - (by_hand if way == "quiet_again" else set())


@needs_promtool
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("way", EXCEPTIONS)
def test_lives(way, file, tmp_path):
    """Each alert that fires in the file lives on as it should."""
    names = sorted(name for name in to_make(way) if chosen()[name].file == file)
    if not names:
        pytest.skip("no alert fires in this file first")
    make = getattr(lives, way)
    tests = [{"name": name, **make(chosen()[name], BY_NAME[name])} for name in names]
    pace = yaml.safe_load((lives.HERE / f"{file}.yml").read_text())["evaluation_interval"]
    document = {"evaluation_interval": "15s" if way == "restarted" else pace, "tests": tests}

    run_against(tmp_path, document, f"{file.split('_')[0]}.yml")


def test_every_alert_has_a_life():
    """Each alert has a firing case to make its lives from, and no exception is one of an alert that is gone."""
    assert set(chosen()) == set(BY_NAME)
    for way, exceptions in EXCEPTIONS.items():
        assert set(exceptions) <= set(BY_NAME), way
        assert all(exceptions.values()), way
    assert NEVER_QUIET <= set(EXCEPTIONS["quiet_again"])


def test_values_are_read_as_promtool_does():
    """Steps, repetitions, gaps and ends; written again they are the same."""
    assert [1, 1, 1, "_", "_", 5, 8, 11, -2, "stale"] == lives.expand("1x2 _x2 5+3x2 -2 stale")
    assert lives.written(lives.expand("1x2 _x2 5+3x2 -2 stale")) == "1.0x2 _x2 5.0 8.0 11.0 -2.0 stale"
    assert lives.seconds("24h20m30s") == 87630
    assert lives.longest_look_back("rate(x[5m]) and max_over_time(y[1d:10m]) and z offset 1h") == 86400
