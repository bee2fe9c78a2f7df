"""Thresholds of a site's own: the file, what is wrong with one, and the rules that come of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tests.rules.test_rules import needs_promtool, promtool
from typer.testing import CliRunner

from trainvitals.cli import app
from trainvitals.config import ConfigError
from trainvitals.generate.alerts import ROWS, alerts, rule_files
from trainvitals.generate.limits import LIMITS, fill
from trainvitals.generate.threshold_file import load, template
from trainvitals.generate.thresholds import DEFAULTS, Thresholds

ROOT = Path(__file__).parents[2]
KINDS = {"Seconds", "Window", "Ratio", "Count", "Number", "Bytes"}


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a file of thresholds and returns its path."""

    def write(text):
        (tmp_path / "mine.yml").write_text(text)
        return str(tmp_path / "mine.yml")

    return write


def generate(*arguments):
    """Run the command in this process."""
    return CliRunner().invoke(app, ["generate", *arguments])


def test_the_defaults_are_valid():
    """The defaults obey the limits that hold for everybody; each is of a kind, which has a unit."""
    assert Thresholds.model_validate(DEFAULTS.model_dump()) == DEFAULTS
    text = (ROOT / "exporter/trainvitals/generate/thresholds.py").read_text().partition("class Thresholds")[2]
    assert set(re.findall(r"^    \w+: (.+) = ", text, re.MULTILINE)) <= KINDS


def test_the_template_changes_nothing_and_without_its_marks_holds_every_default(written):
    """Copied as it is, it is the defaults; with every mark removed it is still the defaults, each one written out."""
    assert load(written(template())) == DEFAULTS

    uncommented = re.sub(r"^#(\w+: )", r"\1", template(), flags=re.MULTILINE)
    assert list(yaml.safe_load(uncommented)) == list(Thresholds.model_fields)
    assert load(written(uncommented)) == DEFAULTS


def test_every_threshold_has_a_comment():
    """A number without its reason helps nobody: above each stands a line of text."""
    lines = template().splitlines()
    for place, line in enumerate(lines):
        if re.match(r"#\w+: ", line):
            assert lines[place - 1].startswith("# "), line


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("stal: 10m", "stal: no threshold is called so; did you mean stall?"),
        ("colour: red", "colour: no threshold is called so"),
        ("1: 2", "1: no threshold is called so"),
        ("stall: ten minutes", 'stall: expected a duration such as "5s", "1m" or "0.5s", found \'ten minutes\''),
        ("stall: on", 'stall: expected a duration such as "5s", "1m" or "0.5s", found \'True\''),
        ("stall:", "stall: expected a valid number, found None"),
        ("stall: [10m]", "stall: expected a valid number, found ['10m']"),
        ("stall: -5", "stall: expected greater than or equal to 30, found -5"),
        ("stall: 10s", "stall: expected greater than or equal to 30, found '10s'"),
        ("stall: 90.5", "stall: expected a multiple of 1, found 90.5"),
        ("stall: .nan", "stall: expected less than or equal to 2592000, found nan"),
        ("stall: 900d", "stall: expected less than or equal to 2592000, found '900d'"),
        ("stall: 3h", "stall and stall_start: expected at most stall_slow_phase"),
        ("fault_window: 30s", "fault_window: expected greater than or equal to 60, found '30s'"),
        ("data_wait_ratio: 30", "data_wait_ratio: expected less than 1, found 30"),
        ("data_wait_ratio: 30%", "data_wait_ratio: expected a valid number, found '30%'"),
        ("data_wait_ratio: 0", "data_wait_ratio: expected greater than 0, found 0"),
        ("link_flaps: 2.5", "link_flaps: expected a valid integer, found 2.5"),
        ("link_flaps: true", "link_flaps: expected a valid integer, found True"),
        (
            "filesystem_available_bytes: .inf",
            "filesystem_available_bytes: expected less than or equal to 1000000000000000000, found inf",
        ),
        ("- stall", "expected sections such as stall: 10m, found a list"),
        ("stall: {", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(written, tmp_path, text, complaint):
    """Unknown names, wrong types and nonsense name the file and what was expected; no rule is written."""
    path = written(text)
    with pytest.raises(ConfigError) as found:
        load(path)
    said = generate("--thresholds", path, "--output", str(tmp_path / "rules"))

    assert str(found.value).startswith(f"{path}: {complaint}")
    assert "\n" not in str(found.value)
    assert said.exit_code == 1
    assert said.output == f"trainvitals: {found.value}\n"
    assert not (tmp_path / "rules").exists()


def test_a_file_that_is_not_there_and_a_folder_that_cannot_be_are_one_line(written, tmp_path):
    """No traceback for what the user can mend."""
    missing = generate("--thresholds", str(tmp_path / "none.yml"), "--output", str(tmp_path / "rules"))
    blocked = generate("--thresholds", written(""), "--output", str(tmp_path / "mine.yml"))
    alone = generate("--thresholds", written(""))

    assert missing.output == f"trainvitals: {tmp_path}/none.yml: No such file or directory\n"
    assert re.fullmatch(r"trainvitals: \S+mine\.yml\S*: (File exists|Not a directory)\n", blocked.output)
    assert alone.output == "trainvitals: --thresholds needs --output, the folder for the rules\n"
    assert [1, 1, 2] == [missing.exit_code, blocked.exit_code, alone.exit_code]


def rule(folder, file, name):
    """Return a rule from a file that was written."""
    groups = yaml.safe_load((folder / file).read_text())["groups"]
    return next(rule for group in groups for rule in group["rules"] if rule.get("alert") == name)


@needs_promtool
def test_rules_are_written_with_the_numbers_of_the_site(written, tmp_path):
    """Expression, wait, range and text follow; what is not named keeps its default; other files stay."""
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "own.yml").write_text("groups: []\n")
    mine = "stall: 20m\ncollector_for: 45\nloss_window: 1h\nmemory_available_ratio: 0.1\nexporter_down_window: 10m\n"
    said = generate("--thresholds", written(mine), "--output", str(folder))
    stalled = rule(folder, "resource.yml", "TrainvitalsStepStalled")

    assert said.output.splitlines() == [
        f"written: {name}.yml" for name in ("data", "hardware", "meta", "parameter", "recording", "resource")
    ]
    assert "> 1200)" in stalled["expr"]
    assert "> 1800)" in stalled["expr"]
    assert rule(folder, "meta.yml", "TrainvitalsCollectorFailed")["for"] == "45s"
    assert "_total[1h])" in rule(folder, "meta.yml", "TrainvitalsRecordsLost")["expr"]
    assert rule(folder, "resource.yml", "TrainvitalsHostMemoryLow")["expr"].endswith(") < 0.1")
    down = rule(folder, "meta.yml", "TrainvitalsExporterDown")["annotations"]
    assert "of the last 10 minutes" in down["description"]
    assert "最近 10 分钟" in down["description_zh"]
    head = "# Thresholds of this site: stall: 20m, memory_available_ratio: 0.1, exporter_down_window: 10m, "
    assert (folder / "meta.yml").read_text().splitlines()[1] == head + "collector_for: 45s, loss_window: 1h"
    assert (folder / "own.yml").read_text() == "groups: []\n"
    assert promtool("check", "rules", "--lint=all", *sorted(rule_files()), cwd=folder).count("SUCCESS") == 6


def test_the_command_says_what_is_stale(written, tmp_path):
    """With --check nothing is written; a second call has nothing to do; without a file the defaults are written."""
    folder, path = tmp_path / "rules", written("stall: 20m\n")
    missing = generate("--thresholds", path, "--output", str(folder), "--check")
    assert missing.exit_code == 1
    assert not folder.exists()

    generate("--thresholds", path, "--output", str(folder))
    assert generate("--thresholds", path, "--output", str(folder), "--check").output == ""
    assert "stale: resource.yml" in generate("--output", str(folder), "--check").output

    generate("--output", str(folder))
    assert {file.name: file.read_text() for file in folder.iterdir()} == rule_files()


def test_rows_name_thresholds_and_hold_no_number_of_them():
    """Every threshold is in a row, under its name; none is written into one as a number."""
    text = "\n".join(str(row) for row in ROWS)
    named = {one or other for one, other in re.findall(r"⟨(\w+):|Limit\(name='(\w+)'\)", text)}

    assert named == set(Thresholds.model_fields)
    for file in (ROOT / "exporter/trainvitals/generate").glob("alerts_*.py"):
        assert not re.search(r"\bDEFAULTS\b", file.read_text()), file.name


def test_no_mark_is_left():
    """Whatever the thresholds, no stand-in reaches a file."""
    for alert in alerts(DEFAULTS):
        assert not re.search("[⟨⟩]", str(alert)), alert.name
        assert isinstance(alert.wait, int)
        assert isinstance(alert.keep, int)


def test_forms_of_a_limit():
    """The same threshold in an expression, as a range, and in words."""
    text = f"{LIMITS.stall} {LIMITS.stall:duration} {LIMITS.stall:words} {LIMITS.stall:zh} {LIMITS.device_idle:words} "
    text += (
        f"{LIMITS.memory_available_ratio} {LIMITS.memory_available_ratio:percent} {LIMITS.filesystem_available_bytes}"
    )

    assert fill(text, DEFAULTS) == "600 10m 10 minutes 10 分钟 1 hour 0.05 5% 500000000000"
    with pytest.raises(AttributeError, match="no threshold is called 'stal'"):
        _ = LIMITS.stal
    with pytest.raises(ValueError, match="expected one of the formats"):
        f"{LIMITS.stall:.0f}"


def test_the_documentation_shows_what_is_said(written):
    """The examples in docs/thresholds.md are what the command takes and says."""
    text = (ROOT / "docs/thresholds.md").read_text()
    complaint = re.search(r"trainvitals: my-thresholds\.yml: (.+)", text)[1]
    (value,) = re.findall(r"^   (stall: .+)$", text, re.MULTILINE)

    assert load(written(value)).stall == 1200
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load(written(value.replace("stall", "stal")))
