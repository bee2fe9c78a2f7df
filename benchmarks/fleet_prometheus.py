"""A real Prometheus with the shipped settings and rules, which scrapes nodes of one server by their paths."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import yaml
from benchmarks.fleet_server import Fleet

from trainvitals.generate.alerts import rule_files
from trainvitals.generate.rules import JOB

_SHIPPED = Path(__file__).resolve().parent.parent / "deploy" / "prometheus" / "prometheus.yml"
_READY_SECONDS = 120.0
#: Nodes that begin at one time.
_TOGETHER = 125


@contextlib.contextmanager
def running(binary: str, folder: Path, port: int, nodes: int) -> Iterator[Prometheus]:
    """Run it with its files in a folder until the end of the block; node N is ``/N`` of that port."""
    shipped = yaml.safe_load(_SHIPPED.read_text())
    (folder / "prometheus.yml").write_text(yaml.safe_dump(_settings(shipped, folder, port, nodes)))
    for name, text in rule_files().items():
        (folder / name).write_text(text)
    command = [binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with open(folder / "log", "wb") as log:
        child = subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stderr=log, stdout=log)
    try:
        interval = int(shipped["global"]["evaluation_interval"].removesuffix("s"))
        yield Prometheus(_wait_until_ready(child, folder / "log"), child.pid, nodes, interval)
    finally:
        child.terminate()
        try:
            child.wait(timeout=60)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _settings(shipped: dict[str, Any], folder: Path, port: int, nodes: int) -> dict[str, Any]:
    """Return what is shipped, with the nodes as targets."""
    job = next(job for job in shipped["scrape_configs"] if job["job_name"] == JOB)
    targets = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {"instance": f"node{node}:20910", "__metrics_path__": f"/{node}"},
        }
        for node in range(nodes)
    ]
    return {
        "global": shipped["global"],
        "rule_files": [f"{folder}/{name}" for name in rule_files()],
        "scrape_configs": [
            {
                **{name: job[name] for name in job if not name.endswith(("_sd_configs", "relabel_configs"))},
                "static_configs": targets,
            }
        ],
    }


def _wait_until_ready(child: subprocess.Popen[bytes], log: Path) -> str:
    """Return its address once it answers."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        places = psutil.Process(child.pid).net_connections("tcp")
        for port in (place.laddr.port for place in places if place.status == psutil.CONN_LISTEN):
            with contextlib.suppress(OSError):
                _get(f"http://127.0.0.1:{port}/-/ready")
                return f"http://127.0.0.1:{port}"
        time.sleep(0.2)
    raise SystemExit(f"Prometheus did not start:\n{log.read_text()}")


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


class Prometheus:
    """What a running one says; ``interval`` are the seconds between two evaluations."""

    def __init__(self, url: str, pid: int, nodes: int, interval: int) -> None:
        self.nodes = nodes
        self.interval = interval
        self.began = time.monotonic()
        self._url = url
        self._process = psutil.Process(pid)

    def version(self) -> str:
        """Return its version."""
        version: str = json.loads(_get(f"{self._url}/api/v1/status/buildinfo"))["data"]["version"]
        return version

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and values of an instant query."""
        answer = json.loads(_get(f"{self._url}/api/v1/query?" + urllib.parse.urlencode({"query": expr})))
        return [(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]

    def fill(self, fleet: Fleet) -> None:
        """Let nodes begin, some at a time as new series cost more than known ones, and wait until all are scraped."""
        while fleet.begun < self.nodes:
            fleet.begun = min(self.nodes, fleet.begun + _TOGETHER)
            deadline = time.monotonic() + _READY_SECONDS
            while sum(value for _, value in self.query(f'up{{job="{JOB}"}}')) < fleet.begun:
                if time.monotonic() > deadline:
                    raise SystemExit(f"Prometheus does not keep up with {fleet.begun} nodes")
                time.sleep(1)

    def metric(self, name: str) -> float:
        """Return the sum of what it says about itself under a name."""
        values = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", _get(f"{self._url}/metrics"), re.MULTILINE)
        return sum(map(float, values))

    def cycle(self) -> tuple[float, float]:
        """Return the seconds of the last evaluation of all groups together, and the share of the time that they take.

        Some groups are evaluated less often than others: the share counts that, the seconds do not.
        """
        seconds = self._by_group("last_duration")
        intervals = self._by_group("interval")
        return sum(seconds.values()), sum(seconds[group] / intervals[group] for group in seconds)

    def _by_group(self, name: str) -> dict[str, float]:
        text = _get(f"{self._url}/metrics")
        found = re.findall(rf'^prometheus_rule_group_{name}_seconds\{{rule_group="(.*)"\}} (\S+)$', text, re.MULTILINE)
        return {group: float(seconds) for group, seconds in found}

    def rules(self) -> list[tuple[str, float]]:
        """Return the name of each rule and the seconds of its last evaluation."""
        groups = json.loads(_get(f"{self._url}/api/v1/rules"))["data"]["groups"]
        return [(rule["name"], rule["evaluationTime"]) for group in groups for rule in group["rules"]]

    def rss(self) -> int:
        """Return the bytes of memory that it holds."""
        size: int = self._process.memory_info().rss
        return size

    def cpu_seconds(self) -> float:
        """Return the processor time that it used."""
        times = self._process.cpu_times()
        seconds: float = times.user + times.system
        return seconds
