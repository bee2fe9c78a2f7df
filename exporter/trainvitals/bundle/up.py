"""``trainvitals up``: exporter, Prometheus, Alertmanager, Grafana when found; with ``--demo`` a training that breaks.

Where there are settings for it, the notifier too: then alerts go to chat robots as well as to this terminal.
Everything listens on loopback, runs as a child and ends with us.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence

from trainvitals.bundle import commands, grafana, ports, robots, settings, welcome
from trainvitals.bundle.folder import DataFolder
from trainvitals.bundle.ports import LOOPBACK
from trainvitals.bundle.process import BundleError, Child, Guard, stop_all
from trainvitals.bundle.screen import Row, Screen
from trainvitals.bundle.signals import Signals, collected
from trainvitals.bundle.sinks import MailSink, Queue, WebhookSink
from trainvitals.bundle.watch import Watch
from trainvitals.generate.messages import mail_template
from trainvitals.host import programs
from trainvitals.host.programs import ALERTMANAGER, GRAFANA, PROMETHEUS

#: A machine that is busy with a training starts programs slowly.
READY_SECONDS = 60.0


def run_up(
    *,
    demo: bool,
    simulate_devices: int = 0,
    data_dir: str | None = None,
    seconds: float | None = None,
    notify_file: str | None = None,
    demo_arguments: Sequence[str] = (),
) -> int:
    """Run the bundle until Ctrl-C, SIGTERM or SIGHUP, or for so many seconds; return the exit code.

    ``data_dir`` is kept, the default one is removed.  ``notify_file`` are settings of the notifier; without it they are
    looked for, but not in a demo.  ``demo_arguments`` go to :mod:`trainvitals.bundle.demo.train`.
    Must be called by the main thread.  No exception but a bug leaves it.
    """
    with collected() as signals:
        try:
            with contextlib.ExitStack() as stack:
                bundle = Bundle(
                    stack,
                    signals,
                    demo=demo,
                    simulate_devices=simulate_devices,
                    data_dir=data_dir,
                    notify_file=notify_file,
                )
                bundle.start(demo_arguments)
                bundle.watch(seconds)
        except BundleError as error:
            print(f"trainvitals: {error}", file=sys.stderr)
            return 1
        except OSError as error:
            # A full disk, a folder that somebody removed.
            print(f"trainvitals: {error.strerror}: {error.filename}", file=sys.stderr)
            return 1
    return 0


class Bundle:
    """All that one ``up`` runs.  What ``stack`` closes, in reverse order: children, sinks, folder, guard."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        signals: Signals,
        *,
        demo: bool,
        simulate_devices: int,
        data_dir: str | None,
        notify_file: str | None,
    ) -> None:
        if demo and not any(importlib.util.find_spec(name) for name in ("torch", "numpy")):
            raise BundleError(
                "the demo trains in PyTorch or NumPy, and neither is here: pip install 'trainvitals[demo]'"
            )
        self._signals = signals
        self._demo = demo
        self._simulate_devices = simulate_devices
        self._pace = settings.DEMO if demo else settings.USUAL
        # What a demo does is for the one who watches; nobody else is to be called.
        found = notify_file or (None if demo else robots.find(os.environ))
        self._robots = robots.read(found) if found else None
        self._ports = ports.choose()
        self._guard = Guard()
        stack.callback(self._guard.close)
        self._folder = DataFolder(data_dir, self._guard)
        stack.callback(self._folder.close)
        self._messages: Queue = Queue()
        # Closed after the children have stopped, so that their last messages still arrive.
        self._sinks = stack.enter_context(contextlib.ExitStack())
        self._children: list[Child] = []
        self._rows: list[Row] = []
        self._sink_rows: list[Row] = []
        self._training: Child | None = None
        self._with_prometheus = self._with_mail = False
        self._watched = False
        self._screen = Screen()
        stack.callback(self._stop)

    # Start ----------------------------------------------------------------------------------------------------------

    def start(self, demo_arguments: Sequence[str] = ()) -> None:
        """Start everything, wait until it is ready, and print the table."""
        self._screen.line("trainvitals", "starting ...")
        found = {program.title: programs.find(program) for program in (PROMETHEUS, ALERTMANAGER, GRAFANA)}
        self._start_exporter()
        alertmanager = found["Alertmanager"] if found["Prometheus"] else None
        self._with_prometheus = found["Prometheus"] is not None
        if found["Prometheus"]:
            self._start_prometheus(found["Prometheus"], alertmanager is not None)
        if alertmanager:
            self._start_alertmanager(alertmanager)
            if self._robots:
                self._start_notifier(self._robots)
        if found["Grafana"] and found["Prometheus"]:
            self._start_grafana(found["Grafana"])
        for child in self._children:
            self._wait_ready(child)
        if self._demo and not self._signals.stop:
            self._start_training(demo_arguments)
        if not self._signals.stop:
            self._welcome([program for program in (PROMETHEUS, ALERTMANAGER) if not found[program.title]])

    def _wait_ready(self, child: Child) -> None:
        try:
            child.wait_ready(self._signals, READY_SECONDS)
        except BundleError as error:
            if child.name != "Grafana":
                raise
            self._screen.line("trainvitals", f"going on without Grafana: {error}", style="yellow")

    def _start_exporter(self) -> None:
        address = self._address("exporter")
        # A demo has a spool of its own: what other runs left in the usual one would tell its own story.
        spool = self._folder.path / "spool" if self._demo else None
        command = commands.exporter(address, simulate_devices=self._simulate_devices, spool=spool)
        self._spawn("exporter", "Exporter", command, f"http://{address}/-/ready")
        self._add_row("Exporter", "exporter")

    def _start_prometheus(self, program: str, with_alertmanager: bool) -> None:
        folder, address = self._folder.path / "prometheus", self._address("prometheus")
        settings.write(folder / "rules", settings.rules(self._pace))
        text = settings.prometheus(
            self._pace,
            exporter=self._address("exporter"),
            alertmanager=self._address("alertmanager") if with_alertmanager else None,
            rules=folder / "rules",
        )
        settings.write(folder, {"prometheus.yml": text})
        self._spawn(
            "prometheus", "Prometheus", commands.prometheus(program, address, folder), f"http://{address}/-/ready"
        )
        self._add_row("Prometheus", "prometheus")

    def _start_alertmanager(self, program: str) -> None:
        folder, address = self._folder.path / "alertmanager", self._address("alertmanager")
        webhook = WebhookSink(self._messages)
        self._sinks.callback(webhook.close)
        mail = self._start_mail() if self._demo else None
        self._with_mail = mail is not None
        settings.write(folder / "templates", {"trainvitals.tmpl": mail_template()})
        text = settings.alertmanager(
            self._pace,
            webhook=webhook.url,
            mail=mail,
            templates=folder / "templates",
            robots=self._robots.urls(self._address("notifier")) if self._robots else (),
        )
        settings.write(folder, {"alertmanager.yml": text})
        self._spawn(
            "alertmanager", "Alertmanager", commands.alertmanager(program, address, folder), f"http://{address}/-/ready"
        )
        self._add_row("Alertmanager", "alertmanager")
        self._sink_rows.append(Row("Webhook", webhook.url, "alerts appear below"))
        if mail:
            self._sink_rows.append(Row("Mail server", f"smtp://{mail}", "mails appear below, none leaves this machine"))

    def _start_notifier(self, found: robots.Robots) -> None:
        address, state = self._address("notifier"), str(self._folder.path / "notifier")
        command = commands.notifier(address, found.file)
        self._spawn("notifier", "Notifier", command, f"http://{address}/-/ready", {"STATE_DIRECTORY": state})
        self._add_row("Notifier", "notifier")
        self._sink_rows.append(Row("Robots", ", ".join(found.receivers), f"as {found.file} says"))

    def _start_mail(self) -> str | None:
        try:
            mail = MailSink(self._messages)
        except ModuleNotFoundError:
            self._screen.line("trainvitals", "without aiosmtpd there is no mail: pip install 'trainvitals[demo]'")
            return None
        self._sinks.callback(mail.close)
        return mail.address

    def _start_grafana(self, program: str) -> None:
        folder, address = self._folder.path / "grafana", self._address("grafana")
        grafana.provision(
            folder,
            prometheus=f"http://{self._address('prometheus')}",
            interval=self._pace.interval,
            dashboards=grafana.dashboards(),
        )
        environ = grafana.environment(folder, self._ports["grafana"])
        self._spawn("grafana", "Grafana", grafana.command(program), f"http://{address}/api/health", environ)
        self._add_row("Grafana", "grafana")

    def _start_training(self, arguments: Sequence[str]) -> None:
        folder = self._folder.path
        command = commands.training(folder / "checkpoints")
        # One thread: it is a guest on this machine.
        environ = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TRAINVITALS_DISABLE": ""}
        environ["TRAINVITALS_DIR"] = str(folder / "spool")
        self._training = self._spawn("training", "The demo's training", [*command, *arguments], None, environ)

    def _spawn(
        self, key: str, title: str, command: list[str], url: str | None, environ: dict[str, str] | None = None
    ) -> Child:
        child = Child(
            title,
            command,
            log=self._folder.log(key),
            guard=self._guard,
            url=url,
            # PyTorch, for one, leaves folders behind where temporary files go.
            environ={"TMPDIR": str(self._folder.path / "tmp"), **(environ or {})},
            cwd=self._folder.path,
        )
        self._children.append(child)
        return child

    def _address(self, name: str) -> str:
        return f"{LOOPBACK}:{self._ports[name]}"

    def _add_row(self, title: str, name: str) -> None:
        usual = ports.USUAL_PORTS[name]
        note = "" if self._ports[name] == usual else f"port {usual} was taken"
        self._rows.append(Row(title, f"http://{self._address(name)}", note))

    def _welcome(self, missing: Sequence[programs.Program]) -> None:
        rows = [*self._rows, *self._sink_rows]
        if self._simulate_devices:
            rows.append(Row("Devices", f"{self._simulate_devices} simulated", "they do not exist"))
        rows.append(Row("Data", str(self._folder.path), "removed at the end" if self._folder.temporary else ""))
        welcome.addresses(self._screen, rows, demo=self._demo)
        if self._with_prometheus:
            welcome.curve(self._screen, f"http://{self._address('prometheus')}")
        welcome.missing(self._screen, missing)

    def watch(self, seconds: float | None = None) -> None:
        """Show what happens until somebody asks us to stop, or for so many seconds."""
        if self._signals.stop:
            return
        self._watched = True
        watch = Watch(
            self._screen,
            self._signals,
            children=self._children,
            training=self._training,
            messages=self._messages,
            prometheus=f"http://{self._address('prometheus')}" if self._with_prometheus else None,
            with_mail=self._with_mail,
        )
        watch.run(seconds)

    def _stop(self) -> None:
        self._screen.stop_gauges()
        stop_all(self._children, self._signals)
        if self._watched:
            where = "nothing is left behind" if self._folder.temporary else f"the data is in {self._folder.path}"
            self._screen.line("trainvitals", f"stopped; {where}")
