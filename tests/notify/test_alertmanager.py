"""The notifier as a process behind a real Alertmanager: none lost, none doubled, whatever fails in between."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

import pytest
import yaml
from tests.helpers import free_port, wait_until
from tests.notify.robots import Robots, settings

ALERTMANAGER = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")
KINDS = ("dingtalk", "feishu", "wecom")


def answers(url, data=None):
    """Return what a server answers, or None."""
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read() or b"nothing"
    except OSError:
        return None


@contextmanager
def process(*command):
    """Run a program and end it."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def notifier(config, port):
    """Start the notifier."""
    return process(
        sys.executable, "-m", "trainvitals", "notify", "--config.file", str(config), "--web.listen-address",
        f"127.0.0.1:{port}",
    )  # fmt: skip


@pytest.fixture
def alertmanager(tmp_path):
    """Run Alertmanager with a receiver of one webhook for each robot; return its address and the notifier's port."""
    if ALERTMANAGER is None:
        pytest.skip("alertmanager is not installed")
    port, ours = free_port(), free_port()
    urls = [f"http://127.0.0.1:{ours}/alertmanager/{kind}" for kind in KINDS]
    config = {
        "route": {"receiver": "robots", "group_by": ["alertname", "run"], "group_wait": "1s", "group_interval": "5s"},
        "receivers": [{"name": "robots", "webhook_configs": [{"url": url} for url in urls]}],
    }
    (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(config))
    with process(
        ALERTMANAGER,
        f"--config.file={tmp_path}/alertmanager.yml",
        f"--storage.path={tmp_path}/alertmanager",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ):
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(f"{address}/-/ready"))
        yield address, ours


def post(address, *, ended):
    """Tell Alertmanager of an alert, or of its end."""
    now = datetime.now(timezone.utc)
    alert = {
        "labels": {"alertname": "TrainvitalsLossNonfinite", "severity": "critical", "run": "llm-7b"},
        "annotations": {
            "summary": "Loss is NaN", "summary_zh": "损失为 NaN",
            "description": "since step 1200", "description_zh": "自第 1200 步起",
            "action": "Go back to step 1000.", "action_zh": "回退到第 1000 步。",
        },
        "startsAt": (now - timedelta(minutes=1)).isoformat(),
        "endsAt": (now - timedelta(seconds=1) if ended else now + timedelta(hours=1)).isoformat(),
    }  # fmt: skip
    assert answers(f"{address}/api/v2/alerts", json.dumps([alert]).encode())


def told(robots, word):
    """Return how often each robot was told something."""
    return Counter(kind for kind, title, _ in robots.taken if word in title)


def test_each_robot_is_told_once_of_the_alert_and_once_of_its_end(alertmanager, tmp_path):
    """The robots are busy at first, one wants quiet, and the notifier is killed and started again meanwhile."""
    address, port = alertmanager
    with Robots() as robots:
        config = tmp_path / "notify.yml"
        config.write_text(yaml.safe_dump(settings(robots, tmp_path)))
        robots.answers = [
            (200, {"errcode": -1, "code": -1}),
            (503, b"down"),
            None,
            (200, {"errcode": 45033, "code": 45033}),
            (200, b"<html>"),
        ]
        with notifier(config, port) as first:
            wait_until(lambda: answers(f"http://127.0.0.1:{port}/-/ready"))
            post(address, ended=False)
            # Who dies between a robot's yes and his own record tells it again: robots know no "again".
            wait_until(
                lambda: b'"} 1.0' in (answers(f"http://127.0.0.1:{port}/metrics") or b"").partition(b"sent_total{")[2]
            )
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
        with notifier(config, port):
            wait_until(lambda: len(told(robots, "FIRING")) == len(KINDS))
            post(address, ended=True)
            wait_until(lambda: len(told(robots, "RESOLVED")) == len(KINDS))
            assert told(robots, "FIRING") == Counter(dict.fromkeys(KINDS, 1))
            assert told(robots, "RESOLVED") == Counter(dict.fromkeys(KINDS, 1))
    assert not robots.answers


def test_a_sample_goes_to_every_target(tmp_path):
    """`--test` says of each what became of it, and fails where one did not take it."""
    with Robots() as robots:
        config = tmp_path / "notify.yml"
        config.write_text(yaml.safe_dump(settings(robots, tmp_path)))
        command = [sys.executable, "-m", "trainvitals", "notify", "--config.file", str(config)]

        good = subprocess.run([*command, "--test"], capture_output=True, text=True, check=False)
        (tmp_path / "ding2").write_text("another\n")
        bad = subprocess.run([*command, "--test"], capture_output=True, text=True, check=False)

    assert (good.returncode, good.stdout.count(": sent\n")) == (0, 6)
    assert bad.returncode == 1
    assert "dingtalk/dingtalk: signature" in bad.stdout.splitlines()
    assert "SEC" not in good.stderr + bad.stderr
    assert "ding-token" not in good.stderr + bad.stderr


def test_the_files_of_secrets_are_checked(tmp_path):
    """`--check` names each that cannot be read."""
    with Robots() as robots:
        config = tmp_path / "notify.yml"
        config.write_text(yaml.safe_dump(settings(robots, tmp_path)))
    command = [sys.executable, "-m", "trainvitals", "notify", "--config.file", str(config), "--check"]

    good = subprocess.run(command, capture_output=True, text=True, check=False)
    (tmp_path / "we").unlink()
    bad = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (good.returncode, good.stdout) == (0, "4 receivers: good\n")
    assert bad.returncode == 2
    assert f"wecom: wecom: key_file: {tmp_path}/we: cannot be read: No such file or directory\n" in bad.stdout
