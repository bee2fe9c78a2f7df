"""The command itself: exit codes, JSON, pipes, and drivers that break or hang."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.devices.conftest import driver, stub

from trainvitals.doctor.table import GROUPS

__all__ = ["driver", "stub"]

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"


def doctor(*arguments, environ=None, cwd="/"):
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "trainvitals", "doctor", *arguments],
        env={**os.environ, **(environ or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def results(done):
    """Return the results by check and subject."""
    document = json.loads(done.stdout)
    return {(each["check"], each["subject"]): each for each in document["results"]}


def test_this_machine_is_examined():
    """Every check of the table has a word, and the exit code says whether something is broken."""
    done = doctor("--json")

    document = json.loads(done.stdout)
    broken = [each for each in document["results"] if each["outcome"] == "problem"]
    assert done.returncode == (1 if broken else 0)
    assert document["sound"] is not bool(broken)
    assert {check.name for group in GROUPS for check in group.checks} == {each["check"] for each in document["results"]}
    assert not [each for each in document["results"] if "the check failed" in each["why"]]
    assert all(each["action"] for each in broken)
    assert done.stderr == ""


def test_a_pipe_gets_plain_text():
    """No escape codes, one line a result, and the verdict last."""
    done = doctor()

    assert "\x1b" not in done.stdout
    assert re.search(r"^  ok        software +Trainvitals ", done.stdout, re.MULTILINE)
    assert re.fullmatch(r"(nothing is broken|\d+ problems?); \d+ ok, \d+ not here", done.stdout.splitlines()[-1])


def test_wrong_usage_is_told_apart():
    """Exit code 2, as of every command of this kind."""
    assert doctor("--no-such-flag").returncode == 2


def test_wrong_settings_are_a_problem_and_no_end(tmp_path):
    """The rest is examined with the defaults."""
    file = tmp_path / "trainvitals.yml"
    file.write_text("collect:\n  intervall: 5s\n")

    done = doctor("--config", str(file), "--json")

    assert done.returncode == 1
    assert results(done)["settings", ""]["outcome"] == "problem"
    assert results(done)["libraries", ""]["outcome"] == "ok"


def test_a_reader_that_goes_away_is_no_error():
    """As with `trainvitals doctor | head -n 1`."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m trainvitals doctor | head -n 1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.stdout == "Exporter\n"
    assert "Traceback" not in done.stderr


def test_a_healthy_driver_is_seen(driver):
    """Eight devices, by the real library and the real reading process."""
    driver.behave("count 8")
    found = results(doctor("--json", environ=driver.environ))

    assert found["NVIDIA", "answering"]["why"].startswith("8 answer: NVIDIA Stub 96GB")
    assert found["persistence mode", ""]["outcome"] == "ok"
    assert found["library", ""]["why"].endswith("libnvidia-ml.so.1")


def test_a_driver_that_hangs_delays_nothing(driver):
    """It is named within 15 seconds, beside everything else."""
    driver.behave("hang 4 utilization")
    begun = time.monotonic()
    done = doctor("--json", environ=driver.environ)
    took = time.monotonic() - begun

    found = results(done)
    assert done.returncode == 1
    assert found["NVIDIA", "device 4"]["why"].startswith("no answer: it hangs")
    assert found["NVIDIA", "answering"]["why"].startswith("7 answer")
    assert found["software", ""]["outcome"] == "ok"
    # The report itself takes 13 s at most; starting Python on a busy machine is not counted.
    assert took < 25


@pytest.mark.parametrize("rule", ["unloaded", "return -1 init 18", "return -1 init 999", "hang -1 init", "print"])
def test_every_way_in_which_a_driver_fails_ends_in_a_report(driver, rule):
    """No check fails by itself, and nothing is printed beside the report."""
    driver.behave(rule)
    done = doctor("--json", environ=driver.environ)

    assert not [each for each in results(done).values() if "the check failed" in each["why"]]
    assert done.stderr == ""


def test_the_sample_in_the_page_has_the_shape_of_the_output():
    """Groups, columns and the last line are those of the command."""
    sample = re.search(r"^```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]
    shapes = (
        r"",
        r"Problems",
        r"  (ok       |not here |problem  ) \S.{38,} \S.*",
        r" {54}(fix|better): \S.*",
        r"(nothing is broken|\d+ problems?); \d+ ok, \d+ not here",
        *(re.escape(group.title) for group in GROUPS),
    )
    for line in sample.splitlines():
        assert any(re.fullmatch(shape, line) for shape in shapes), line
    names = {check.name for group in GROUPS for check in group.checks}
    for line in sample.splitlines():
        if re.match(r"  (ok|not here|problem)", line):
            assert line[12:54].split(":")[0].strip() in names, line
    assert sample.count("\n  ok ") == int(re.search(r"(\d+) ok", sample)[1])


def test_the_page_names_every_check():
    """Who looks for one finds it."""
    page = PAGE.read_text()

    for group in GROUPS:
        for check in group.checks:
            assert f"| {check.name} |" in page, check.name
