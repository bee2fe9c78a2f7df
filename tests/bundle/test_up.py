"""`trainvitals up` as a whole, run as its own process: what it starts, what it says, and that nothing stays."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import urllib.request

import pytest
import yaml
from tests.notify.robots import Robots
from tests.notify.robots import settings as notifier_settings

from trainvitals.bundle.up import run_up

CODE = """
import fcntl, sys, termios
from trainvitals.bundle import ports
from trainvitals.bundle.up import run_up

options = eval(sys.argv[1])
ports.USUAL_PORTS["exporter"] = options.pop("usual_port", 0)
if options.pop("terminal", False):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.exit(run_up(**options))
"""
PROGRAMS = {"prometheus": ("prometheus",), "alertmanager": ("alertmanager", "prometheus-alertmanager")}


@pytest.fixture
def up(tmp_path, family):
    """A function that starts `up` with a PATH of its own choice; what it prints goes to a file."""
    started = []

    class Up:
        def __init__(self, path=os.environ["PATH"], **options):
            self.temporary = tmp_path / f"tmp{len(started)}"
            self.temporary.mkdir()
            self._output = tmp_path / f"output{len(started)}"
            environ = {**family.environ, "PATH": str(path), "TMPDIR": str(self.temporary), "TRAINVITALS_DISABLE": ""}
            environ["XDG_CONFIG_HOME"] = str(tmp_path / "config")
            with open(self._output, "w") as output:
                self.process = subprocess.Popen(
                    [sys.executable, "-c", CODE, repr({"demo": False, **options})],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environ,
                    cwd=tmp_path,
                )
            started.append(self)

        @property
        def output(self):
            """Everything printed so far, folded lines joined."""
            text = re.sub(r"[╭╮╰╯│─]", " ", self._output.read_text())
            return " ".join(text.split())

        @property
        def left(self):
            """Files in the temporary folder, and processes, that are still there."""
            return [*(str(path) for path in self.temporary.iterdir()), *family.living()]

    yield Up
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def needs_programs():
    """Skip where Prometheus or Alertmanager is missing."""
    for names in PROGRAMS.values():
        if not any(map(shutil.which, names)):
            pytest.skip(f"{names[0]} is not on PATH")


@pytest.fixture
def robots():
    """Robots that answer."""
    with Robots() as running:
        yield running


def folder_of(tmp_path, **scripts):
    """Return a folder for PATH that holds nothing but these shell scripts."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, body in scripts.items():
        script = folder / name.replace("_", "-")
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
    return folder


def address(output, title):
    """Return the URL that the table gives for a title."""
    return re.search(rf"{title} (http://127\.0\.0\.1:\d+)", output).group(1)


def fetch(url):
    """Return the body of a GET."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def test_without_prometheus_the_exporter_runs_and_the_way_to_get_it_is_said(up, tmp_path, until):
    """One table, what is missing, how to get it; then Ctrl-C, exit code 0 and nothing left."""
    bundle = up(path=folder_of(tmp_path))
    until(lambda: "Get Prometheus and Alertmanager" in bundle.output)
    assert "Prometheus is not on PATH: no history, no gauges and no alerts." in bundle.output
    assert "trainvitals_build_info" in fetch(address(bundle.output, "Exporter") + "/metrics")
    bundle.process.send_signal(signal.SIGINT)
    assert bundle.process.wait(timeout=60) == 0
    assert bundle.output.endswith("stopped; nothing is left behind")
    until(lambda: bundle.left == [])


def test_the_demo_without_numpy_and_pytorch_says_what_to_install(monkeypatch, capsys):
    """One line, exit code 1, and nothing was started."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert run_up(demo=True) == 1
    said = capsys.readouterr()
    assert said.err == (
        "trainvitals: the demo trains in PyTorch or NumPy, and neither is here: pip install 'trainvitals[demo]'\n"
    )
    assert said.out == ""


def test_a_prometheus_that_dies_at_once_ends_the_start(up, tmp_path, until):
    """Exit code 1, its last words, no traceback, nothing left."""
    bundle = up(path=folder_of(tmp_path, prometheus="echo no such flag; exit 3"))
    assert bundle.process.wait(timeout=60) == 1
    assert "trainvitals: Prometheus ended by itself with exit code 3. It said last: no such flag" in bundle.output
    assert "Traceback" not in bundle.output
    until(lambda: bundle.left == [])


def test_ctrl_c_during_the_start_ends_it(up, tmp_path, until):
    """A program that is never ready does not hold anybody up."""
    bundle = up(
        path=folder_of(tmp_path, prometheus="exec /bin/sleep 600", prometheus_alertmanager="exec /bin/sleep 600")
    )
    until(lambda: any("/bin/sleep 600" in line for line in bundle.left))
    bundle.process.send_signal(signal.SIGINT)
    assert bundle.process.wait(timeout=60) == 0
    assert "Traceback" not in bundle.output
    until(lambda: bundle.left == [])


def test_a_second_ctrl_c_leaves_no_orphans(up, tmp_path, until):
    """A child that refuses SIGTERM is killed at the second Ctrl-C, not forgotten."""
    script = "trap 'echo no' TERM; echo up; while :; do /bin/sleep 1; done"
    bundle = up(path=folder_of(tmp_path, prometheus=script))
    log = until(lambda: next(bundle.temporary.glob("*/logs/prometheus.log"), None))
    until(lambda: log.read_text() == "up\n")
    bundle.process.send_signal(signal.SIGINT)
    until(lambda: not log.exists() or "no" in log.read_text())
    bundle.process.send_signal(signal.SIGINT)
    assert bundle.process.wait(timeout=60) == 0
    until(lambda: bundle.left == [])


@pytest.mark.usefixtures("needs_programs")
def test_on_a_terminal_the_gauges_move_and_ctrl_c_stops(tmp_path, family, until):
    """The key itself reaches only `up`: every child lives in a session of its own and is stopped in order."""
    (tmp_path / "tmp").mkdir()
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, repr({"demo": True, "demo_arguments": ["--batch=64"], "terminal": True})],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**family.environ, "TMPDIR": str(tmp_path / "tmp"), "TRAINVITALS_DISABLE": "", "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(slave)
    seen = bytearray()

    def read():
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                return
            seen.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        until(lambda: "━".encode() in seen and b"progress" in seen, 90)
        os.write(master, b"\x03")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        reader.join()
        os.close(master)
    text = seen.decode()
    assert "stopped; nothing is left behind" in text
    assert "Traceback" not in text
    # The cursor was hidden while the gauges moved, and is back.
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    until(lambda: [*(tmp_path / "tmp").iterdir(), *family.living()] == [])


def test_a_taken_port_is_said(up, tmp_path):
    """Another port is used, and the table says so."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        bundle = up(path=folder_of(tmp_path), seconds=0.0, usual_port=taken)
        assert bundle.process.wait(timeout=60) == 0
    assert f"port {taken} was taken" in bundle.output
    assert address(bundle.output, "Exporter") != f"http://127.0.0.1:{taken}"


@pytest.mark.usefixtures("needs_programs")
def test_a_child_that_dies_later_is_reported(up, until):
    """Its end and its last words are said; the rest goes on."""
    bundle = up()
    until(lambda: "Ctrl-C stops everything" in bundle.output)
    log = next(bundle.temporary.glob("*/logs/exporter.log"))
    exporter = next(
        int(pid)
        for pid in os.listdir("/proc")
        if pid.isdigit() and f"--web.listen-address={address(bundle.output, 'Exporter')[7:]}" in command_line(pid)
    )
    os.kill(exporter, signal.SIGKILL)
    until(lambda: "Exporter was ended by SIGKILL." in bundle.output)
    assert log.exists()
    assert fetch(address(bundle.output, "Prometheus") + "/-/healthy")
    bundle.process.send_signal(signal.SIGTERM)
    assert bundle.process.wait(timeout=60) == 0
    until(lambda: bundle.left == [])


def command_line(pid):
    """Return the command line of a process, or nothing when it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().replace("\0", " ")
    except OSError:
        return ""


@pytest.mark.usefixtures("needs_programs")
def test_sigkill_leaves_nothing_behind(up, until):
    """The kernel and the guard end the children and remove the folder when `up` cannot."""
    bundle = up(demo=True)
    until(lambda: "step 0: training" in bundle.output, 90)
    assert len(bundle.left) >= 6
    bundle.process.kill()
    bundle.process.wait()
    until(lambda: bundle.left == [])


@pytest.mark.usefixtures("needs_programs")
def test_a_named_data_folder_is_kept(up, tmp_path, until):
    """Data and logs stay, and can be used again; a relative name is taken from where one is."""
    for _ in range(2):
        bundle = up(data_dir="kept", seconds=1.0)
        assert bundle.process.wait(timeout=90) == 0
        assert bundle.output.endswith(f"the data is in {tmp_path / 'kept'}")
        until(lambda bundle=bundle: bundle.left == [])
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"prometheus", "alertmanager", "logs"} <= kept
    assert "spool" not in kept


def test_two_at_once_do_not_share_a_data_folder(up, tmp_path, until):
    """The second is told in one line."""
    first = up(path=folder_of(tmp_path), data_dir="kept")
    until(lambda: "Ctrl-C stops everything" in first.output)
    second = up(path=tmp_path / "programs", data_dir="kept")
    assert second.process.wait(timeout=60) == 1
    assert second.output == f"trainvitals: another `trainvitals up` is using {tmp_path / 'kept'}"
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(timeout=60) == 0


@pytest.mark.end_to_end
@pytest.mark.usefixtures("needs_programs")
def test_the_demo_breaks_and_the_message_arrives(up, until, robots, tmp_path):
    """A real training breaks; mail, webhook and robots name run, rank, step and action."""
    schedule = ["--healthy-seconds=2", "--broken-seconds=5", "--batch=128", "--steps=100000"]
    (tmp_path / "notify.yml").write_text(yaml.safe_dump(notifier_settings(robots, tmp_path)))
    bundle = up(demo=True, simulate_devices=2, demo_arguments=schedule, notify_file="notify.yml")
    until(lambda: "now raising the learning rate" in bundle.output, 180)
    subject = "e-mail: FIRING [FIRING critical] Run demo: the loss is NaN or infinite"
    until(lambda: subject in bundle.output, 120)
    until(lambda: "FIRING TrainvitalsLossNonfinite (run demo)" in bundle.output)
    until(lambda: re.search(r"demo progress \d+%, learning 0%", bundle.output), 120)
    until(lambda: "as the message advises" in bundle.output, 120)
    # Others may stand before it: a loss on its way to NaN is far above what it was.
    mail = re.search(rf"{re.escape(subject)}.*?Runbook:", bundle.output).group()
    assert re.search(r"Where: run=demo Since: .* Evidence: rank 0 on .*: since step \d+: loss is", mail)
    assert "What to do: Data first" in mail
    webhook = re.search(r"FIRING TrainvitalsLossNonfinite .*?To do: .*?\.", bundle.output).group()
    assert re.search(r"\(run demo\): rank 0 on .*: since step \d+: loss is .* To do: Data first", webhook)
    for kind in ("dingtalk", "feishu", "wecom"):
        until(lambda kind=kind: told_of_the_nan(robots, kind))
        [text] = told_of_the_nan(robots, kind)
        assert re.search(r"rank 0 on .*: since step \d+: loss is", text)
        assert "Data first" in text
    assert "Traceback" not in bundle.output
    bundle.process.send_signal(signal.SIGINT)
    assert bundle.process.wait(timeout=60) == 0
    assert bundle.output.endswith("stopped; nothing is left behind")
    until(lambda: bundle.left == [])


def told_of_the_nan(robots, kind):
    """Return what a robot of the receiver of its own name was told, in both languages, of the NaN that begins."""
    return [text for other, title, text in robots.taken if other == kind and "FIRING" in title and "NaN" in title]


@pytest.mark.usefixtures("needs_programs")
def test_settings_of_the_notifier_that_are_found_are_used_but_not_by_a_demo(up, robots, tmp_path):
    """Nobody is called for what a demo does."""
    file = tmp_path / "config" / "trainvitals" / "notify.yml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(notifier_settings(robots, tmp_path)))

    # One after the other: both look for free ports.
    usual = up(seconds=1.0)
    assert usual.process.wait(timeout=120) == 0, usual.output
    demo = up(demo=True, seconds=1.0, demo_arguments=["--batch=64"])
    assert demo.process.wait(timeout=120) == 0, demo.output

    assert re.search(r"Notifier http://127\.0\.0\.1:\d+", usual.output)
    assert "Robots all, dingtalk, feishu, wecom" in usual.output
    assert "Notifier" not in demo.output


@pytest.mark.usefixtures("needs_programs")
def test_wrong_settings_of_the_notifier_end_the_start(up, tmp_path, until):
    """Exit code 1, what is wrong in one line, no traceback, nothing left."""
    (tmp_path / "notify.yml").write_text("receivers: {team: {targets: [{kind: pigeon}]}}")
    bundle = up(notify_file="notify.yml")
    assert bundle.process.wait(timeout=120) == 1
    assert "Notifier ended by itself with exit code 2." in bundle.output
    assert "kind: expected one of dingtalk, feishu, wecom, apprise, found 'pigeon'" in bundle.output
    assert "Traceback" not in bundle.output
    until(lambda: bundle.left == [])
