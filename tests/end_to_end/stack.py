"""Exporter, Prometheus, Alertmanager, a mail server and a webhook, all real, all on loopback, for one test."""

from __future__ import annotations

import contextlib
import email
import email.policy
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml
from aiosmtpd.controller import Controller
from tests.helpers import free_port

from trainvitals.generate.write import rules_for_bundle


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


class Mailbox:
    """A real SMTP server that keeps what it gets."""

    def __init__(self):
        self.messages = []
        self._controller = Controller(self, hostname="127.0.0.1", port=free_port())

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802  the name that aiosmtpd calls
        """Keep one message."""
        self.messages.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 kept"

    @property
    def port(self):
        """Where it listens."""
        return self._controller.port

    def texts(self):
        """Return subject and plain text of each message."""
        return [
            f"{message['subject']}\n{message.get_body(('plain', 'html')).get_content()}" for message in self.messages
        ]

    def start(self):
        """Listen."""
        self._controller.start()

    def stop(self):
        """Stop listening."""
        self._controller.stop()


class Webhook:
    """A real HTTP server that keeps the JSON it gets."""

    def __init__(self):
        received = self.received = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.append(json.loads(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)

    def alerts(self):
        """Return every alert of every call, flat."""
        return [alert for call in self.received for alert in call["alerts"]]

    def start(self):
        """Listen."""
        self._thread.start()

    def stop(self):
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Stack:
    """The whole way from the spool to the message.  ``programs`` is a folder with the binaries, or None for PATH."""

    def __init__(self, folder: Path, programs: Path | None = None, *exporter_flags: str):
        self.folder = folder
        self.spool = folder / "spool"
        self.spool.mkdir()
        self._path = str(programs) if programs else None
        self._children: list[tuple[str, subprocess.Popen]] = []
        self.mailbox, self.webhook = Mailbox(), Webhook()
        self.exporter_port, self.prometheus_port, self.alertmanager_port = free_port(), free_port(), free_port()
        self._exporter_flags = exporter_flags

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
        self.mailbox.start()
        self.webhook.start()
        exporter = [sys.executable, "-m", "trainvitals", "exporter", "--collect.interval=1s"]
        exporter += [f"--web.listen-address=127.0.0.1:{self.exporter_port}", f"--spool.folders={self.spool}"]
        self.spawn("exporter", [*exporter, *self._exporter_flags])
        self._start_alertmanager()
        self._start_prometheus()
        until(lambda: fetch(f"{self.exporter}/-/ready"), what="exporter ready")
        until(lambda: fetch(f"http://127.0.0.1:{self.alertmanager_port}/-/ready"), what="Alertmanager ready")
        until(lambda: fetch(f"{self.prometheus}/-/ready"), what="Prometheus ready")
        until(lambda: self.value('up{job="trainvitals"}') == 1, what="the first scrape")

    def _start_prometheus(self):
        rules = self.folder / "rules"
        rules.mkdir()
        for name, text in rules_for_bundle().items():
            (rules / name).write_text(text)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [f"{rules}/*.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{self.alertmanager_port}"]}]}]},
            "scrape_configs": [
                {"job_name": "trainvitals", "static_configs": [{"targets": [f"127.0.0.1:{self.exporter_port}"]}]}
            ],
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
        receiver = {
            "name": "everyone",
            "webhook_configs": [{"url": f"http://127.0.0.1:{self.webhook.port}/", "send_resolved": True}],
            "email_configs": [
                {
                    "to": "team@example.org",
                    "from": "trainvitals@example.org",
                    "smarthost": f"127.0.0.1:{self.mailbox.port}",
                    "require_tls": False,
                    "headers": {"Subject": '{{ template "trainvitals.subject" . }}'},
                    "text": '{{ template "trainvitals.text" . }}',
                    "html": '{{ template "trainvitals.html" . }}',
                }
            ],
        }
        root = Path(__file__).parents[2]
        config = {
            "templates": [f"{root}/deploy/alertmanager/templates/*.tmpl"],
            "route": {
                "receiver": "everyone",
                "group_by": ["alertname", "run"],
                "group_wait": "0s",
                "group_interval": "1s",
                "repeat_interval": "1h",
                "routes": [{"receiver": "nobody", "matchers": ['alertname="TrainvitalsWatchdog"']}],
            },
            "receivers": [receiver, {"name": "nobody"}],
        }
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
        for server in (self.mailbox, self.webhook):
            with contextlib.suppress(Exception):
                server.stop()
