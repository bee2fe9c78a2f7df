"""Exporters of devices on one driver that does not exist: the stub of libnvidia-ml of the tests, compiled here."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from scrape import START_SECONDS, fetch

DEVICES = 8
_STUB = Path(__file__).parents[1] / "tests" / "fixtures" / "nvml"
#: What the stub has beyond its defaults, as a board with 8 devices of the Hopper generation: NVLinks, and activity.
#: Waiting for events costs a real driver nothing; the stub looks into a file, so it shall look seldom.
_ALWAYS = ("value * links 18", "value * gpm 1", "value * event_pause 100")
#: Labels that say which device, link or node it is; all others tell signals apart.
_IDENTITY = frozenset({"device", "uuid", "index", "hostname", "devicename", "link"})
#: Series of ours that tell about the reading and not about a device.
_ABOUT_READING = ("trainvitals_device_source", "trainvitals_device_reads", "trainvitals_devices_")


class Stub:
    """The compiled library, and a file with the rules that it follows (stub.h)."""

    def __init__(self, library: Path, control: Path, delay: int = 0) -> None:
        self._library = library
        self._control = control
        self._always = [*_ALWAYS, *([f"delay {delay}"] if delay else [])]
        self.follow()

    @classmethod
    def compile(cls, folder: Path) -> Path:
        """Return the library."""
        compiler = shutil.which("cc")
        if compiler is None:
            raise SystemExit("no C compiler (cc) to build the stub of libnvidia-ml with")
        library = folder / "libnvidia-ml.so.1"
        sources = map(str, sorted(_STUB.glob("*.c")))
        subprocess.run([compiler, "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", str(library), *sources], check=True)
        return library

    def follow(self, *rules: str) -> None:
        """Behave so from now on."""
        new = self._control.with_suffix(".new")
        new.write_text("".join(f"{rule}\n" for rule in [*self._always, *rules]))
        new.replace(self._control)

    def happen(self, *events: str) -> None:
        """Let these events happen now (events.c)."""
        with open(f"{self._control}.events", "a") as file:
            file.write("".join(f"{event}\n" for event in events))

    def environ(self) -> dict[str, str]:
        """Return the environment of an exporter that shall find this driver."""
        # The bus of this machine has none of the devices.
        bus = self._control.parent / "bus"
        bus.mkdir(exist_ok=True)
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("TRAINVITALS_")},
            "LD_LIBRARY_PATH": str(self._library.parent),
            "STUB_NVML_CONTROL": str(self._control),
            "TRAINVITALS_PCI_DEVICES": str(bus),
            "TRAINVITALS_DIR": str(bus),
        }


@dataclass(frozen=True)
class Kind:
    """An exporter: how it is started (the port is put into ``command``) and what it prints when it is ready."""

    title: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)


OURS = Kind(
    "Trainvitals",
    (sys.executable, "-m", "trainvitals", "exporter", "--web.listen-address", "127.0.0.1:{port}"),
)
OURS_EVERY_SECOND = Kind(
    "Trainvitals, every second",
    OURS.command,
    {"TRAINVITALS_COLLECT_INTERVAL": "1s", "TRAINVITALS_DEVICES_INTERVAL": "1s", "TRAINVITALS_COLLECT_TIMEOUT": "1s"},
)
NVITOP = Kind(
    "nvitop-exporter",
    (sys.executable, "-m", "nvitop_exporter", "--bind-address", "127.0.0.1", "--port", "{port}"),
)


class Exporter:
    """A running exporter."""

    def __init__(self, kind: Kind, process: psutil.Process, connection: http.client.HTTPConnection) -> None:
        self.kind = kind
        self.process = process
        self.connection = connection

    def scrape(self) -> tuple[float, bytes]:
        """Return the milliseconds of a scrape and its compressed body."""
        return fetch(self.connection)

    def samples(self) -> list[Sample]:
        """Return what a scrape shows."""
        text = gzip.decompress(self.scrape()[1]).decode()
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def family(self) -> list[psutil.Process]:
        """Return the process and its children."""
        return [self.process, *self.process.children(recursive=True)]

    def mebibytes(self) -> list[tuple[float, float]]:
        """Return resident memory and the share of it that is its own (PSS), of each process."""
        full = [one.memory_full_info() for one in self.family()]
        return [(one.rss / 2**20, one.pss / 2**20) for one in full]


@contextlib.contextmanager
def running(kind: Kind, stub: Stub) -> Iterator[Exporter]:
    """Run an exporter until the end of the block; ready is when it shows every device."""
    with tempfile.TemporaryFile() as log:
        port = free_port()
        child = subprocess.Popen(
            [part.format(port=port) for part in kind.command],
            env={**stub.environ(), **kind.environ},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            exporter = Exporter(
                kind, psutil.Process(child.pid), http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            )
            if not _shows_all(exporter, child):
                log.seek(0)
                said = log.read().decode(errors="replace")
                raise SystemExit(f"{kind.title} does not show {DEVICES} devices:\n{said}")
            yield exporter
            exporter.connection.close()
        finally:
            child.terminate()
            try:
                child.wait(timeout=15)
            except subprocess.TimeoutExpired:
                # One that is held by a call into the driver.
                child.kill()
                child.wait(timeout=15)


def free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    return port


def _shows_all(exporter: Exporter, child: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        try:
            if len({sample.labels["uuid"] for sample in device_samples(exporter.samples())}) >= DEVICES:
                return True
        except (OSError, http.client.HTTPException, RuntimeError):
            exporter.connection.close()
        time.sleep(0.2)
    return False


def device_samples(samples: Sequence[Sample]) -> list[Sample]:
    """Return the series that tell something about a device: no NaN, no names and no processes."""
    return [
        sample
        for sample in samples
        if "uuid" in sample.labels
        and "pid" not in sample.labels
        and not sample.name.endswith(("_info", "_created"))
        and not sample.name.startswith(_ABOUT_READING)
        and re.search("device|gpu", sample.name)
        and not math.isnan(sample.value)
    ]


def signals(samples: Sequence[Sample]) -> set[tuple[str, ...]]:
    """Return the distinct signals of series: a signal is the same on every device and link."""
    found = set()
    for sample in samples:
        rest = sorted(f"{name}={value}" for name, value in sample.labels.items() if name not in _IDENTITY)
        found.add((sample.name, *rest))
    return found
