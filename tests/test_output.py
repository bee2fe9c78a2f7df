"""Standard output that takes no more: a full disk, and a reader that went away."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LINES = "".join(f"iter {step}: loss 2.5000, time 250.00ms, mfu 31.00%\n" for step in range(1, 40))
COMMANDS = [
    ["follow", "--once", "a.log"],
    ["follow", "a.log"],
    ["follow", "--listen", "127.0.0.1:0", "a.log"],
    ["diagnose", "a.log"],
    ["diagnose", "--json", "-", "a.log"],
    ["doctor"],
    ["--help"],
]


def run(arguments, folder, out):
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "trainvitals", *arguments],
        cwd=folder,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_full_disk_is_one_line(tmp_path, arguments):
    """And exit 2, which is no finding and no success."""
    (tmp_path / "a.log").write_text(LINES)
    with open("/dev/full", "w") as full:
        done = run(arguments, tmp_path, full)

    assert (2, "trainvitals: standard output: No space left on device\n") == (done.returncode, done.stderr)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_reader_that_went_away_ends_a_command_quietly(tmp_path, arguments):
    """As it ends every program behind which stands head."""
    (tmp_path / "a.log").write_text(LINES)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(arguments, tmp_path, writer)
    finally:
        os.close(writer)

    assert (141, "") == (done.returncode, done.stderr)


def test_a_closed_output_is_none(tmp_path):
    """Who closes it wants the status alone."""
    (tmp_path / "a.log").write_text(LINES)

    done = subprocess.run(
        [f"{sys.executable} -m trainvitals diagnose a.log >&-"],
        shell=True,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
