"""The configuration in deploy/: valid for promtool and amtool, and consistent with the rules and with each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from trainvitals.generate.alerts import ALERTS
from trainvitals.generate.rules import JOB

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NAMES = {alert.name for alert in ALERTS}

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
needs_amtool = pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed")


def read(path):
    """Return a YAML file below deploy/."""
    return yaml.safe_load((DEPLOY / path).read_text())


def output(*command):
    """Run a tool and return what it wrote; fail with its complaint."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_prometheus_accepts_its_configuration(tmp_path):
    """Promtool reads the configuration with the committed rules at the place where compose mounts them."""
    text = (DEPLOY / "prometheus/prometheus.yml").read_text()
    assert text.count("/etc/prometheus/rules/") == 1
    (tmp_path / "targets").mkdir()
    shutil.copy(DEPLOY / "prometheus/targets/nodes.yml.example", tmp_path / "targets/nodes.yml")
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace("/etc/prometheus/rules/", f"{ROOT}/alert_rules/"))

    said = output("promtool", "check", "config", str(config))

    assert "6 rule files found" in said
    assert "WARNING" not in said


def test_the_job_is_named_as_the_rules_expect():
    """`up` is known by the name of the job alone."""
    jobs = {job["job_name"]: job for job in read("prometheus/prometheus.yml")["scrape_configs"]}

    assert jobs[JOB]["static_configs"] == [{"targets": ["exporter:20910"]}]


def test_grafana_knows_the_scrape_interval_and_the_folder_of_dashboards():
    """A rate in Grafana spans at least four scrapes only if it knows their interval."""
    (source,) = read("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    providers = read("grafana/provisioning/dashboards/trainvitals.yml")["providers"]

    assert source["jsonData"]["timeInterval"] == read("prometheus/prometheus.yml")["global"]["scrape_interval"]
    assert source["uid"] == "trainvitals-prometheus"
    assert source["url"] == "http://prometheus:9090"
    assert ["/var/lib/grafana/dashboards/en", "/var/lib/grafana/dashboards/zh"] == [
        provider["options"]["path"] for provider in providers
    ]
    assert {False} == {provider["allowUiUpdates"] for provider in providers}


@needs_amtool
def test_alertmanager_accepts_its_configuration():
    """Amtool reads the configuration and finds the template."""
    said = output("amtool", "check-config", str(DEPLOY / "alertmanager/alertmanager.yml"))

    assert "SUCCESS" in said
    assert "1 templates" in said


@needs_amtool
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=TrainvitalsWatchdog severity=info", "nobody"),
        ("alertname=TrainvitalsLossNonfinite severity=critical category=parameter", "team"),
        ("alertname=TrainvitalsLossSpike severity=warning category=parameter", "team"),
        ("alertname=TrainvitalsDataStarvation severity=warning category=data", "team"),
        ("alertname=TrainvitalsHostMemoryLow severity=warning category=resource", "team"),
    ],
)
def test_routes(labels, receiver):
    """Every alert reaches the team but the one that is always on."""
    config = str(DEPLOY / "alertmanager/alertmanager.yml")

    assert receiver == output("amtool", "config", "routes", "test", "--config.file", config, *labels.split()).strip()


def test_one_message_per_alert_and_run():
    """A thousand ranks are one message."""
    assert read("alertmanager/alertmanager.yml")["route"]["group_by"] == ["alertname", "run"]


def test_alertmanager_keeps_no_secret_and_reaches_nobody_until_it_is_told():
    """Secrets come from files, and placeholders are names that never resolve."""
    text = (DEPLOY / "alertmanager/alertmanager.yml").read_text()
    settings = "\n".join(line.split(" #")[0] for line in text.splitlines() if not line.lstrip().startswith("#"))

    assert not re.search(r"(password|secret|credentials|token):", settings)
    assert re.findall(r"(?:://|@|smarthost: )([\w.]+)", settings)
    assert all(host.endswith(".invalid") for host in re.findall(r"(?:://|@|smarthost: )([\w.]+)", settings))


def rendered(template, kind, data, folder):
    """Return what Alertmanager makes of a template and some alerts."""
    file = folder / "data.json"
    file.write_text(json.dumps(data))
    command = ["amtool", "template", "render", f"--template.glob={DEPLOY}/alertmanager/templates/*.tmpl"]
    command += [f"--template.type={kind}", f'--template.text={{{{ template "{template}" . }}}}']
    return output(*command, f"--template.data={file}")


@pytest.fixture
def message():
    """Two alerts as Alertmanager hands them to its templates."""
    alert = {
        "status": "firing",
        "labels": {"alertname": "X", "run": "a<b>", "severity": "critical", "category": "data", "gauge": "learning"},
        "annotations": {
            "summary": "Run a<b>: broken",
            "summary_zh": "训练 a<b>:损坏",
            "description": "rank 1: since step 700 & on",
            "description_zh": "rank 1:自第 700 步",
            "action": "Drop the batch",
            "action_zh": "剔除该批次",
            "runbook_url": "https://example.org/alerts#x",
        },
        "startsAt": "2026-01-02T03:04:05Z",
        "endsAt": "2026-01-02T04:04:05Z",
    }
    return {
        "status": "firing",
        "alerts": [alert, {**alert, "status": "resolved"}],
        "groupLabels": {"alertname": "X", "run": "a<b>"},
        "commonLabels": {"severity": "critical", "run": "a<b>"},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
    }


@needs_amtool
def test_the_plain_mail_says_what_where_since_when_why_and_what_to_do(message, tmp_path):
    """One line each; a resolved alert says until when, and asks for nothing."""
    expected = """\
FIRING critical: Run a<b>: broken
Where: run=a<b>
Since: 2026-01-02 03:04:05 UTC
Evidence: rank 1: since step 700 & on
What to do: Drop the batch
Runbook: https://example.org/alerts#x

RESOLVED: Run a<b>: broken
Where: run=a<b>
Since: 2026-01-02 03:04:05 UTC
Until: 2026-01-02 04:04:05 UTC
Evidence: rank 1: since step 700 & on
Runbook: https://example.org/alerts#x

--
Silence: http://alertmanager:9093/#/silences/new?filter=%7Brun%3D%22a%3Cb%3E%22%2Cseverity%3D%22critical%22%7D
Sent by Alertmanager http://alertmanager:9093
"""
    text = rendered("trainvitals.text", "text", message, tmp_path)

    assert expected.split() == text.split()
    assert expected.splitlines() == [line.rstrip() for line in text.rstrip().splitlines()]


@needs_amtool
def test_subjects(message, tmp_path):
    """A subject is the summary that all alerts share, else the name of the group and how many there are."""
    assert rendered("trainvitals.subject", "text", message, tmp_path) == "[FIRING critical] X a<b> (2)"

    message["commonAnnotations"] = {"summary": "Run a<b>: broken", "summary_zh": "训练 a<b>:损坏"}
    assert rendered("trainvitals.subject", "text", message, tmp_path) == "[FIRING critical] Run a<b>: broken"
    assert rendered("trainvitals.subject_zh", "text", message, tmp_path) == "[告警 严重] 训练 a<b>:损坏"


@needs_amtool
@pytest.mark.parametrize(("suffix", "action"), [("", "Drop the batch"), ("_zh", "剔除该批次")])
def test_the_html_mail_says_the_same_and_escapes(message, suffix, action, tmp_path):
    """Names of runs are text of users: they never become markup."""
    html = rendered(f"trainvitals.html{suffix}", "html", message, tmp_path)

    assert f"<b>{action}</b>" in html
    assert "run=a&lt;b&gt;" in html
    assert "a<b>" not in html
    assert "2026-01-02 03:04:05 UTC" in html
    assert '<a href="https://example.org/alerts#x">' in html
    assert "#c92a2a" in html
