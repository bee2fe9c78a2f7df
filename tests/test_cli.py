"""The command line: what it offers, and what it says when a library is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from trainvitals import __version__
from trainvitals.cli import app

#: Another flag is a decision: change this list with it.
FLAGS = {
    "exporter": [
        "--collect.interval",
        "--config.file",
        "--help",
        "--log.level",
        "--simulate-devices",
        "--spool.folders",
        "--web.config.file",
        "--web.listen-address",
    ],
    "backtest": [
        "--defaults",
        "--fail-on-alarms-above",
        "--fail-on-missed-above",
        "--format",
        "--help",
        "--json",
        "--labels",
    ],
    "diagnose": ["--fail-on", "--format", "--help", "--html", "--json"],
    "up": ["--data-dir", "--demo", "--for", "--help", "--notify.file", "--simulate-devices"],
    "run": [
        "--back-off",
        "--checkpoint-dir",
        "--dir",
        "--grace",
        "--hang-after",
        "--help",
        "--journal",
        "--max-restarts",
        "--name",
        "--no-progress",
        "--processes",
        "--resume-flag",
        "--resume-from",
        "--state-dir",
        "--wait",
    ],
    "notify": [
        "--check",
        "--config.file",
        "--help",
        "--test",
        "--web.config.file",
        "--web.listen-address",
    ],
    "ctl": [
        "--ca-file",
        "--dir",
        "--help",
        "--json",
        "--node",
        "--part",
        "--patience",
        "--state-dir",
        "--token-file",
    ],
    "incidents": ["--by", "--help", "--journal", "--json"],
    "timeline": ["--all", "--help", "--journal", "--json", "--since"],
    "doctor": ["--config", "--config.file", "--help", "--json", "--record"],
    "follow": [
        "--collect.interval",
        "--format",
        "--formats",
        "--help",
        "--interval",
        "--listen",
        "--once",
        "--run",
        "--web.listen-address",
    ],
    "generate": ["--check", "--help", "--output", "--root", "--thresholds"],
}


def test_the_commands_are_these():
    """As with flags, a new one is a decision."""
    assert set(FLAGS) == {command.name or command.callback.__name__ for command in app.registered_commands}


@pytest.mark.parametrize("command", FLAGS)
def test_the_flags_of_a_command_are_these(command):
    """A flag that comes or goes shows here."""
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})

    words = result.output.replace(",", " ").split()
    assert FLAGS[command] == sorted({word for word in words if word.startswith("--") and len(word) > 2})


def test_the_version_is_that_of_the_package():
    """`trainvitals --version` prints one line."""
    assert CliRunner().invoke(app, ["--version"]).output == f"trainvitals {__version__}\n"


def test_a_bare_installation_says_what_the_commands_need():
    """Without the libraries of the extra, one line and no traceback."""
    script = "import sys; sys.modules['typer'] = None; from trainvitals.__main__ import main; main()"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr == "trainvitals: typer is missing; the commands need: pip install 'trainvitals[node]'\n"
