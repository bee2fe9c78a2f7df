"""The child process: what it says, and when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.devices.helpers import is_running, wait_until
from tests.fixtures.nvml.driver import Driver

from trainvitals.devices.base import SourceDownError
from trainvitals.devices.wire import ABSENT, Message
from trainvitals.devices.worker import Poller, run
from trainvitals.telemetry import DeviceSample

DEVICE = DeviceSample(index=0, uuid="U", vendor="fake")


class FakeVendor:
    """A vendor that answers with what a test has put into ``outcomes``, the last one again and again."""

    name = "fake"

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.opened = self.closed = 0

    def open(self):
        """Count."""
        self.opened += 1

    def devices(self):
        """Take the next outcome: an error to raise, or the devices that there are."""
        self.outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return range(len(self.outcome))

    def read(self, index):
        """Return a device."""
        return self.outcome[index]

    def faults(self):
        """Return none."""
        return []

    def close(self):
        """Count."""
        self.closed += 1


def test_without_the_library_it_says_so_once_and_ends(tmp_path):
    """No libnvidia-ml on the machine: one line and a status of its own."""
    (tmp_path / "libnvidia-ml.so.1").write_text("hides a real one")
    child = Driver(tmp_path / "libnvidia-ml.so.1", tmp_path).spawn()

    output, _ = child.communicate(timeout=30)

    assert output == b'{"at":-1}\n{"absent":"libnvidia-ml.so.1 was not found"}\n'
    assert child.returncode == ABSENT == 69


def test_it_ends_when_nobody_holds_its_input(driver):
    """A closed standard input ends it with success."""
    child = driver.spawn(interval=60)
    assert child.stdout.readline()

    child.stdin.close()

    assert child.wait(30) == 0
    child.stdout.close()


def test_it_ends_when_nobody_reads_its_output(driver):
    """A closed standard output ends it with success."""
    child = driver.spawn()
    assert child.stdout.readline()

    child.stdout.close()

    assert child.wait(30) == 0
    child.stdin.close()


def test_it_dies_with_its_parent_even_inside_the_driver(driver):
    """A parent that is killed takes a child along that hangs in a call."""
    driver.behave("hang 0 utilization")
    script = (
        "import sys, time; from trainvitals.devices.supervisor import spawn;"
        "print(spawn('nvidia', 0.05).pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], env=driver.environ, stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    wait_until(lambda: driver.hung() == [pid])

    parent.kill()
    parent.communicate()

    wait_until(lambda: not is_running(pid))


def test_a_library_that_prints_does_not_break_the_protocol(driver):
    """What a driver's library writes to standard output goes elsewhere."""
    driver.behave("print")

    assert len(driver.message().devices) == 8


def test_it_stays_small():
    """The child loads the standard library, nvidia-ml-py and the few modules of ours that it needs."""
    script = (
        "import sys; before = set(sys.modules); import trainvitals.devices.worker, trainvitals.devices.nvidia, pynvml;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())

    assert {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) == {"trainvitals", "pynvml"}
    assert {name for name in loaded if name.startswith("trainvitals.")} - {
        name for name in loaded if name.startswith(("trainvitals.devices", "trainvitals.probe", "trainvitals.rankfile"))
    } <= {"trainvitals._version", "trainvitals.telemetry"}


def test_it_needs_little_memory(driver):
    """Beside every training there is room for 40 MiB."""
    child = driver.spawn(interval=60)
    assert child.stdout.readline()
    with open(f"/proc/{child.pid}/status") as file:
        kibibytes = next(int(row.split()[1]) for row in file if row.startswith("VmRSS"))
    child.kill()
    child.communicate()

    assert kibibytes < 40 * 1024


def test_an_unknown_vendor_is_refused():
    """Only vendors of the table can be read."""
    done = subprocess.run(
        [sys.executable, "-m", "trainvitals.devices.worker", "acme"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "invalid choice: 'acme'" in done.stderr


def test_it_does_not_import_from_the_working_directory(driver, tmp_path, monkeypatch):
    """A pynvml.py beside a training's script is not run by the exporter."""
    (tmp_path / "pynvml.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)

    assert len(driver.message().devices) == 8


def test_attempts_to_reconnect_are_spread_out():
    """After a failure the driver is asked after 1, 2, 4 and at most 4 seconds; in between the reason is repeated."""
    now = 0.0
    vendor = FakeVendor(SourceDownError("gone"))
    poller = Poller(vendor, backoff=(1.0, 4.0), clock=lambda: now)
    attempts = []

    for tick in range(33):
        now = tick / 2
        before = vendor.opened
        assert poller.poll() == Message(down="gone")
        if vendor.opened > before:
            attempts.append(now)

    assert attempts == [0.0, 1.0, 3.0, 7.0, 11.0, 15.0]
    assert vendor.closed == 6


def test_a_reading_ends_the_waiting():
    """Once a driver has answered, the next failure is followed by a quick attempt again."""
    now = 0.0
    down = SourceDownError("gone")
    vendor = FakeVendor(down, down, [DEVICE], down, [DEVICE])
    poller = Poller(vendor, backoff=(1.0, 60.0), clock=lambda: now)
    said = []

    for seconds in (0.0, 1.0, 3.0, 4.0, 5.0):
        now = seconds
        said += [poller.poll()]

    reading = Message(devices=[DEVICE], count=1)
    assert said == [Message(down="gone"), Message(down="gone"), reading, Message(down="gone"), reading]
    assert vendor.opened == 4


def test_the_vendor_is_closed_at_the_end():
    """However the loop ends, the driver is let go."""
    vendor = FakeVendor([DEVICE])

    def write(_):
        raise BrokenPipeError

    assert run(Poller(vendor), 1.0, write, lambda _: False) == os.EX_OK
    assert vendor.closed == 1


def test_a_signal_ends_it(driver):
    """SIGTERM is not caught: there is nothing to save."""
    child = driver.spawn(interval=60)
    assert child.stdout.readline()

    child.send_signal(signal.SIGTERM)

    assert child.wait(30) == -signal.SIGTERM
    child.communicate()


@pytest.mark.parametrize("interval", [0.4, 60.0])
def test_there_is_always_a_pause(interval):
    """A reading that took longer than the interval is still followed by a pause of a quarter of it."""
    pauses = []

    def wait(seconds):
        pauses.append(seconds)
        return True

    class Slow(FakeVendor):
        def devices(self):
            time.sleep(0.45)
            return super().devices()

    run(Poller(Slow([DEVICE])), interval, lambda _: None, wait)

    assert len(pauses) == 1
    assert pauses[0] >= interval / 4


def test_devices_can_be_avoided_or_singled_out():
    """A device in ``avoid`` is not touched, with ``only`` no other one is; the number of all devices is told."""
    devices = [DeviceSample(index=index, uuid=f"U{index}", vendor="fake") for index in range(4)]
    rest = Poller(FakeVendor(devices), avoid=[1]).poll()
    scout = Poller(FakeVendor(devices), only=[1, 9]).poll()

    assert ([device.index for device in rest.devices], rest.count) == ([0, 2, 3], 4)
    assert ([device.index for device in scout.devices], scout.count) == ([1], 4)


def test_everything_that_may_hang_is_announced():
    """The driver as a whole is announced before it is opened, asked for devices or faults, and closed."""
    said = []

    class Telling(FakeVendor):
        def open(self):
            said.append("open")

        def devices(self):
            said.append("devices")
            return super().devices()

        def read(self, index):
            said.append(f"read {index}")
            return super().read(index)

        def faults(self):
            said.append("faults")
            return []

        def close(self):
            said.append("close")

    two = [DeviceSample(index=index, uuid=f"U{index}", vendor="fake") for index in range(2)]
    poller = Poller(Telling(two, SourceDownError("gone")), announce=said.append)
    poller.poll()
    assert said == [-1, "open", -1, "devices", 0, "read 0", 1, "read 1", -1, "faults"]

    said.clear()
    poller.poll()
    assert said == [-1, "devices", -1, "close"]
