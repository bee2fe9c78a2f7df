"""Exporter, Prometheus, Alertmanager, a mail server and a webhook, all real, all on loopback, for one test."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml
from tests.helpers import free_port
from tests.servers import Mailbox, Webhook

from trainvitals.generate.write import rules_for_bundle

ROOT = Path(__file__).parents[2]
#: Nobody here wants to wait for long.
_PACE = {"group_wait": "1s", "group_interval": "1s", "repeat_interval": "1h"}


def until(condition, seconds=180.0, what="the condition"):
    """Call ``condition`` until it returns something true, and return that; fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, urllib.error.URLError):
            found = condition()
            if found:
                return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {seconds:.0f} s")


def fetch(url):
    """Return the body of a GET."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


class Stack:
    """The whole way from the spool to the message.

    ``programs`` is a folder with the binaries, or None for PATH.  ``exporter`` are the arguments of Python that start
    the exporter, ``flags`` and ``environ`` those of this one; ``node`` is what Prometheus calls it (empty: by address).
    ``rules`` takes and returns each alert rule; ``receive`` takes and returns the receiver of deploy/alertmanager.
    """

    def __init__(
        self,
        folder: Path,
        programs: Path | None = None,
        *,
        exporter=("-m", "trainvitals"),
        flags=(),
        environ=None,
        node="",
        rules=lambda rule: rule,
        receive=lambda receiver: receiver,
        mailbox=None,
    ):
        self.folder = folder
        self.spool = folder / "spool"
        self.spool.mkdir()
        self._path = str(programs) if programs else None
        self._servers = contextlib.ExitStack()
        self._children: list[tuple[str, subprocess.Popen]] = []
        self.mailbox, self.webhook = mailbox or Mailbox(), Webhook()
        self.exporter_port, self.prometheus_port, self.alertmanager_port = free_port(), free_port(), free_port()
        self._command, self._environ, self._node = [sys.executable, *exporter, "exporter", *flags], environ or {}, node
        self._rules, self._receive = rules, receive

    def program(self, *names):
        """Return the first of these programs that exists."""
        return next(found for name in names if (found := shutil.which(name, path=self._path)))

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        self._servers.enter_context(self.mailbox)
        self._servers.enter_context(self.webhook)
        flags = ["--collect.interval=1s", f"--web.listen-address=127.0.0.1:{self.exporter_port}"]
        environ = {"STATE_DIRECTORY": str(self.folder / "state"), **self._environ}
        self.spawn("exporter", [*self._command, *flags, f"--spool.folders={self.spool}"], **environ)
        self._start_alertmanager()
        self._start_prometheus()
        until(lambda: fetch(f"{self.exporter}/-/ready"), what="exporter ready")
        until(lambda: fetch(f"{self.alertmanager}/-/ready"), what="Alertmanager ready")
        until(lambda: fetch(f"{self.prometheus}/-/ready"), what="Prometheus ready")
        until(lambda: self.value('up{job="trainvitals"}') == 1, what="the first scrape")

    def _start_prometheus(self):
        rules = self.folder / "rules"
        rules.mkdir()
        for name, text in rules_for_bundle().items():
            document = yaml.safe_load(text)
            for group in document["groups"]:
                # A fleet spares its Prometheus; tests do not wait a minute.
                group.pop("interval", None)
                group["rules"] = [self._rules(rule) for rule in group["rules"]]
            (rules / name).write_text(yaml.safe_dump(document, allow_unicode=True))
        exporter = {"targets": [f"127.0.0.1:{self.exporter_port}"]}
        if self._node:
            exporter["labels"] = {"instance": self._node}
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [f"{rules}/*.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{self.alertmanager_port}"]}]}]},
            "scrape_configs": [{"job_name": "trainvitals", "static_configs": [exporter]}],
        }
        file = self.folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config))
        self.spawn(
            "prometheus",
            [
                self.program("prometheus"),
                f"--config.file={file}",
                f"--storage.tsdb.path={self.folder}/tsdb",
                f"--web.listen-address=127.0.0.1:{self.prometheus_port}",
            ],
        )

    def _start_alertmanager(self):
        """Start it with what is in deploy/alertmanager, but for addresses, receivers and times."""
        deploy = ROOT / "deploy" / "alertmanager"
        config = yaml.safe_load((deploy / "alertmanager.yml").read_text())
        config["global"] = {
            "smtp_smarthost": self.mailbox.address,
            "smtp_from": "trainvitals@example.org",
            "smtp_require_tls": False,
        }
        config["templates"] = [f"{deploy}/{pattern}" for pattern in config["templates"]]
        for route in (config["route"], *config["route"]["routes"]):
            route.update({key: value for key, value in _PACE.items() if key in route})
        for receiver in config["receivers"]:
            for webhook in receiver.get("webhook_configs", ()):
                webhook["url"] = f"{self.webhook.url}/"
        config["receivers"] = [self._receive(receiver) for receiver in config["receivers"]]
        file = self.folder / "alertmanager.yml"
        file.write_text(yaml.safe_dump(config))
        self.spawn(
            "alertmanager",
            [
                self.program("alertmanager", "prometheus-alertmanager"),
                f"--config.file={file}",
                f"--storage.path={self.folder}/alertmanager",
                f"--web.listen-address=127.0.0.1:{self.alertmanager_port}",
                "--cluster.listen-address=",
            ],
        )

    def spawn(self, name, command, **environ):
        """Start a child whose output goes to a file, and stop it at the end of the test."""
        log = (self.folder / f"{name}.log").open("w")
        child = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environ}, cwd=self.folder
        )
        log.close()
        self._children.append((name, child))
        return child

    def train(self, run, processes=2, **environ):
        """Start the small training under torchrun."""
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--nproc-per-node={processes}",
            "--master-addr=127.0.0.1",
        ]
        command += [f"--master-port={free_port()}", str(Path(__file__).with_name("trainer.py"))]
        settings = {"TRAINVITALS_DIR": str(self.spool), "TRAINVITALS_RUN": run, "OMP_NUM_THREADS": "1"}
        return self.spawn(f"train-{run}", command, **settings, **environ)

    def log(self, name):
        """Return what a child has printed."""
        return (self.folder / f"{name}.log").read_text()

    @property
    def exporter(self):
        """The exporter's URL."""
        return f"http://127.0.0.1:{self.exporter_port}"

    @property
    def alertmanager(self):
        """The URL of Alertmanager."""
        return f"http://127.0.0.1:{self.alertmanager_port}"

    @property
    def prometheus(self):
        """The URL of Prometheus."""
        return f"http://127.0.0.1:{self.prometheus_port}"

    def query(self, expression):
        """Return the result of an instant query."""
        url = f"{self.prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        document = json.loads(fetch(url))
        assert document["status"] == "success", document
        return document["data"]["result"]

    def value(self, expression):
        """Return the first value of an instant query, or None."""
        result = self.query(expression)
        return float(result[0]["value"][1]) if result else None

    def show_logs(self):
        """Print the end of what every child has said; pytest shows it when the test fails."""
        for name, _ in self._children:
            print(f"--- {name}", *self.log(name).splitlines()[-15:], sep="\n")

    def __exit__(self, *_):
        self.show_logs()
        for _, child in reversed(self._children):
            child.terminate()
        for _, child in reversed(self._children):
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._servers.close()
