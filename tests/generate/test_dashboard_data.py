"""Every query of every dashboard returns data from a real Prometheus that holds a demo and evaluates our rules."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from tests.generate.demo import RUNS, Demo

from trainvitals.generate.alerts import rule_files
from trainvitals.generate.dashboard import queries
from trainvitals.generate.dashboards import DASHBOARDS

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None, reason="Prometheus is not installed"
)

#: Queries that stay empty on this demo, with the reason.  A query that is not here and finds nothing is a defect.
EMPTY = {}


class Prometheus:
    """A Prometheus on loopback, with blocks that were written before and rules that fire at once."""

    def __init__(self, folder):
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{probe.getsockname()[1]}"
        (folder / "demo.txt").write_text(Demo(int(time.time())).text())
        self._run("promtool", "tsdb", "create-blocks-from", "openmetrics", "demo.txt", "data")
        for name, text in rule_files().items():
            # Nobody waits here.
            (folder / name).write_text(re.sub(r"\n *for: \w+", "", text).replace("interval: 1m", "interval: 1s"))
        itself = {"job_name": "prometheus", "static_configs": [{"targets": [self._address]}]}
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": list(rule_files()),
            "scrape_configs": [itself],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address={self._address}",
            ],
            cwd=folder,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def _run(self, *command):
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def query(self, expr):
        """Return the series that a query finds now."""
        url = f"http://{self._address}/api/v1/query"
        data = urllib.parse.urlencode({"query": expr}).encode()
        try:
            with urllib.request.urlopen(url, data, timeout=20) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                # It has only begun.
                raise
            raise AssertionError(f"{expr}: {error.read().decode()}") from error

    def until(self, expr, seconds=60.0):
        """Wait until a query finds something."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if found := self.query(expr):
                    return found
            except urllib.error.URLError:
                pass
            time.sleep(0.2)
        raise AssertionError(f"{expr} found nothing:\n" + (self._folder / "log").read_text()[-2000:])

    def stop(self):
        """End it."""
        self._process.terminate()
        self._process.wait(timeout=30)
        self._log.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """One with the demo, after its rules have been evaluated and it has seen itself several times."""
    running = Prometheus(tmp_path_factory.mktemp("prometheus"))
    try:
        running.until("count_over_time(run:trainvitals_health:ratio[1h]) > 2")
        running.until("count_over_time(prometheus_rule_group_last_duration_seconds[1h]) > 2")
        yield running
    finally:
        running.stop()


def filled(*names):
    """Return the queries; the demo's samples are 15 seconds apart, as those of a default Prometheus."""
    return queries(*names, __rate_interval="5m")


def test_every_query_returns_data(prometheus):
    """No panel and no mark is empty on a cluster that has a bit of everything."""
    empty = {place for place, query in filled() if not prometheus.query(query)}

    assert empty == set(EMPTY)


def test_every_query_answers_once_for_each_set_of_labels(prometheus):
    """Joins are one to one: no query is refused for one run or one node alone either."""
    for run, node in (("healthy", "a:20910"), ("sick", "b:20910")):
        for _, query in queries(run=run, instance=node, __rate_interval="5m"):
            prometheus.query(query)


def values(prometheus, title, label, **choice):
    """Return the value of each series of the first query with this place, by a label."""
    (query, *_) = [query for place, query in queries(__rate_interval="5m", **choice) if place == title]
    return {series["metric"].get(label, ""): float(series["value"][1]) for series in prometheus.query(query)}


def test_the_check_list_tells_the_sick_run_from_the_healthy(prometheus):
    """Act for the run that is NaN, fine for the others."""
    found = values(prometheus, "run/Check list/Loss jumps or is NaN", "run")

    assert set(found) == set(RUNS)
    assert {run for run, value in found.items() if value >= 1} == {"nan"}
    assert found["healthy"] == pytest.approx(0.2)


def test_top_numbers_of_the_fleet(prometheus):
    """Six runs go on, one signal is active, one device is lost, five links are down, one node is silent."""
    tops = {
        "Runs that go on": 6,
        "Findings": 1,
        "Devices lost": 1,
        # A link of each of four devices, and the RDMA port of node b.
        "Links down": 5,
        "Nodes silent": 1,
    }

    assert tops == {title: values(prometheus, f"fleet/{title}", "")[""] for title in tops}


def test_top_numbers_of_a_node(prometheus):
    """A row of memory that waits for a reset counts though the driver asks for nothing; a lost device tells nothing."""
    tops = {
        "Exporter": {"a:20910": 1, "b:20910": 1, "c:20910": 0},
        "Devices lost": {"a:20910": 0, "b:20910": 1},
        "Must be reset": {"a:20910": 1, "b:20910": 0},
        "Degrees left": {"a:20910": 4, "b:20910": 4},
        "Links down": {"a:20910": 2, "b:20910": 3},
        "File systems in trouble": {"a:20910": 0, "b:20910": 1},
    }

    assert tops == {title: values(prometheus, f"node/{title}", "instance") for title in tops}


def test_a_stalled_run_shows_on_incidents(prometheus):
    """The run that stood still has the longest pause, and one restart was seen in all but the healthy run."""
    paused = values(prometheus, "incidents/Longest stand-still", "run")
    restarts = values(prometheus, "incidents/Restarts", "run")
    lost = values(prometheus, "incidents/Ranks lost", "run")

    assert max(paused, key=paused.get) == "stalled"
    assert paused["stalled"] > 1700
    assert restarts == {run: float(run != "healthy") for run in RUNS}
    assert {run: count for run, count in lost.items() if count} == {"died": 1}


def test_differences_are_to_the_lowest_loss_that_is_a_number(prometheus):
    """A run that is NaN has no distance, and is nobody's lowest."""
    rows = [query for place, query in filled("compare") if place == "compare/Finals and differences/Finals"]
    found = {series["metric"]["run"]: float(series["value"][1]) for series in prometheus.query(rows[3])}

    assert math.isnan(found["nan"])
    assert min(value for value in found.values() if not math.isnan(value)) == 0
    assert found["healthy"] == pytest.approx(0, abs=1e-6)


def test_goodput_loses_a_rank_that_died(prometheus):
    """The share of training is that of the ranks that are there."""
    found = values(prometheus, "incidents/Interruptions/Goodput", "run")

    assert found["healthy"] == pytest.approx(0.7, abs=0.02)


def test_alerts_of_runs_and_of_nodes_fire_on_the_demo(prometheus):
    """Both histories have something to show: a loss that is NaN, and a device that is lost."""
    runs = values(prometheus, "incidents/Alerts/Alerts of the runs", "alertname")
    nodes = values(prometheus, "incidents/Alerts/Alerts of nodes and monitoring", "alertname")

    assert runs["TrainvitalsLossNonfinite"] == 3
    assert nodes["TrainvitalsDeviceDown"] == 3
    assert "TrainvitalsWatchdog" not in {**runs, **nodes}


MODULES = Path(os.environ.get("TRAINVITALS_GRAFANA_DATA", "/nowhere")) / "node_modules"
#: Lines that a table has on the demo, where that is no matter of taste.
LINES = {
    "fleet/Runs": 6,
    "fleet/Nodes": 3,
    # Twelve ranks, one of which has died.
    "run/Ranks": 12,
    "node/Devices": 4,
    "node/File systems": 4,
    "compare/Finals": 6,
    "compare/Loss against step": 6,
    "self/Exporters in numbers": 2,
}


@pytest.mark.skipif(
    not (MODULES / "@grafana/data").exists(),
    reason="TRAINVITALS_GRAFANA_DATA names no folder with @grafana/data, react, react-dom, rxjs and happy-dom",
)
def test_grafana_joins_the_answers_to_a_line_for_each_thing(prometheus):
    """With Grafana's own transformations, each table has the columns that are described, and a line for each run.

    npm install --ignore-scripts --prefix DIR @grafana/data@12.3.0 react@18 react-dom@18 rxjs@7 happy-dom@15
    """
    from trainvitals.generate.dashboard_table import tall, transformations

    asked, described = [], []
    for row in DASHBOARDS:
        placed = iter([query for place, query in filled(row.name) if "/annotation/" not in place])
        for panel in row.panels:
            exprs = [next(placed) for _ in panel.queries]
            if panel.kind in {"table", "xychart"}:
                steps = tall(panel, "en") if panel.kind == "xychart" else transformations(panel, "en")
                answers = [
                    {"refId": letter, "result": prometheus.query(expr)}
                    for letter, expr in zip("ABCDEFGHIJKLMNOP", exprs, strict=False)
                ]
                asked.append({"transformations": steps, "answers": answers})
                names = [column.name for column in panel.columns] or [panel.by, *(axis[0] for axis in panel.axes)]
                described.append((f"{row.name}/{panel.title}", names))
    done = subprocess.run(
        ["node", str(Path(__file__).with_name("transform.cjs"))],
        input=json.dumps(asked),
        env={**os.environ, "NODE_PATH": str(MODULES)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)

    for (place, names), found in zip(described, made, strict=True):
        assert (place, found["frames"], found["names"]) == (place, 1, names)
        assert found["lines"] == LINES.get(place, found["lines"]), place
    assert set(LINES) <= {place for place, _ in described}
