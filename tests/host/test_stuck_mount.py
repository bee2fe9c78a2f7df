"""A real exporter on a real file system that stops answering: its probe hangs, and SIGKILL does not reach it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from tests.helpers import wait_until

FROZEN = Path(__file__).parents[1] / "fixtures" / "fuse" / "frozen.py"


def namespace():
    """Return the command that gives a mount namespace of its own, None where that is not allowed."""
    for flags in ("-m", "-Urm"):
        command = ["unshare", flags, sys.executable, str(FROZEN), "/mnt", "true"]
        if shutil.which("unshare") and os.path.exists("/dev/fuse"):
            done = subprocess.run(command, input="", capture_output=True, text=True, check=False, timeout=60)
            if done.stdout == "ready\n":
                return ["unshare", flags]
    return None


@pytest.fixture(scope="module")
def unshare():
    """The command, or no test."""
    command = namespace()
    if command is None:
        pytest.skip("FUSE cannot be mounted here: it needs /dev/fuse and a mount namespace")
    return command


class Node:
    """An exporter and a file system that takes orders."""

    def __init__(self, unshare, folder):
        self.mountpoint = str(folder / "nas")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        for name in ("nas", "spool"):
            (folder / name).mkdir()
        exporter = [sys.executable, "-m", "trainvitals", "exporter", f"--web.listen-address=127.0.0.1:{self.port}"]
        self._process = subprocess.Popen(
            [
                *unshare,
                *(sys.executable, str(FROZEN), self.mountpoint),
                *(*exporter, f"--spool.folders={folder / 'spool'}", "--collect.interval=0.2s"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TRAINVITALS_STORAGE_TIMEOUT": "1s", "TRAINVITALS_STORAGE_INTERVAL": "1s"},
        )
        assert self._process.stdout.readline() == "ready\n"

    def order(self, text):
        """Give an order and return the answer."""
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def scrape(self):
        """Return the series of the file system by family, empty before the exporter answers."""
        begun = time.monotonic()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as answer:
                text = answer.read().decode()
        except OSError:
            self.others = ""
            return {}
        self.took = time.monotonic() - begun
        series = [line.rpartition(" ") for line in text.splitlines() if f'mountpoint="{self.mountpoint}"' in line]
        self.others = text
        return {name.partition("{")[0].removeprefix("trainvitals_host_filesystem_"): float(v) for name, _, v in series}

    def until(self, condition):
        """Scrape until a condition holds for the series; return them."""
        return wait_until(lambda: found if condition(found := self.scrape()) else None)

    def exporter(self):
        """Return the exporter's process and the one that probes."""
        exporter = psutil.Process(self._process.pid).children()[0]
        return exporter, next(one for one in exporter.children() if "mount_worker.py" in " ".join(one.cmdline()))

    def end(self):
        """Let the file system go, and with it everybody who waits for it."""
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture
def node(unshare, tmp_path):
    """A node whose exporter was not started."""
    made = Node(unshare, tmp_path)
    yield made
    made.end()


def test_a_mount_gets_stuck_and_recovers(node):
    """Values, then stuck without values while scrapes are quick and others go on, then values again."""
    node.order("start")
    found = node.until(lambda found: "size_bytes" in found)
    assert (found["size_bytes"], found["available_bytes"]) == (20_480_000, 6_144_000)
    assert (found["files"], found["files_free"], found["stuck"]) == (700, 300, 0)

    node.order("freeze")
    found = node.until(lambda found: found.get("stuck") == 1)
    assert set(found) == {"info", "read_only", "stuck", "stuck_timestamp_seconds"}
    assert time.time() - 60 < found["stuck_timestamp_seconds"] < time.time()
    assert node.took < 1.0
    assert 'trainvitals_host_filesystem_size_bytes{mountpoint="/"}' in node.others
    assert 'trainvitals_collector_success{collector="storage"} 1.0' in node.others

    node.order("thaw")
    found = node.until(lambda found: "size_bytes" in found)
    assert (found["stuck"], "stuck_timestamp_seconds" in found) == (0, False)

    node.order("unmount")
    wait_until(lambda: node.scrape() == {} and "trainvitals_build_info" in node.others)


def test_one_that_is_stuck_at_first_sight_delays_nothing(node):
    """The exporter starts, answers, and knows after the timeout; it keeps one thread for it and no more."""
    node.order("freeze")
    node.order("start")
    node.until(lambda found: found.get("stuck") == 1)
    exporter, prober = node.exporter()
    before = (exporter.num_threads(), exporter.num_fds(), prober.num_fds())
    for _ in range(30):
        assert node.scrape()["stuck"] == 1
        assert node.took < 1.0

    # The one that reads, and the one that hangs.
    wait_until(lambda: prober.num_threads() == 2)
    assert exporter.num_threads() == before[0]
    assert (exporter.num_fds(), prober.num_fds()) <= (before[1] + 2, before[2] + 2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_the_exporter_ends_and_gives_its_port_back(node, number, code):
    """Whether it is asked or killed; only the probing process stays, held by the kernel, until the server is back."""
    node.order("start")
    node.until(lambda found: "size_bytes" in found)
    node.order("freeze")
    node.until(lambda found: found.get("stuck") == 1)
    _, prober = node.exporter()

    node.order(f"signal {int(number)}")
    ended, seconds = node.order("wait").split()

    assert (int(ended), float(seconds) < 10) == (code, True)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", node.port))
        listener.listen()
    assert prober.is_running()
    node.order("thaw")
    psutil.wait_procs([prober], timeout=60)
    assert not prober.is_running() or prober.status() == psutil.STATUS_ZOMBIE
