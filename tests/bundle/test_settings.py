"""What is written for Prometheus and Alertmanager, checked by their own tools."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from trainvitals.bundle import settings
from trainvitals.generate.messages import mail_template


def run(*command):
    """Run a tool; return its exit code and what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def promtool():
    """The path of promtool."""
    return shutil.which("promtool") or pytest.skip("promtool is not on PATH")


@pytest.fixture
def amtool():
    """The path of amtool."""
    return shutil.which("amtool") or pytest.skip("amtool is not on PATH")


@pytest.mark.parametrize("pace", [settings.USUAL, settings.DEMO], ids=["usual", "demo"])
@pytest.mark.parametrize("alertmanager", ["127.0.0.1:9093", None])
def test_prometheus_takes_its_settings_and_the_rules(tmp_path, promtool, pace, alertmanager):
    """`promtool check config` reads prometheus.yml and every rule file that it names."""
    rules = settings.rules(pace)
    settings.write(tmp_path / "rules", rules)
    text = settings.prometheus(pace, exporter="127.0.0.1:20910", alertmanager=alertmanager, rules=tmp_path / "rules")
    settings.write(tmp_path, {"prometheus.yml": text})
    code, said = run(promtool, "check", "config", str(tmp_path / "prometheus.yml"))
    assert code == 0, said
    assert said.count("rules found") == len(rules)
    assert ("alerting" in yaml.safe_load(text)) == (alertmanager is not None)


@pytest.mark.parametrize("mail", ["127.0.0.1:2525", None])
def test_alertmanager_takes_its_settings_and_the_templates(tmp_path, amtool, mail):
    """`amtool check-config` reads alertmanager.yml and the templates that it names."""
    settings.write(tmp_path / "templates", {"trainvitals.tmpl": mail_template()})
    text = settings.alertmanager(
        settings.DEMO, webhook="http://127.0.0.1:1/", mail=mail, templates=tmp_path / "templates"
    )
    settings.write(tmp_path, {"alertmanager.yml": text})
    code, said = run(amtool, "check-config", str(tmp_path / "alertmanager.yml"))
    assert code == 0, said
    assert "1 templates" in said
    terminal = yaml.safe_load(text)["receivers"][0]
    assert ("email_configs" in terminal) == (mail is not None)


@pytest.mark.parametrize(
    ("alert", "receiver"), [("TrainvitalsLossNonfinite", "terminal"), ("TrainvitalsWatchdog", "nobody")]
)
def test_every_alert_but_the_watchdog_is_shown(tmp_path, amtool, alert, receiver):
    """The watchdog is always on and would only be noise in a terminal."""
    text = settings.alertmanager(settings.DEMO, webhook="http://127.0.0.1:1/", mail=None, templates=tmp_path)
    settings.write(tmp_path, {"alertmanager.yml": text})
    file = f"--config.file={tmp_path / 'alertmanager.yml'}"
    code, said = run(amtool, "config", "routes", "test", file, f"alertname={alert}", "run=demo")
    assert (code, said.splitlines()[0]) == (0, receiver)


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        ("alertname=TrainvitalsLossNonfinite severity=critical run=demo", "robots,terminal"),
        ("alertname=TrainvitalsLossSpike severity=warning run=demo", "robots,terminal"),
        ("alertname=TrainvitalsPlateau severity=info run=demo", "terminal"),
        ("alertname=TrainvitalsWatchdog severity=info", "nobody"),
    ],
)
def test_robots_are_told_what_is_more_than_information(tmp_path, amtool, labels, receivers):
    """The terminal shows all that is shown without them."""
    urls = ["http://127.0.0.1:20911/alertmanager/dingtalk", "http://127.0.0.1:20911/alertmanager/wecom"]
    text = settings.alertmanager(
        settings.USUAL, webhook="http://127.0.0.1:1/", mail=None, templates=tmp_path, robots=urls
    )
    settings.write(tmp_path, {"alertmanager.yml": text})

    file = f"--config.file={tmp_path / 'alertmanager.yml'}"
    code, said = run(amtool, "config", "routes", "test", file, *labels.split())

    assert (code, said.splitlines()[0]) == (0, receivers)
    (people,) = (receiver for receiver in yaml.safe_load(text)["receivers"] if receiver["name"] == "robots")
    assert people["webhook_configs"] == [{"url": url, "send_resolved": True} for url in urls]


def test_what_explains_another_alert_quiets_it_here_too(tmp_path):
    """The inhibitions are those of deploy/, so a learning rate that is too high is not told of three times."""
    text = settings.alertmanager(settings.DEMO, webhook="http://127.0.0.1:1/", mail=None, templates=tmp_path)
    shipped = Path(__file__).parents[2] / "deploy/alertmanager/alertmanager.yml"

    assert yaml.safe_load(text)["inhibit_rules"] == yaml.safe_load(shipped.read_text())["inhibit_rules"]


def test_the_demo_holds_its_alerts_for_a_short_time_only():
    """Somebody is waiting for "resolved"; apart from that the rules are the same."""

    def flat(files):
        return [rule for text in files.values() for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]

    usual, demo = flat(settings.rules(settings.USUAL)), flat(settings.rules(settings.DEMO))
    held = [rule for rule in demo if "keep_firing_for" in rule]
    assert held
    assert {rule["keep_firing_for"] for rule in held} == {"15s"}
    without = [[{k: v for k, v in rule.items() if k != "keep_firing_for"} for rule in rules] for rules in (usual, demo)]
    assert without[0] == without[1]


@pytest.mark.parametrize("pace", [settings.USUAL, settings.DEMO], ids=["usual", "demo"])
def test_all_rules_are_evaluated_at_the_pace(pace):
    """A fleet evaluates some seldom, to spare its Prometheus; on one machine nobody shall wait a minute for them."""
    groups = [group for text in settings.rules(pace).values() for group in yaml.safe_load(text)["groups"]]

    assert groups
    assert [group["name"] for group in groups if "interval" in group] == []


def test_files_of_an_earlier_start_are_removed(tmp_path):
    """A rule that no longer exists must not live on in a data folder that is kept."""
    settings.write(tmp_path, {"old.yml": "", "same.yml": "1"})
    (tmp_path / "data").mkdir()
    settings.write(tmp_path, {"same.yml": "2"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "same.yml"]
    assert (tmp_path / "same.yml").read_text() == "2"
