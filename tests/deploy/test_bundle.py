"""The bundle of docker-compose.yml, started for real on any Docker engine that answers."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from tests.helpers import free_port

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
PULLED = ("prometheus", "alertmanager")
PULL_SECONDS, BUILD_SECONDS, HEALTHY_SECONDS = 180, 600, 120

pytestmark = pytest.mark.docker


def run(*command, seconds=60.0, environment=None):
    """Run a command; a time-out is a failure like any other."""
    try:
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=seconds, env=environment, cwd=ROOT
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {error.timeout:.0f} s")


def until(condition, seconds, what):
    """Call ``condition`` until it returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, urllib.error.URLError):
            if found := condition():
                return found
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


def default_image(name):
    """Return the image that a service takes when no variable says otherwise."""
    return COMPOSE["services"][name]["image"].partition(":-")[2].rstrip("}")


def base_image():
    """Return the image that the Dockerfile starts from."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("ARG PYTHON_IMAGE="))


def reason_to_skip():
    """Return why the bundle cannot be started here, or an empty string."""
    if shutil.which("docker") is None:
        return "no docker on PATH"
    if not os.environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        return "the Docker engine is on another machine, and the ports are on its loopback"
    version = run("docker", "version", "--format", "{{.Server.Version}}", seconds=20)
    if version.returncode:
        return f"no Docker engine answers: {(version.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    if compose_command() is None:
        return "neither docker compose nor docker-compose is installed"
    for image in (base_image(), *map(default_image, PULLED)):
        here = run("docker", "image", "inspect", image).returncode == 0
        if not here and run("docker", "pull", "-q", image, seconds=PULL_SECONDS).returncode:
            return f"the image {image} is neither here nor to be had"
    return ""


def compose_command():
    """Return the newer of the installed generations of compose, or None."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and run(*command, "version").returncode == 0:
            return command
    return None


class Bundle:
    """One project of compose, under a name, with ports, secrets and an image of its own."""

    def __init__(self, folder):
        self.name = f"trainvitals-test-{secrets.token_hex(4)}"
        self.image = f"{self.name}:local"
        self.services = ["exporter", "alertmanager", "prometheus", "demo"]
        if run("docker", "image", "inspect", default_image("grafana")).returncode == 0:
            self.services.append("grafana")
        self.ports = {name: free_port() for name in ("exporter", "prometheus", "alertmanager", "grafana")}
        self._environment = {
            # A person's own settings are not what is tested here.
            **{name: value for name, value in os.environ.items() if not name.startswith("TRAINVITALS_")},
            **{f"TRAINVITALS_{name.upper()}_PORT": str(port) for name, port in self.ports.items()},
            "TRAINVITALS_IMAGE": self.image,
            "TRAINVITALS_SECRETS": str(folder),
        }
        run(str(ROOT / "deploy/docker/make-secrets"), str(folder))

    def compose(self, *arguments, seconds=60.0):
        """Run compose on this project."""
        options = ["-p", self.name, "-f", str(ROOT / "docker-compose.yml"), "--profile", "demo"]
        return run(*compose_command(), *options, *arguments, seconds=seconds, environment=self._environment)

    def container(self, service):
        """Return the id of a service's container; from the engine: a call of docker-compose 1.29 takes seconds."""
        labels = (f"com.docker.compose.project={self.name}", f"com.docker.compose.service={service}")
        return run("docker", "ps", "-aq", *(f"--filter=label={label}" for label in labels)).stdout.strip()

    def inspect(self, service):
        """Return what the engine knows about a service's container."""
        return json.loads(run("docker", "inspect", self.container(service)).stdout)[0]

    def execute(self, service, *command):
        """Run a command in a service's container."""
        return run("docker", "exec", self.container(service), *command)

    def get(self, service, path):
        """Return the body of a GET at a published port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[service]}{path}", timeout=10) as answer:
            return answer.read().decode()

    def query(self, expression):
        """Return {instance: value} of an instant query."""
        answer = json.loads(self.get("prometheus", f"/api/v1/query?query={urllib.parse.quote(expression)}"))
        return {row["metric"].get("instance", ""): float(row["value"][1]) for row in answer["data"]["result"]}

    def metric(self, name):
        """Return the values of a family on the exporter's own page."""
        lines = self.get("exporter", "/metrics").splitlines()
        return [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} "))]

    def wait_healthy(self):
        """Wait until every health check has passed."""
        for service in self.services:
            until(
                lambda service=service: self.inspect(service)["State"]["Health"]["Status"] == "healthy",
                HEALTHY_SECONDS,
                f"{service} is healthy",
            )

    def show_logs(self):
        """Print what a person would look at after a failure."""
        print(self.compose("ps").stdout, self.compose("logs", "--no-color", "--tail=40").stdout)

    def remove(self):
        """Remove containers, networks, volumes and images of this project, and nothing else."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5", seconds=120)
        run("docker", "image", "rm", self.image)
        run("docker", "image", "prune", "--force", "--filter", "label=io.trainvitals.stage=build")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, request):
    """The running bundle; what it leaves is nothing."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    failed_before = request.session.testsfailed
    bundle = Bundle(tmp_path_factory.mktemp("secrets"))
    try:
        started = bundle.compose("up", "--detach", "--build", *bundle.services, seconds=BUILD_SECONDS)
        try:
            assert started.returncode == 0, started.stdout[-3000:] + started.stderr[-3000:]
            bundle.wait_healthy()
        except BaseException:
            bundle.show_logs()
            raise
        yield bundle
        if request.session.testsfailed > failed_before:
            bundle.show_logs()
    finally:
        bundle.remove()


def test_containers_have_no_more_rights_than_declared(bundle):
    """The engine runs every container as a user, with a read-only image and without capabilities."""
    for service in bundle.services:
        found = bundle.inspect(service)
        host = found["HostConfig"]
        assert found["Config"]["User"] == COMPOSE["services"][service]["user"]
        assert (host["ReadonlyRootfs"], host["Privileged"], host["CapDrop"]) == (True, False, ["ALL"])
        published = [place["HostIp"] for places in found["NetworkSettings"]["Ports"].values() for place in places or ()]
        assert set(published) <= {"127.0.0.1"}


def test_prometheus_scrapes_the_exporter(bundle):
    """The target is up, under its name in the network of the project."""
    assert until(lambda: bundle.query('up{instance="exporter:20910"} == 1'), 60, "the exporter is up") == {
        "exporter:20910": 1.0
    }


def test_the_steps_of_the_training_arrive_through_the_shared_spool(bundle):
    """Two containers share rank files in memory, and steps move on in Prometheus."""
    assert bundle.execute("exporter", "stat", "--format=%u %a", "/spool").stdout.split() == ["65532", "1777"]
    assert " /spool tmpfs " in bundle.execute("exporter", "cat", "/proc/mounts").stdout
    first = until(lambda: bundle.query("max by (instance) (trainvitals_step)"), 90, "a step arrived")
    assert list(first) == ["exporter:20910"]
    until(
        lambda: bundle.query("max by (instance) (trainvitals_step)")["exporter:20910"] > first["exporter:20910"],
        90,
        "a later step arrived",
    )


def test_rules_are_loaded_and_evaluate(bundle):
    """Every committed rule file is there, and Prometheus has no quarrel with any rule."""
    groups = json.loads(bundle.get("prometheus", "/api/v1/rules"))["data"]["groups"]
    files = {Path(group["file"]).name for group in groups}
    assert files == {file.name for file in (ROOT / "alert_rules").glob("*.yml")}

    def all_evaluated():
        groups = json.loads(bundle.get("prometheus", "/api/v1/rules"))["data"]["groups"]
        return all(rule["health"] != "unknown" for group in groups for rule in group["rules"])

    until(all_evaluated, 120, "every rule was evaluated")
    groups = json.loads(bundle.get("prometheus", "/api/v1/rules"))["data"]["groups"]
    assert [
        (rule["name"], rule["lastError"]) for group in groups for rule in group["rules"] if rule["health"] != "ok"
    ] == []


def test_prometheus_knows_the_alertmanager(bundle):
    """An alert has somewhere to go."""

    def active():
        return json.loads(bundle.get("prometheus", "/api/v1/alertmanagers"))["data"]["activeAlertmanagers"]

    found = until(active, 60, "Prometheus found the Alertmanager")
    assert [urllib.parse.urlsplit(item["url"]).netloc for item in found] == ["alertmanager:9093"]


def test_secrets_can_be_read_by_the_containers_that_need_them(bundle):
    """The user of the Alertmanager reads the mail password, although the folder on the host is closed."""
    done = bundle.execute("alertmanager", "cat", "/run/secrets/smtp_password")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_killed_training_is_seen_as_a_death(bundle):
    """The lock on the rank file is seen across containers: held while the training lives, free when it was killed."""
    until(lambda: bundle.metric("trainvitals_rank_up") == [1.0], 30, "the rank is up")
    assert run("docker", "kill", bundle.container("demo")).returncode == 0
    until(lambda: bundle.metric("trainvitals_rank_up") == [0.0], 30, "the rank is down")


def test_grafana_has_the_data_source_and_the_dashboards(bundle):
    """Everything that is provisioned is there for the user whose password is in the secret file."""
    if "grafana" not in bundle.services:
        pytest.skip(f"the image {default_image('grafana')} is not here")
    password = (Path(bundle._environment["TRAINVITALS_SECRETS"]) / "grafana_admin_password").read_text().strip()
    manager = urllib.request.HTTPPasswordMgrWithPriorAuth()
    base = f"http://127.0.0.1:{bundle.ports['grafana']}"
    manager.add_password(None, base, "admin", password, is_authenticated=True)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
    with opener.open(f"{base}/api/datasources", timeout=10) as answer:
        sources = json.load(answer)
    assert [source["type"] for source in sources] == ["prometheus"]
    with opener.open(f"{base}/api/datasources/uid/{sources[0]['uid']}/health", timeout=10) as answer:
        assert json.load(answer)["status"] == "OK"
    with opener.open(f"{base}/api/search?type=dash-db", timeout=10) as answer:
        found = {dashboard["uid"] for dashboard in json.load(answer)}
    assert found == {json.loads(file.read_text())["uid"] for file in (ROOT / "dashboards").glob("*/*.json")}
