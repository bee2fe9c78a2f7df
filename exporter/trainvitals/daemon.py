"""The exporter: builds its parts from the settings, starts and stops them.  No logic of its own.

One thread takes a snapshot every ``collect.interval``: it polls the sources, renders the text once and publishes it.
The web server hands out the newest snapshot and never waits for a source.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import threading
import time
from collections.abc import Callable

from prometheus_client.process_collector import ProcessCollector

from trainvitals._version import __version__
from trainvitals.collect.attribution import AttributionCollector
from trainvitals.collect.base import Collector
from trainvitals.collect.devices import DevicesCollector
from trainvitals.collect.faults import FaultLog, FaultsCollector
from trainvitals.collect.host import HostCollector
from trainvitals.collect.journal import JournalCollector
from trainvitals.collect.keeper import Keeper
from trainvitals.collect.kernel import KernelCollector
from trainvitals.collect.logs import LogsCollector
from trainvitals.collect.network import NetworkCollector
from trainvitals.collect.overview import Overview
from trainvitals.collect.policies import Policies
from trainvitals.collect.processes import ProcessesCollector
from trainvitals.collect.ranks import RanksCollector
from trainvitals.collect.runner import Runner
from trainvitals.collect.runs import Runs
from trainvitals.collect.same_minute import SameMinute
from trainvitals.collect.scribe import Scribe
from trainvitals.collect.scribe_node import NodeWatch
from trainvitals.collect.spool import Spool
from trainvitals.collect.storage import StorageCollector
from trainvitals.config import ConfigError, Settings
from trainvitals.detect.rules import Rules, RulesError, parse
from trainvitals.folders import state_folder
from trainvitals.host.kmsg import KernelLog
from trainvitals.journal import Journal, JournalError, journal_path
from trainvitals.serve.app import make_app
from trainvitals.serve.orders import Orders
from trainvitals.serve.page import Page
from trainvitals.serve.reload import WebConfigFile
from trainvitals.serve.server import Server
from trainvitals.serve.snapshot import SnapshotStore
from trainvitals.steer import token
from trainvitals.steer.steering import Steering
from trainvitals.steer.token import TokenError

log = logging.getLogger(__name__)

#: The threads of the server and of the collecting loop share one interpreter; with the default of 5 ms a scrape
#: would wait that long for its turn while a snapshot is rendered.
_SWITCH_INTERVAL = 0.0005


class Exporter:
    """The node exporter.  Raises ConfigError when a setting cannot work; owns its threads, children and files."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float] = time.time, *, remembers_logs: bool = True
    ) -> None:
        self._interval = settings.collect.interval
        self._clock = clock
        self._spool = Spool(settings.spool.folders, keep=settings.spool.keep, remove=settings.spool.remove, clock=clock)
        folder = state_folder(settings.sources.state_folder, os.environ) if remembers_logs else ""
        self.logs = LogsCollector.from_settings(settings.sources, folder and os.path.join(folder, "logs.json"), clock)
        keeper = Keeper(folder and os.path.join(folder, "judgement.state"), logs=self.logs, clock=clock)
        # The two tellings of a fault are as far apart as two rounds, and some seconds.
        faults = FaultLog(window=settings.collect.interval + 5.0)
        devices = DevicesCollector.from_settings(settings.devices, faults, clock)
        self._overview = Overview(devices.latest_devices, faults.seen)
        kernel = KernelCollector(KernelLog(settings.kernel.path), faults)
        near = SameMinute(faults, devices.latest_devices, lambda: kernel.seen)
        self.runs = Runs(_rules(settings).build, keeper, near)
        node = NodeWatch(devices.latest_devices, faults.seen, lambda: kernel.seen)
        self._scribe = _scribe(settings, node, clock) if remembers_logs else None
        self._steering = Steering(settings.spool.folders)
        self._policies = Policies(settings.orders.policies, self._steering) if settings.orders.policies else None
        self._orders = _orders(settings.orders.token_file, self._steering)
        ranks = RanksCollector(
            self._spool,
            self.runs,
            clock,
            self.logs.poll,
            overview=self._overview,
            scribe=self._scribe,
            policies=self._policies,
        )
        collectors: list[Collector] = [
            ranks,
            self.logs,
            devices,
            FaultsCollector(faults),
            HostCollector(),
            ProcessesCollector(lambda: ranks.live),
            AttributionCollector.from_settings(settings.attribution, lambda: ranks.live, devices.latest_devices, clock),
            StorageCollector.from_settings(settings.storage),
            NetworkCollector.from_settings(settings.network),
            kernel,
            JournalCollector(self._scribe),
        ]
        known = {collector.name for collector in collectors}
        for name in settings.collect.disable:
            if name not in known:
                raise ConfigError(f"collect.disable: expected some of {', '.join(sorted(known))}, found {name!r}")
        enabled = [collector for collector in collectors if collector.name not in settings.collect.disable]
        self._process = ProcessCollector(registry=None)
        self._store = SnapshotStore()
        web_config = None if settings.web.config_file is None else WebConfigFile(settings.web.config_file)
        self._page = Page(settings.collect.interval, _advice)
        self._server = Server(
            make_app(self._store, self._page, self._orders),
            listen_address=settings.web.listen_address,
            web_config=web_config,
        )
        self._runner = Runner(enabled, timeout=settings.collect.timeout, limit=settings.collect.series_limit)
        self._info: dict[str, tuple[object, ...]] = {"trainvitals_build_info": (__version__, platform.python_version())}
        self._stopping = threading.Event()

    def start(self) -> str:
        """Start the server and the devices' children; return the URL."""
        sys.setswitchinterval(_SWITCH_INTERVAL)
        url = self._server.start()
        self._runner.start()
        log.info("listening on %s", url)
        for folder in self._spool.missing():
            log.info("no spool at %s yet; it is read as soon as it is there", folder)
        return url

    def run(self, after: Callable[[], None] | None = None) -> None:
        """Take snapshots until :meth:`stop` is called, then stop everything; call ``after`` after each."""
        next_round = time.monotonic()
        try:
            while not self._stopping.is_set():
                self.snapshot()
                if after is not None:
                    after()
                next_round = max(next_round + self._interval, time.monotonic())
                self._stopping.wait(next_round - time.monotonic())
        finally:
            self._close()

    def snapshot(self) -> None:
        """Read every source once and publish the result."""
        families = self._runner.run(self._info, self._clock())
        self._store.publish([*families, *self._process.collect()])
        self._page.publish(self._overview.snapshot(self._clock()))
        if self._scribe is not None:
            # Whoever scrapes has what is new already.
            self._scribe.wake()

    def stop(self) -> None:
        """Ask :meth:`run` to end; safe in a signal handler."""
        self._stopping.set()

    def _close(self) -> None:
        self._steering.close()
        for part in (self._orders, self._policies):
            if part is not None:
                part.close()
        self._server.stop()
        self._runner.stop()
        self.runs.keep(now=True)
        self._spool.close()
        if self._scribe is not None:
            self._scribe.close()


def _scribe(settings: Settings, node: NodeWatch, clock: Callable[[], float]) -> Scribe | None:
    """Return who writes the journal, or None where there is to be none or it cannot be used, which is told."""
    if not settings.journal.enabled:
        return None
    path = settings.journal.path or journal_path(settings.sources.state_folder, os.environ)
    try:
        # A round must not wait for another writer for long: what is not written now is written by the next one.
        journal = Journal(path, clock=clock, patience=0.25, verify=True)
    except JournalError as error:
        log.warning("no journal: %s", error)
        return None
    return Scribe(journal, node, keep=settings.journal.keep, size=settings.journal.size, clock=clock)


def _orders(token_file: str, steering: Steering) -> Orders | None:
    """Return who takes orders from elsewhere, or None where nobody is to.  Raises ConfigError."""
    if not token_file:
        return None
    try:
        token.read(token_file)
    except TokenError as error:
        raise ConfigError(f"orders.token_file: {error}") from None
    log.info("orders to runs are taken from whoever shows the token in %s", token_file)
    return Orders(steering, token_file)


def _advice() -> dict[str, object]:
    """Return what to do about each signal, in English and in Chinese, and where to read more."""
    from trainvitals.generate.alerts import ALERTS  # noqa: PLC0415  Only who opens the page at a finding needs it.

    return {
        alert.signal: {"action": [alert.action, alert.action_zh], "runbook": alert.runbook_url}
        for alert in reversed(ALERTS)
        if alert.signal is not None
    }


def _rules(settings: Settings) -> Rules:
    """Return what the detectors go by.  Raises ConfigError."""
    try:
        return parse(settings.detectors.model_extra)
    except RulesError as error:
        raise ConfigError(str(error)) from None
