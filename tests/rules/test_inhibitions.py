"""What explains another alert mutes it, and nothing else: the table, the shipped file, and a real Alertmanager."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import yaml
from tests.helpers import free_port, wait_until
from tests.notify.test_alertmanager import ALERTMANAGER, answers, process

from trainvitals.generate.alerts import ALERTS
from trainvitals.generate.inhibitions import INHIBITIONS, inhibit_rules

SHIPPED = Path(__file__).parents[2] / "deploy/alertmanager/alertmanager.yml"
BY_NAME = {alert.name.removeprefix("Trainvitals"): alert for alert in ALERTS}
GRAVITY = {"info": 0, "warning": 1, "critical": 2}
#: They page nobody and stand for alerts that do.
STAND_INS = {"RunOnFaultyDevice", "RunOnFaultyNode"}


def labels_of(name):
    """Return the labels that an alert keeps from its expression."""
    kept = re.match(r"\s*\(?\s*(?:count|max|min|sum) by \(([^)]*)\)", BY_NAME[name].expr)
    return set(kept[1].split(", ")) if kept else set()


def effects_of(inhibition):
    """Return the names that a row mutes."""
    others = {name for name in BY_NAME if set(inhibition.equal) <= labels_of(name)} - set(inhibition.causes)
    return inhibition.effects or tuple(sorted(others))


PAIRS = [
    (inhibition, cause, effect)
    for inhibition in INHIBITIONS
    for cause in inhibition.causes
    for effect in effects_of(inhibition)
    if cause != effect
]


def test_the_shipped_file_has_the_table():
    """deploy/alertmanager/alertmanager.yml, which people change, has the same rules in the same order."""
    assert yaml.safe_load(SHIPPED.read_text())["inhibit_rules"] == inhibit_rules()


def test_causes_are_no_less_grave_and_share_their_labels():
    """No warning mutes what is critical; a label that both sides lack would mute other runs and nodes."""
    for inhibition, cause, effect in PAIRS:
        assert set(inhibition.equal) <= labels_of(cause), cause
        assert set(inhibition.equal) <= labels_of(effect), effect
        if cause not in STAND_INS:
            assert GRAVITY[BY_NAME[cause].severity] >= GRAVITY[BY_NAME[effect].severity], (cause, effect)


def test_no_two_alerts_mute_each_other():
    """Each would wait for the other to be told."""
    direct = {(cause, effect) for _, cause, effect in PAIRS}

    assert not {(cause, effect) for cause, effect in direct if (effect, cause) in direct}


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory):
    """Run Alertmanager with the shipped inhibitions and nobody to tell; return its address."""
    if ALERTMANAGER is None:
        pytest.skip("alertmanager is not installed")
    folder, port = tmp_path_factory.mktemp("alertmanager"), free_port()
    config = {
        "route": {"receiver": "nobody"},
        "receivers": [{"name": "nobody"}],
        "inhibit_rules": yaml.safe_load(SHIPPED.read_text())["inhibit_rules"],
    }
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
    with process(
        ALERTMANAGER,
        f"--config.file={folder}/alertmanager.yml",
        f"--storage.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ):
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(f"{address}/-/ready"))
        yield address


def alert(name, where, **others):
    """Return an alert as Prometheus sends it; its labels have values of this place, but for some others."""
    labels = {label: f"{label} {where}" for label in labels_of(name)} | others
    now = datetime.now(timezone.utc)
    return {
        "labels": {"alertname": f"Trainvitals{name}", "severity": BY_NAME[name].severity, **labels},
        "startsAt": (now - timedelta(minutes=1)).isoformat(),
        "endsAt": (now + timedelta(hours=1)).isoformat(),
    }


def states(address):
    """Return whether each alert that Alertmanager knows is muted, by its labels."""
    found = json.loads(answers(f"{address}/api/v2/alerts") or b"[]")
    return {tuple(sorted(each["labels"].items())): bool(each["status"]["inhibitedBy"]) for each in found}


def key(sent):
    """Return what an alert is known by."""
    return tuple(sorted(sent["labels"].items()))


def test_each_cause_mutes_its_effects_there_and_nowhere_else(alertmanager):
    """For every pair: muted beside the cause; told on another run, node or device; the cause itself is told."""
    muted, told = [], []
    for number, (inhibition, cause, effect) in enumerate(PAIRS):
        here = f"{number}"
        shared = {label: f"{label} {here}" for label in inhibition.equal}
        told.append(alert(cause, f"{here} cause", **shared))
        muted.append(alert(effect, f"{here} effect", **shared))
        # In each label once another: another run, another node, another device of the node.
        told += [
            alert(effect, f"{here} not {label}", **{**shared, label: f"another {label} {here}"})
            for label in inhibition.equal
        ]
    for sent in (told, muted):
        for start in range(0, len(sent), 50):
            assert answers(f"{alertmanager}/api/v2/alerts", json.dumps(sent[start : start + 50]).encode())
    wait_until(lambda: len(states(alertmanager)) == len(told) + len(muted))
    expected = {key(sent): False for sent in told} | {key(sent): True for sent in muted}
    # Inhibition is computed when Alertmanager is asked, by what it has taken in so far.
    wait_until(lambda: states(alertmanager) == expected)

    assert len(PAIRS) > 100
    assert states(alertmanager) == expected
