"""The exporter as a process: a golden scrape, no leaks, and clear words for a wrong setting."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "metrics.txt"

#: Families whose values differ from run to run or from machine to machine; their series are compared, not their values.
UNSTABLE = re.compile(
    r"^(trainvitals_(host_\w+|rank_(process|loader)_\w+|device_(utilization|memory_used|memory_activity|temperature|power_watts|clock)\w*"
    r"|\w*timestamp_seconds|step_duration_seconds\w*|phase_seconds_total|collector_duration_seconds|journal_bytes|build_info"
    r"|device_source_\w+|checkpoint_duration_seconds|records_\w+)|process_\w+)"
)
#: Which of these there are depends on the machine.
ABSENT = re.compile(
    r"^(trainvitals_(host|network|infiniband|kernel|device_source|container|rank_cgroup|rank_process_descriptors"
    r"|rank_container|rank_slurm|lineage)_|process_|python_|trainvitals_build_info)"
)

TRAINER = """
import sys, trainvitals
trainvitals.init(run="golden", target_steps=100, device_uuid="SIMULATED-0")
for number in range(40):
    with trainvitals.phase("data"):
        pass
    trainvitals.step(number, loss=2.0, learning_rate=0.5, grad_norm=0.25, tokens=128, samples=8, accuracy=0.75)
trainvitals.evaluate(39, loss=2.5, accuracy=0.5)
with trainvitals.checkpoint(39, "/nowhere/39.pt"):
    pass
trainvitals.event("change", "batch size doubled")
print("trained", flush=True)
sys.stdin.read()
"""


class Exporter:
    """A running exporter and what it prints."""

    def __init__(self, spool, *flags):
        command = [sys.executable, "-m", "trainvitals", "exporter", "--web.listen-address=127.0.0.1:0"]
        command += [f"--spool.folders={spool}", "--collect.interval=0.2s", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.log = []
        self._reader = threading.Thread(target=lambda: self.log.extend(iter(self._line, None)))
        self._reader.start()
        self.url = self._wait(lambda: re.search(r"listening on (\S+)", "\n".join(self.log)))[1]

    def _line(self):
        return self.process.stderr.readline() or None

    def _wait(self, condition, seconds=20.0):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = condition()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError("\n".join(self.log))

    def wait_for_log(self, pattern):
        """Wait for a line on standard error."""
        self._wait(lambda: re.search(pattern, "\n".join(self.log)))

    def wait_for_devices(self):
        """Wait until the process that reads NVIDIA devices has read some or found that there are none."""
        self._wait(
            lambda: (
                "devices of nvidia" in "\n".join(self.log)
                or 'trainvitals_device_source_up{vendor="nvidia"} 1.0' in self.scrape()
            )
        )
        children = psutil.Process(self.process.pid).children()
        if "devices of nvidia" in "\n".join(self.log):
            psutil.wait_procs(children, timeout=20)

    def scrape(self):
        """Return the text of one scrape."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def until(self, condition, seconds=20.0):
        """Scrape until ``condition`` holds for the text; return that text."""
        deadline = time.monotonic() + seconds
        text = ""
        while time.monotonic() < deadline:
            try:
                text = self.scrape()
            except OSError:
                continue
            if condition(text):
                return text
            time.sleep(0.05)
        raise AssertionError(text)

    def stop(self):
        """Stop it as a service manager does."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=20)
        self._reader.join()
        self.process.stderr.close()
        return code


@pytest.fixture
def spool(tmp_path):
    """An empty spool."""
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@pytest.fixture
def exporter(spool):
    """An exporter with two simulated devices."""
    running = Exporter(spool, "--simulate-devices=2")
    yield running
    if running.process.poll() is None:
        assert running.stop() == 0


@pytest.fixture
def trainer(spool):
    """A training that has done its steps and lives on."""
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TRAINVITALS_DIR": str(spool)},
        text=True,
    )
    assert process.stdout.readline() == "trained\n"
    yield process
    process.communicate()


def normalize(text):
    """Replace what may differ by a star."""
    lines = []
    for line in text.splitlines():
        if line.startswith("# HELP"):
            continue
        name = line.split()[2] if line.startswith("#") else line
        if ABSENT.match(name):
            continue
        lines.append(re.sub(r" \S+$", " *", line) if UNSTABLE.match(line) else line)
    return "\n".join(sorted(lines)) + "\n"


@pytest.mark.usefixtures("trainer")
def test_a_scrape_is_what_it_was(exporter):
    """All series of a run, its devices and the exporter stand in a file; UPDATE_GOLDEN=1 rewrites it."""
    last = ('trainvitals_events_total{kind="change"', "SIMULATED-1", "rank_device_info{", "rank_loader_workers{")
    text = exporter.until(lambda text: all(name in text for name in last))

    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(normalize(text))
    assert GOLDEN.read_text() == normalize(text)


@pytest.mark.usefixtures("trainer")
def test_a_scrape_passes_the_lint_of_prometheus(exporter):
    """`promtool check metrics` has nothing to say."""
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    text = exporter.until(lambda text: "trainvitals_step{" in text)

    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr + done.stdout)
    assert "_created" not in text


def test_host_and_exporter_show_themselves(exporter):
    """The node and the exporter's own process are there, whatever the machine."""
    text = exporter.until(lambda text: "trainvitals_host_cpus " in text)

    for family in (
        "trainvitals_host_memory_available_bytes",
        'trainvitals_host_cpu_seconds_total{mode="idle"}',
        'trainvitals_build_info{python="',
        "process_resident_memory_bytes",
        'trainvitals_collector_success{collector="host"} 1.0',
    ):
        assert f"\n{family}" in text


@pytest.mark.usefixtures("trainer")
def test_fifty_scrapes_leave_nothing_behind(exporter):
    """Descriptors and threads are the same before and after."""
    exporter.until(lambda text: "trainvitals_step{" in text)
    exporter.wait_for_devices()
    process = psutil.Process(exporter.process.pid)
    for _ in range(5):
        exporter.scrape()
    before = (process.num_threads(), len(process.children(recursive=True)))
    descriptors = process.num_fds()

    for _ in range(50):
        exporter.scrape()

    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.num_fds() > descriptors:
        time.sleep(0.05)
    assert process.num_fds() <= descriptors
    assert before == (process.num_threads(), len(process.children(recursive=True)))


def test_sigterm_ends_it_with_its_children(exporter):
    """A service manager's stop is a clean end."""
    exporter.until(lambda text: "trainvitals_host_cpus " in text)
    children = psutil.Process(exporter.process.pid).children(recursive=True)

    assert exporter.stop() == 0

    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--collect.interval=soon"], "trainvitals: flag --collect.interval: collect.interval: expected a duration"),
        (["--config.file=/nowhere.yml"], "trainvitals: /nowhere.yml: No such file or directory"),
        (["--web.config.file=/nowhere.yml"], "trainvitals: /nowhere.yml: "),
        (["--web.listen-address=here"], "trainvitals: web.listen_address: expected HOST:PORT"),
    ],
)
def test_a_wrong_setting_ends_the_start_with_one_line(flags, message):
    """No traceback: one line that says which setting, and what was expected."""
    command = [sys.executable, "-m", "trainvitals", "exporter", *flags]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_a_wrong_rule_ends_the_start_with_one_line(tmp_path):
    """A setting of a detector that nobody knows is named, with the one that was meant."""
    (tmp_path / "rules.yml").write_text("detectors:\n  loss_spik:\n    level_errors: 7\n")
    command = [sys.executable, "-m", "trainvitals", "exporter", f"--config.file={tmp_path / 'rules.yml'}"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (1, "trainvitals: detectors: unknown name 'loss_spik', did you mean loss_spike?\n") == (
        done.returncode,
        done.stderr,
    )


def test_a_spool_that_is_not_there_is_said_once(tmp_path):
    """A folder with a typo would stay empty for ever; one that comes later is read."""
    running = Exporter(tmp_path / "later")

    running.wait_for_log("no spool at .*/later yet")
    assert running.stop() == 0


def test_a_port_that_is_taken_is_one_line(exporter):
    """Two exporters on one port: the second says so."""
    address = exporter.url.removeprefix("http://")
    command = [sys.executable, "-m", "trainvitals", "exporter", f"--web.listen-address={address}"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (1, 1) == (done.returncode, done.stderr.count("\n"))
    assert "expected a free port" in done.stderr
