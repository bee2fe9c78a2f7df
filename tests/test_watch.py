"""`trainvitals follow`: lines about runs, a summary, and scrapes; and the exporter with sources, as processes."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.helpers import wait_until
from tests.test_exporter import Exporter
from typer.testing import CliRunner

from trainvitals.cli import app
from trainvitals.config import load
from trainvitals.watch import Screen, duration, summarize


def lines(first, last, loss="2.5000"):
    """Return lines of nanoGPT."""
    return "".join(f"iter {step}: loss {loss}, time 250.00ms, mfu 31.00%\n" for step in range(first, last + 1))


def follow(*arguments):
    """Run the command to its end."""
    return CliRunner().invoke(app, ["follow", *map(str, arguments)])


def test_a_summary_has_a_line_for_each_run(tmp_path):
    """Format, last step and loss, number of steps, checkpoints, and what was found; in the order of their names."""
    (tmp_path / "b.log").write_text(lines(1, 7))
    (tmp_path / "a.log").write_text(lines(1, 3) + "saving checkpoint to out\n" + lines(4, 4, "nan"))
    for name in ("a.log", "b.log"):
        os.utime(tmp_path / name, (1_700_000_000, 1_700_000_000))

    done = follow("--once", tmp_path)

    assert 0 == done.exit_code, done.output
    assert [
        "a  nanogpt  silent  step 4  loss nan  4 steps  1 with a loss that is not finite  1 checkpoints",
        "    loss_nonfinite, rank 0: since step 4: loss is NaN in 1 step; before: 2.5 at step 3",
        "b  nanogpt  silent  step 7  loss 2.5  7 steps",
    ] == done.output.splitlines()


def test_a_summary_counts_the_last_line_without_its_end(tmp_path):
    """Nobody writes it any more."""
    (tmp_path / "a.log").write_text(lines(1, 3).rstrip())

    assert "step 3" in follow("--once", tmp_path).output


def test_a_name_commands_no_terminal(tmp_path):
    """A file may be called anything, also what cannot be written or would move the cursor."""
    (tmp_path / "a\x1b[31m\nb\r\udcff.log").write_text(lines(1, 3))

    done = follow("--once", tmp_path)

    assert 0 == done.exit_code, done.output
    assert done.output.splitlines() == ["a\ufffd[31m b \ufffd  nanogpt  step 3  loss 2.5  3 steps"]


def test_a_run_can_be_given_a_name(tmp_path):
    """The name of the log is not always the best one."""
    (tmp_path / "stdout.log").write_text(lines(1, 3))

    assert follow("--once", "--run", "llama", "--format", "nanogpt", tmp_path).output.startswith("llama  nanogpt  ")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("missing", None, "not there"),
        ("notes", "hello\n", "no format that is known"),
        ("empty/x.png", "", "no log of a known format in it"),
    ],
)
def test_what_cannot_be_followed_is_said(tmp_path, name, content, why):
    """One line per path, and the command fails when there is no run at all."""
    path = tmp_path / name
    if content is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    named = path.parent if name.startswith("empty") else path

    done = follow("--once", named)

    assert f"{named}: {why}" in done.output.splitlines()
    assert (name != "notes") == (done.exit_code == 1)


def test_a_wrong_format_is_one_line(tmp_path):
    """It names where the list is, and what may have been meant."""
    done = follow("--once", "--format", "nanogtp", tmp_path)
    odd = follow("--once", "--format", "excel", tmp_path)

    assert 2 == done.exit_code == odd.exit_code
    assert (
        "trainvitals: --format: unknown format 'nanogtp'; did you mean nanogpt or modded-nanogpt? "
        "(all: trainvitals follow --formats)\n"
    ) == done.output
    assert "trainvitals: --format: unknown format 'excel' (all: trainvitals follow --formats)\n" == odd.output


def test_the_formats_are_listed():
    """One a line, with its framework and the extra that it needs."""
    done = follow("--formats")

    assert 0 == done.exit_code
    assert "nanogpt" in done.output.splitlines()
    assert "tensorboard       needs trainvitals[logs]" in done.output.splitlines()


def test_once_and_a_port_do_not_go_together(tmp_path):
    """A summary that ends answers no scrape; one line says what to leave out."""
    (tmp_path / "a.log").write_text(lines(1, 3))

    done = follow("--once", "--listen", "127.0.0.1:0", tmp_path)

    assert (2, "trainvitals: --once ends when all is read and answers no scrape: leave out --once, or --listen\n") == (
        done.exit_code,
        done.output,
    )


def test_old_logs_are_followed_when_they_are_named(tmp_path):
    """Whoever names a log wants to see it, however old it is."""
    (tmp_path / "a.log").write_text(lines(1, 3))
    os.utime(tmp_path / "a.log", (1e9, 1e9))

    assert "step 3" in follow("--once", tmp_path / "a.log").output


def test_the_screen_says_only_what_is_new(tmp_path):
    """The same line is printed once."""
    (tmp_path / "a.log").write_text(lines(1, 3))
    settings = load(None, {}, {"sources.paths": [str(tmp_path)]})
    out = io.StringIO()
    summarize(settings, out)

    from trainvitals import detect
    from trainvitals.collect.logs import LogsCollector
    from trainvitals.collect.runs import Runs

    logs, runs = LogsCollector.from_settings(settings.sources), Runs(detect.build)
    out = io.StringIO()
    screen = Screen(out)
    for _ in range(3):
        logs.read()
        runs.update(logs.poll(), time.time())
        screen.show(runs, logs)

    assert ["a  nanogpt  step 3  loss 2.5"] == out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(42.4, "42s"), (420.0, "7m"), (11_520.0, "3h12m"), (446_400.0, "5d4h"), (float("inf"), "unknown")],
)
def test_times_are_written_as_people_say_them(seconds, text):
    """Two units at most."""
    assert text == duration(seconds)


def test_every_format_is_documented():
    """Each word that --format takes has its row in docs/follow.md."""
    from trainvitals.follow.formats import FORMATS

    page = (Path(__file__).parents[1] / "docs" / "follow.md").read_text()
    assert [] == [known.name for known in FORMATS if f"| `{known.name}` |" not in page]


# Processes ----------------------------------------------------------------------------------------------------------


def test_follow_prints_steps_as_they_are_written(tmp_path):
    """Until Ctrl-C, which is a clean end."""
    log = tmp_path / "train.log"
    log.write_text(lines(1, 3))
    printed = tmp_path / "printed"
    command = [sys.executable, "-m", "trainvitals", "follow", "--interval=0.1s", str(log)]
    with printed.open("w") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            wait_until(lambda: "nanogpt  step 3  loss 2.5\n" in printed.read_text())
            with log.open("a") as file:
                file.write(lines(4, 5, "2.2500"))
            wait_until(lambda: "nanogpt  step 5  loss 2.25\n" in printed.read_text())
        finally:
            process.send_signal(signal.SIGINT)
        assert 0 == process.wait(timeout=20)


def test_follow_serves_scrapes(tmp_path):
    """With an address it is an exporter of these logs."""
    from urllib.request import urlopen

    (tmp_path / "train.log").write_text(lines(1, 3))
    command = [sys.executable, "-m", "trainvitals", "follow", "--listen=127.0.0.1:0", "--interval=0.2s", str(tmp_path)]
    printed = tmp_path / "printed.png"
    with printed.open("w") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            url = wait_until(lambda: re.search(r"serving (http://\S+/metrics)\n", printed.read_text()))[1]

            def text():
                try:
                    with urlopen(url, timeout=10) as answer:
                        return answer.read().decode()
                except OSError:
                    return ""

            wait_until(lambda: 'trainvitals_step{rank="0",run="train"} 3.0' in text())
            assert "trainvitals_host_" not in text()
        finally:
            process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(timeout=20)


def test_an_exporter_follows_its_sources_over_a_restart(tmp_path):
    """A writer appends a NaN; step, loss and finding are in the scrape, and a restart counts nothing twice."""
    log, spool, settings = tmp_path / "train.log", tmp_path / "spool", tmp_path / "trainvitals.yml"
    spool.mkdir()
    settings.write_text(f"sources: {{paths: [{{path: {log}, run: llama}}], state_folder: {tmp_path / 'state'}}}\n")
    log.write_text(lines(1, 20))
    flags = (f"--config.file={settings}",)

    exporter = Exporter(spool, *flags)
    try:
        exporter.until(lambda text: 'trainvitals_step{rank="0",run="llama"} 20.0' in text)
        with log.open("a") as file:
            file.write(lines(21, 23, "nan"))
        before = exporter.until(lambda text: 'run="llama",severity="critical",signal="loss_nonfinite"} 1.0' in text)
    finally:
        assert 0 == exporter.stop()
    assert 'trainvitals_step{rank="0",run="llama"} 23.0' in before
    assert 'trainvitals_loss{rank="0",run="llama"} NaN' in before
    assert 'trainvitals_nonfinite_steps_total{rank="0",run="llama"} 3.0' in before
    assert 'trainvitals_steps_total{rank="0",run="llama"} 23.0' in before
    finding = re.search(r"^trainvitals_finding_info\{.*$", before, re.MULTILINE)[0]

    with log.open("a") as file:
        file.write(lines(24, 25, "nan"))
    exporter = Exporter(spool, *flags)
    try:
        after = exporter.until(lambda text: 'trainvitals_step{rank="0",run="llama"} 25.0' in text)
    finally:
        assert 0 == exporter.stop()
    assert 'trainvitals_steps_total{rank="0",run="llama"} 2.0' in after
    assert 'trainvitals_nonfinite_steps_total{rank="0",run="llama"} 2.0' in after
    assert [finding] == re.findall(r"^trainvitals_finding_info\{.*$", after, re.MULTILINE)
