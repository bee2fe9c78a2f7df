"""One full node as its exporter shows it: the real exporter, real ranks, and devices and ports that do not exist.

The driver is the stub of the tests (8 devices with NVLink and activity), or, without a compiler, the exporter's own
simulated devices; the ports are those of the tests' fixtures, 8 of 400 Gb/s.
Run as a program, this file is one rank: it reports steps with everything that a probe can tell until its input ends.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fixtures.nvml import driver
from tests.host.sysfs_tables import plant

RUN = "fleet"
DEVICES = 8
#: What the stub has beyond its defaults: healthy, with links and activity.
#: It looks for events in a file, so it shall look seldom.
_BOARD = (
    *("value * links 18", "value * gpm 1", "value * event_pause 100"),
    *("value * sram 0", "value * tpc_repair 0", "value * generation 5", "value * width 16"),
)
PORTS = 8
STEPS_PER_SECOND = 20
#: Steps until every detector that needs some has an opinion.
STEPS = 600
START_SECONDS = 120.0
#: What is scraped is collected so often here; on a node it is every 5 s, between two scrapes of 15.
INTERVAL = "1s"
PAUSE = 1.3


class Scrape(NamedTuple):
    """What the exporter answered, and when (seconds since 1970)."""

    time: float
    text: str


def look(ranks: int, world_size: int, *, count: int = 8, steps: int = STEPS, simulated: int = 0) -> list[Scrape]:
    """Return scrapes of a node on which so many ranks of a run of ``world_size`` have done some steps.

    ``simulated`` devices stand in for the stub of NVML where it cannot be compiled.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleet-node-")))
        spool = tempfile.mkdtemp(prefix="trainvitals-fleet-", dir="/dev/shm")
        stack.callback(shutil.rmtree, spool, ignore_errors=True)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TRAINVITALS_")}
        if not simulated:
            board = driver.Driver(driver.compile_stub(folder), folder)
            board.behave(*_BOARD)
            environ = board.environ
        (folder / "bus").mkdir()
        environ |= {"TRAINVITALS_COLLECT_INTERVAL": INTERVAL, "TRAINVITALS_DEVICES_INTERVAL": INTERVAL}
        environ |= {"TRAINVITALS_NETWORK_SYSFS": str(_ports(folder / "sys")), "TRAINVITALS_DIR": spool}
        # A complaint in the log of this machine's kernel would be one of every node.
        (folder / "kmsg").write_text("6,1,1,-;a healthy node\n")
        environ |= {"TRAINVITALS_KERNEL_PATH": str(folder / "kmsg")}
        # The bus of this machine, or of the tests, has other devices.
        environ |= {"TRAINVITALS_PCI_DEVICES": str(folder / "bus")}
        devices = [f"SIMULATED-{i}" if simulated else driver.uuid(i) for i in range(simulated or DEVICES)]
        for rank in range(ranks):
            stack.enter_context(_rank(rank, world_size, devices[rank % len(devices)], environ))
        url = stack.enter_context(_exporter(environ, folder / "log", simulated))
        _wait(url, ranks, steps, len(devices))
        scrapes = []
        for _ in range(count):
            time.sleep(PAUSE)
            scrapes.append(Scrape(time.time(), _fetch(url)))
        return scrapes


def _ports(root: Path) -> Path:
    """Plant the /sys of a node: its RDMA ports, a bond and its interfaces."""
    plant(root, "interfaces")
    for number in range(PORTS):
        plant(root, "connectx7_infiniband", n=number)
    return root


@contextlib.contextmanager
def _rank(rank: int, world_size: int, device: str, environ: dict[str, str]) -> Iterator[None]:
    names = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size), "FLEET_DEVICE": device}
    child = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, env={**environ, **names})
    try:
        yield
    finally:
        child.communicate()


@contextlib.contextmanager
def _exporter(environ: dict[str, str], log: Path, simulated: int) -> Iterator[str]:
    """Run the exporter and yield the address of its metrics."""
    command = [sys.executable, "-m", "trainvitals", "exporter", "--web.listen-address=127.0.0.1:0"]
    with open(log, "wb") as output:
        child = subprocess.Popen([*command, f"--simulate-devices={simulated}"], stderr=output, env=environ)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (place := re.search(r"listening on (http://\S+)", log.read_text())):
            if child.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the exporter did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield f"{place[1]}/metrics"
    finally:
        child.terminate()
        child.wait(timeout=30)


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def _wait(url: str, ranks: int, steps: int, devices: int) -> None:
    """Wait until the exporter shows every rank at that step, every device and every port."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            text = _fetch(url)
            done = [float(value) for value in re.findall(r"^trainvitals_step\{.*\} (\S+)$", text, re.MULTILINE)]
            shown = len(re.findall(r"^trainvitals_device_up\{.*\} 1\.0$", text, re.MULTILINE))
            ports = len(re.findall(r"^trainvitals_infiniband_port_up\{", text, re.MULTILINE))
            attributed = text.count("\ntrainvitals_rank_device_info{")
            if len(done) == attributed == ranks and min(done) >= steps and shown >= devices and ports == PORTS:
                return
        time.sleep(0.2)
    raise SystemExit("the exporter does not show all ranks, devices and ports")


def train() -> None:
    """Report steps until standard input ends: a healthy rank, with every kind of thing that a probe can tell."""
    import trainvitals  # noqa: PLC0415

    rank = int(os.environ["RANK"])
    told = {"device_uuid": os.environ["FLEET_DEVICE"], "node_rank": 0}
    config = {"learning_rate": 3e-4, "batch_size": 8}
    if not trainvitals.init(run=RUN, target_steps=10_000_000, config=config, dataset={"name": "made"}, **told):
        raise SystemExit("the probe does not record here")
    noise = random.Random(rank)
    for step, _ in enumerate(trainvitals.data(iter(lambda: list(range(8)), None)), 1):
        for phase in ("forward", "backward", "optimizer"):
            with trainvitals.phase(phase):
                time.sleep(0.2 / STEPS_PER_SECOND)
        loss = 2 + 8 * math.exp(-step / 300) + 0.02 * noise.random()
        values = {f"value_{number}": noise.random() for number in range(11)}
        values |= {"loss": loss, "learning_rate": 3e-4, "grad_norm": 1 + 0.1 * noise.random()}
        trainvitals.step(step, {**values, "tokens": 4096, "samples": 8})
        if step % 50 == 0:
            trainvitals.evaluate(step, {"loss": loss, "accuracy": 1 - loss / 12})
            with trainvitals.checkpoint(step, f"/nowhere/{step}.pt"):
                time.sleep(0.01)
        if select.select([sys.stdin], [], [], 0.4 / STEPS_PER_SECOND)[0]:
            break


if __name__ == "__main__":
    train()
