"""What a maker's exporter publishes goes in, our series come out: through a real Prometheus with the shipped rules.

Each file beside this one is an exporter: what it serves, and all that must be recorded, written out by hand.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import yaml
from tests.helpers import free_port

from trainvitals.generate.alerts import ALERTS
from trainvitals.generate.passthrough import MAPS, passthrough_files
from trainvitals.generate.passthrough.base import Map, Row, records

HERE = Path(__file__).parent
CASES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(HERE.glob("*.yml"))}
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")


def serve(address: str, text: str) -> ThreadingHTTPServer:
    """Serve a text at an address of the loopback range."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer((address, 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


class Prometheus:
    """A Prometheus that scrapes an exporter of each kind, as docs/passthrough.md says."""

    def __init__(self, folder: Path):
        self.servers = {
            job: serve(f"127.0.1.{place}", case["theirs"]) for place, (job, case) in enumerate(CASES.items(), 1)
        }
        self.instances = {job: f"{server.server_address[0]}:20910" for job, server in self.servers.items()}
        for name, text in passthrough_files().items():
            (folder / name).write_text(text)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(self._settings(folder)))
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stderr=subprocess.DEVNULL,
        )

    def _settings(self, folder: Path):
        # The snippet of the page, with other targets.
        page = (HERE.parents[1] / "docs/passthrough.md").read_text()
        (snippet,) = yaml.safe_load(re.search(r"```yaml\n(  - job_name: npu-exporter\n.*?)```", page, re.DOTALL)[1])
        jobs = [
            {
                **snippet,
                "job_name": job,
                "static_configs": [{"targets": [f"{server.server_address[0]}:{server.server_address[1]}"]}],
            }
            for job, server in self.servers.items()
        ]
        return {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / name) for name in passthrough_files()],
            "scrape_configs": jobs,
        }

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Return what an expression gives now: labels and value."""
        try:
            answer = httpx.get(f"{self._url}/api/v1/query", params={"query": expr})
        except httpx.TransportError:
            return []
        if answer.status_code == 503:  # It reads its log still.
            return []
        return [(one["metric"], float(one["value"][1])) for one in answer.json()["data"]["result"]]

    def series(self, job: str) -> dict[tuple, float]:
        """Return the series that are recorded for an exporter."""
        found = self.query(f'{{__name__=~"trainvitals_.*", instance="{self.instances[job]}"}}')
        return {tuple(sorted((*labels.items(),))): value for labels, value in found}

    def close(self):
        """Stop everything."""
        self._process.terminate()
        self._process.wait()
        for server in self.servers.values():
            server.shutdown()
            server.server_close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """Run it until it has recorded every exporter twice."""
    running = Prometheus(tmp_path_factory.mktemp("prometheus"))
    try:
        deadline = time.monotonic() + 60
        wanted = "count(count_over_time(trainvitals_devices_expected[5m]) >= 2)"
        while running.query(wanted)[:1] != [({}, float(len(CASES)))]:
            assert time.monotonic() < deadline, running.query("trainvitals_devices_expected")
            time.sleep(0.1)
        yield running
    finally:
        running.close()


def expected(job: str, instance: str) -> dict[tuple, float]:
    """Return the series that a file wants."""
    case = CASES[job]
    wanted = {}
    for device, family, labels, value in case["ours"]:
        identity = {"device": device, "uuid": case["devices"][device]} if device else {}
        whole = {"__name__": f"trainvitals_{family}", "instance": instance, **identity, **labels}
        wanted[tuple(sorted(whole.items()))] = float(value)
    return wanted


@needs_prometheus
@pytest.mark.parametrize("job", CASES)
def test_an_exporter_becomes_our_series(prometheus, job):
    """Exactly these, in base units, without what cannot be read; labels of pods and hosts are gone."""
    found, wanted = prometheus.series(job), expected(job, prometheus.instances[job])

    assert {labels for labels in found if labels not in wanted} == set()
    assert {labels for labels in wanted if labels not in found} == set()
    assert all(math.isclose(found[labels], value, rel_tol=1e-9) for labels, value in wanted.items()), found


@needs_prometheus
@pytest.mark.parametrize("job", [job for job, case in CASES.items() if "alerts" in case])
def test_our_alerts_see_what_the_exporter_sees(prometheus, job):
    """The expression of the alert, as it is shipped, names the device."""
    for name, devices in CASES[job]["alerts"].items():
        (alert,) = (one for one in ALERTS if one.name == name)
        found = [
            labels for labels, _ in prometheus.query(alert.expr) if labels["instance"] == prometheus.instances[job]
        ]

        assert [labels.get("device", "") for labels in found] == devices, name


@needs_prometheus
def test_no_rule_fails(prometheus):
    """Also with all exporters in one Prometheus, two of which have the same names."""
    assert prometheus.query("sum(prometheus_rule_evaluation_failures_total) > 0") == []
    broken = httpx.get(f"{prometheus._url}/api/v1/rules").json()["data"]["groups"]

    assert [rule["name"] for group in broken for rule in group["rules"] if rule["health"] != "ok"] == []


def test_every_exporter_has_a_case():
    """And every family of its map is in it."""
    assert {one.job for one in MAPS} == set(CASES)
    for one in MAPS:
        shown = {f"trainvitals_{family}" for _, family, *_ in CASES[one.job]["ours"]}
        assert {f"trainvitals_device_{row.family}" for row in one.rows} <= shown


def test_a_row_without_the_labels_of_its_family_is_refused():
    """A series without its sensor would be another series."""
    wrong = Map(
        job="x",
        vendor="x",
        title="x",
        port=1,
        prefixes=("x_",),
        device="gpu",
        uuid="uuid",
        model="name",
        seen="x_a",
        source="",
        rows=(Row("temperature_celsius", "x_a"),),
    )
    with pytest.raises(ValueError, match="temperature_celsius has the labels"):
        records(wrong)
