"""``trainvitals backtest``: what rules would have said, when, beside the defaults; and what labels make of it."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys

import pytest
import yaml

from trainvitals.diagnose.backtest.command import main

#: A spike of the shape of BLOOM-176B's, times the level.
BLOOM = (1.01, 1.18, 1.02, 1.07, 2.32, 1.59, 1.46, 1.28)


def spike(begin, size):
    """Return the factor of a spike that begins at a step, of so many times BLOOM's height."""

    def factor(number):
        place = number - begin
        if not 0 <= place < 20:
            return 1.0
        height = BLOOM[place] if place < len(BLOOM) else 1.0 + 0.28 * math.exp((7 - place) / 3.0)
        return 1.0 + size * (height - 1.0)

    return factor


def log(path, factor=lambda _: 1.0, *, seed=1, steps=1_500, every=1):
    """Write a table of a loss that falls from 9 to 3, with 1 % of noise."""
    noise = random.Random(seed)

    def loss(number):
        return (3.0 + 6.0 * math.exp(-number / 80.0)) * (1.0 + noise.gauss(0.0, 0.01)) * factor(number)

    rows = [f"{n},{loss(n):.5f}" for n in range(0, steps, every)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("step,loss\n" + "\n".join(rows) + "\n")
    return path


def rules(tmp_path, text):
    """Write rules."""
    (tmp_path / "rules.yml").write_text("detectors:\n" + text)
    return tmp_path / "rules.yml"


def run(capsys, *arguments):
    """Return exit status, output, and messages."""
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def document(capsys, *arguments):
    """Return what a backtest says as JSON."""
    status, out, err = run(capsys, *arguments, "--json", "-")
    assert (0, "") == (status, err)
    return json.loads(out)


def test_says_what_was_said_and_when(tmp_path, capsys):
    """A spike at step 1,000 is an alarm some steps later, with the step that it began with; and it is over at last."""
    log(tmp_path / "runs" / "one.csv", spike(1_000, 1.0))

    found = document(capsys, "defaults", tmp_path / "runs")
    (one,) = found["runs"]
    (alarm,) = one["rules"]["alarms"]

    assert ("loss_spike", "warning") == (alarm["signal"], alarm["severity"])
    assert 1_001 <= alarm["since"] <= alarm["step"] <= 1_015
    assert 1_100 < alarm["until"] < 1_300
    assert (1_500, 1_500, 1_499) == (one["steps"], one["points"], one["last_step"])
    assert {"loss_spike": 1} == found["totals"]["rules"]["by_signal"]
    assert pytest.approx(10_000 / 1_500) == found["totals"]["rules"]["alarms_per_10000_steps"]


def test_rules_are_compared_with_the_defaults(tmp_path, capsys):
    """Rules that ask for more miss what the defaults find; the defaults stand beside them."""
    log(tmp_path / "one.csv", spike(1_000, 0.6))
    file = rules(tmp_path, "  loss_spike: {level_errors: 60, outlier_sigmas: 40}\n")

    found = document(capsys, file, tmp_path / "one.csv")
    status, out, _ = run(capsys, file, tmp_path / "one.csv")

    assert (0, 1) == (found["totals"]["rules"]["alarms"], found["totals"]["defaults"]["alarms"])
    assert 60.0 == found["rules"]["loss_spike"]["level_errors"]
    assert 0 == status
    assert "only by the defaults: loss_spike 1,0" in out
    assert "-1 by the rules" in out


def test_what_is_not_grave_enough_is_no_alarm(tmp_path, capsys):
    """A spike that recovers is a warning: where critical is the least, or the signal is off, there is no alarm."""
    log(tmp_path / "one.csv", spike(1_000, 1.0))

    for text in ("  loss_spike: {alarm: critical}\n", "  loss_spike: {enabled: false}\n"):
        found = document(capsys, rules(tmp_path, text), tmp_path / "one.csv")

        assert (0, 1) == (found["totals"]["rules"]["alarms"], found["totals"]["defaults"]["alarms"])


def test_steps_between_lines_count(tmp_path, capsys):
    """A log that tells one step in ten tells of ten: a rate is one of steps."""
    found = document(capsys, "defaults", log(tmp_path / "one.csv", steps=5_000, every=10))

    assert (4_991, 500) == (found["runs"][0]["steps"], found["runs"][0]["points"])


def labelled(tmp_path):
    """Write three runs and what is known of them; return the folder and the labels."""
    log(tmp_path / "runs" / "spike.csv", spike(1_000, 1.0), seed=2)
    log(tmp_path / "runs" / "fine.csv", seed=3)
    log(tmp_path / "runs" / "nan.csv", lambda n: math.nan if n == 700 else 1.0, seed=4)
    labels = tmp_path / "labels.tsv"
    labels.write_text(
        "# what we know\nruns/spike.csv\tloss_spike\t1000\nruns/fine.csv\thealthy\nruns/nan.csv\tnan\t700\n"
    )
    return tmp_path / "runs", labels


def test_labels_tell_delay_and_misses(tmp_path, capsys):
    """Each event is found with its delay, or missed; the words that people use are understood."""
    folder, labels = labelled(tmp_path)

    found = document(capsys, rules(tmp_path, "  loss_spike: {alarm: never}\n"), folder, "--labels", labels)
    by_name = {one["run"]: one for one in found["runs"]}

    assert (2, 1, 1) == tuple(found["totals"]["rules"][key] for key in ("expected", "found", "missed"))
    assert (2, 2, 0) == tuple(found["totals"]["defaults"][key] for key in ("expected", "found", "missed"))
    assert None is by_name["spike"]["rules"]["expected"][0]["found_by"]
    assert 1 <= by_name["spike"]["defaults"]["expected"][0]["delay"] <= 15
    assert "loss_nonfinite" == by_name["nan"]["rules"]["expected"][0]["found_by"]
    assert 0 <= by_name["nan"]["rules"]["expected"][0]["delay"] <= 8
    assert (0, 0.0) == (found["totals"]["rules"]["false"], found["totals"]["rules"]["false_per_10000_steps"])


def test_an_alarm_on_a_healthy_run_is_a_false_one(tmp_path, capsys):
    """So is one that was over before the event that is labelled."""
    log(tmp_path / "healthy.csv", spike(1_000, 1.0), seed=2)
    log(tmp_path / "early.csv", spike(800, 1.0), seed=3)
    labels = tmp_path / "labels.tsv"
    labels.write_text("label\tsize\tpath\tevent_step\nhealthy\t7\thealthy.csv\t\nloss_spike\t8\tearly.csv\t1400\n")

    found = document(capsys, "defaults", tmp_path / "healthy.csv", tmp_path / "early.csv", "--labels", labels)

    assert (2, 1, 0) == tuple(found["totals"]["rules"][key] for key in ("false", "expected", "found"))
    assert pytest.approx(2 * 10_000 / 3_000) == found["totals"]["rules"]["false_per_10000_steps"]


def test_a_label_of_a_folder_is_one_of_its_runs(tmp_path, capsys):
    """What no signal answers to is named and not scored."""
    folder, labels = labelled(tmp_path)
    labels.write_text("runs\thealthy\nruns/nan.csv\tpower cut\tsoon\n")

    found = document(capsys, "defaults", folder, "--labels", labels)

    assert ({"power cut": 1}, 3) == (found["not_scored"], found["labelled"])
    assert (1, 3_000) == (found["totals"]["rules"]["false"], found["runs"][0]["steps"] + found["runs"][2]["steps"])
    assert "1 steps are no numbers" in found["problems"][0]["problem"]


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        (["--fail-on-alarms-above", "6"], 1),
        (["--fail-on-alarms-above", "7"], 0),
        (["--fail-on-missed-above", "0", "--labels", "labels.tsv"], 1),
        (["--fail-on-missed-above", "1", "--labels", "labels.tsv"], 0),
        (["--fail-on-alarms-above", "0", "--labels", "labels.tsv"], 0),
    ],
)
def test_exit_status_for_ci(tmp_path, capsys, monkeypatch, limit, status):
    """1 on more alarms in 10,000 steps than that (here 6.7), or more misses; with labels only false alarms count."""
    log(tmp_path / "one.csv", spike(1_000, 1.0))
    (tmp_path / "labels.tsv").write_text("one.csv\tloss_spike\t1000\none.csv\tslow\t500\n")
    monkeypatch.chdir(tmp_path)

    assert status == run(capsys, "defaults", "one.csv", *limit)[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("detectors: {loss_spik: {}}", "detectors: unknown name 'loss_spik', did you mean loss_spike?"),
        ("detektors: {}", "unknown name 'detektors', did you mean detectors?"),
        ("loss_spike: {}", "loss_spike belongs below detectors:"),
        ("web: {}", "expected a section detectors: (trainvitals backtest --defaults prints one)"),
        ("[1", "not valid YAML"),
    ],
)
def test_a_mistake_in_the_rules_is_one_line(tmp_path, capsys, text, message):
    """It names the file, and what was meant."""
    (tmp_path / "rules.yml").write_text(text)

    status, out, err = run(capsys, tmp_path / "rules.yml", log(tmp_path / "one.csv", steps=20))

    assert (2, "", 1) == (status, out, err.count("\n"))
    assert err.startswith(f"trainvitals backtest: {tmp_path}/rules.yml: {message}")


def test_nothing_to_read_is_one_line(tmp_path, capsys):
    """A path that is not there, rules that are not there, labels that are not there."""
    one = log(tmp_path / "one.csv", steps=20)

    for arguments, message in (
        (("defaults", tmp_path / "none.csv"), "no run with steps in"),
        ((tmp_path / "none.yml", one), f"{tmp_path}/none.yml: No such file or directory"),
        (("defaults", one, "--labels", tmp_path / "none.tsv"), f"{tmp_path}/none.tsv: No such file or directory"),
        (("defaults", one, "--format", "tabel"), "--format: "),
    ):
        status, out, err = run(capsys, *arguments)

        assert (2, "", 1) == (status, out, err.count("\n"))
        assert err.startswith(f"trainvitals backtest: {message}")


def test_the_defaults_are_printed_and_can_be_used(tmp_path, capsys):
    """The file that --defaults prints says what the defaults say, and is a settings file of the exporter."""
    from trainvitals.config import load

    _, text, _ = run(capsys, "--defaults")
    (tmp_path / "rules.yml").write_text(text)
    found = document(capsys, tmp_path / "rules.yml", log(tmp_path / "one.csv", spike(1_000, 1.0)))

    assert 1 == found["totals"]["rules"]["alarms"] == found["totals"]["defaults"]["alarms"]
    assert yaml.safe_load(text)["detectors"] == load(str(tmp_path / "rules.yml"), {}, {}).detectors.model_extra


def test_it_is_a_command():
    """``trainvitals backtest`` starts, and wants rules and logs."""
    command = [sys.executable, "-m", "trainvitals", "backtest"]

    done = subprocess.run([*command, "--defaults"], capture_output=True, text=True, check=False, timeout=60)
    missing = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("# What the detectors go by")
    assert 2 == missing.returncode
    assert "expected a file of rules, and logs" in missing.stderr
