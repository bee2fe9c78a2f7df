"""``trainvitals diagnose`` as it is used: what it prints and writes, and how it ends."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from tests.diagnose.helpers import Said, table

from trainvitals import detect
from trainvitals.diagnose.command import main

SIGNAL_KEYS = {"signal", "state", "severity", "since_step", "location", "evidence", "action"}


@pytest.fixture
def judged(monkeypatch):
    """Judge by one detector that is on since step 30."""
    words = {"evidence": "<b>it</b> rose", "action": "Lower it."}
    monkeypatch.setattr(detect, "build", lambda: [Said("loss_spike", since=30, **words), Said("quiet", silent=True)])


def run(capsys, *arguments):
    """Return exit status, output, and messages."""
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.usefixtures("judged")
def test_the_terminal_shows_a_table(tmp_path, capsys):
    """The run, what was read, the curves, and a row for each signal; no colours into a pipe."""
    status, out, err = run(capsys, table(tmp_path / "train.csv"))

    assert (0, "") == (status, err)
    assert "table; 40 steps, the last 39; 4 evaluations" in out
    assert re.search(r"^  loss +█.*▁  8 to 4\.1$", out, re.MULTILINE)
    assert re.search(r"^  validation █▆▃▁  8\.5 to 5\.5$", out, re.MULTILINE)
    assert re.search(r"^act +loss_spike +30 +<b>it</b> rose", out, re.MULTILINE)
    assert "Lower it." in out
    assert re.search(r"^cannot say +quiet +needs 9 steps with a loss", out, re.MULTILINE)
    assert "\x1b" not in out


@pytest.mark.usefixtures("judged")
def test_the_json_document(tmp_path, capsys):
    """Its shape is a promise; nothing but the document is printed."""
    path = table(tmp_path / "train.csv")

    status, out, err = run(capsys, path, "--json", "-")

    document = json.loads(out)
    (found,) = document["runs"]
    assert (0, "") == (status, err)
    assert (str(path), 40, 39) == (found["source"], found["steps"], found["last_step"])
    assert all(row.keys() >= SIGNAL_KEYS for row in found["signals"])
    assert {
        "signal": "loss_spike",
        "state": "act",
        "severity": "warning",
        "since_step": 30,
        "location": "step 30",
        "evidence": "<b>it</b> rose",
        "action": "Lower it.",
    } == {name: value for name, value in found["signals"][0].items() if name in SIGNAL_KEYS}
    assert {"loss": 4.1, "learning_rate": 0.01, "validation/loss": 5.5} == found["final"]


def test_numbers_that_are_none_are_null(tmp_path, capsys):
    """The document is strict JSON, whatever the log holds."""
    path = table(tmp_path / "train.csv", line=lambda n: f"{n},nan,inf,0.01")

    _, out, _ = run(capsys, path, "--json", "-")

    (found,) = json.loads(out, parse_constant=pytest.fail)["runs"]
    assert found["final"]["loss"] is None
    (row,) = [row for row in found["signals"] if row["signal"] == "loss_nonfinite"]
    assert ("act", 0) == (row["state"], row["since_step"])


@pytest.mark.usefixtures("judged")
def test_files_are_written_beside_the_table(tmp_path, capsys):
    """--json and --html with names write files."""
    path = table(tmp_path / "train.csv")

    _, out, _ = run(capsys, path, "--json", tmp_path / "o.json", "--html", tmp_path / "o.html")

    assert "loss_spike" in out
    assert json.loads((tmp_path / "o.json").read_text())["runs"]
    assert (tmp_path / "o.html").read_text().startswith("<!DOCTYPE html>")


class Page(HTMLParser):
    """Collects the tags of a page with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Remember a tag."""
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        """Remember text."""
        self.words.append(data)


@pytest.mark.usefixtures("judged")
def test_the_page_needs_nothing_from_outside(tmp_path, capsys):
    """No script, no link to a file, no font; a policy forbids the rest.  Dark where the screen is."""
    run(capsys, table(tmp_path / "train.csv"), "--html", tmp_path / "o.html")
    text = (tmp_path / "o.html").read_text()
    page = Page(text)

    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not [value for _, attributes in page.tags for name, value in attributes.items() if name in {"src", "href"}]
    assert not re.search(r"https?:|@import|url\(", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.usefixtures("judged")
def test_the_page_shows_curves_and_marks_findings(tmp_path, capsys):
    """Loss with validation, learning rate; each with a mark where the finding began.  Text of a log stays text."""
    run(capsys, table(tmp_path / "<b>&train.csv"), "--html", tmp_path / "o.html")
    page = Page((tmp_path / "o.html").read_text())

    assert ["loss", "learning rate"] == [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"]
    styles = [attributes.get("class", "") for tag, attributes in page.tags if tag == "path"]
    assert (2, 1) == (styles.count("line loss"), styles.count("line validation"))
    assert 2 == styles.count("mark act")
    assert ["Lower it."] == [word for word in page.words if word.startswith("Lower")]
    assert not [tag for tag, attributes in page.tags if tag == "b" and attributes.get("class") != "action"]
    assert "<b>it</b> rose" in [word.strip() for word in page.words]


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize(("limit", "status"), [("watch", 1), ("act", 1), ("warning", 1), ("critical", 0)])
def test_a_finding_can_fail_a_build(tmp_path, capsys, limit, status):
    """--fail-on makes the exit status 1; the report is printed all the same."""
    found, out, _ = run(capsys, table(tmp_path / "train.csv"), "--fail-on", limit)

    assert status == found
    assert "loss_spike" in out


@pytest.mark.parametrize("content", [None, "", "\x00\xff\n\n", "a program that does not train\n"])
def test_nothing_to_read_is_one_line_and_exit_2(tmp_path, capsys, content):
    """No file, an empty one, or one without a step and an error."""
    path = tmp_path / "train.log"
    if content is not None:
        path.write_text(content)

    status, out, err = run(capsys, path)

    assert (2, "") == (status, out)
    why = f" ({path}: missing)" if content is None else ""
    assert f"trainvitals diagnose: nothing that can be read in {path}{why}\n" == err


def test_several_runs_of_a_folder_are_compared(tmp_path, capsys):
    """Each run has its table; then they are compared at equal steps."""
    table(tmp_path / "one.csv")
    table(tmp_path / "two.csv", 30)

    status, out, _ = run(capsys, tmp_path)

    assert 0 == status
    assert "Compared at 29 steps" in out
    assert re.search(r"^two +29 ", out, re.MULTILINE)


def test_what_was_named_and_is_not_there_is_told(tmp_path, capsys):
    """Beside the report on what is there."""
    path = tmp_path / "gone.csv"

    status, out, _ = run(capsys, table(tmp_path / "one.csv"), path, "--json", "-")

    assert 0 == status
    assert [{"path": str(path), "problem": "missing"}] == json.loads(out)["problems"]


def test_a_pattern_names_logs(tmp_path, capsys):
    """Globs are looked up where the shell did not."""
    table(tmp_path / "one.csv")
    table(tmp_path / "two.csv", 30)

    _, out, _ = run(capsys, f"{tmp_path}/*.csv", "--json", "-")

    assert [40, 30] == [found["steps"] for found in json.loads(out)["runs"]]


def test_standard_input_is_a_log(tmp_path, capsys, monkeypatch):
    """With - as the path."""
    data = table(tmp_path / "train.csv").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))

    status, out, _ = run(capsys, "-", "--json", "-")

    assert 0 == status
    assert 40 == json.loads(out)["runs"][0]["steps"]


def test_control_characters_of_a_log_do_not_reach_the_terminal(tmp_path, capsys):
    """Names and texts of a log are printed without what moves the cursor."""
    path = table(tmp_path / "tr\x1b[31min\x07.csv")

    _, out, _ = run(capsys, path)

    assert "\x1b" not in out
    assert "\x07" not in out


@pytest.mark.parametrize("seed", range(4))
def test_damaged_logs_raise_nothing(tmp_path, capsys, seed):
    """Cuts, odd bytes, enormous numbers, steps that go back: there is a report, or exit 2."""
    numbers = ["1e308", "-1e308", "nan", "inf", "1e-320", "0", "99999999999999999999999", "-7", "", "x"]
    lines = ["step,loss,val_loss,lr"]
    lines += [f"{(n * 7919) % (50 + seed)},{numbers[(n * (seed + 3)) % 10]},{numbers[n % 7]},1" for n in range(300)]
    path = tmp_path / "train.csv"
    path.write_bytes("\n".join(lines).encode()[: 4000 - seed * 700] + b"\xff\x00\n")

    status, out, err = run(capsys, path, "--html", tmp_path / "o.html")

    assert status in {0, 2}
    assert "Traceback" not in out + err


def test_an_unknown_format_is_a_usage_error(tmp_path, capsys):
    """One line with the name that was meant and where the list is, and exit 2."""
    assert 2 == main([str(tmp_path), "--format", "MegatronLM"])
    assert (
        "trainvitals diagnose: --format: unknown format 'MegatronLM'; did you mean megatron? "
        "(all: trainvitals follow --formats)\n"
    ) == capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_one_line(tmp_path, capsys):
    """And exit 2: a build must not go on as if there were a report."""
    status, _, err = run(capsys, table(tmp_path / "train.csv"), "--html", tmp_path / "no" / "o.html")

    assert 2 == status
    assert err.startswith("trainvitals diagnose: ")
    assert 1 == err.count("\n")


def test_a_long_table_is_read_whole(tmp_path, capsys):
    """More rows than one poll hands on: every step is counted, and judged once."""
    path = table(tmp_path / "train.csv", 70_000, line=lambda n: f"{n},{2.0 + 1.0 / (n + 1):.4f},,0.01")

    _, out, _ = run(capsys, path, "--json", "-")

    (found,) = json.loads(out)["runs"]
    assert (70_000, 69_999, 1) == (found["steps"], found["last_step"], found["attempts"])


def test_it_imports_only_what_it_needs(tmp_path):
    """No pydantic, starlette, prometheus_client or torch; rich and typer neither, for JSON."""
    path = table(tmp_path / "train.csv")
    script = (
        "import sys; from trainvitals.__main__ import main; sys.argv[1:] = sys.argv[1:]\n"
        "try: main()\nexcept SystemExit: print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, "diagnose", str(path), "--json", "-"], capture_output=True, text=True, check=True
    )

    heavy = {"numpy", "prometheus_client", "psutil", "pydantic", "rich", "starlette", "torch", "typer", "uvicorn"}
    assert json.loads(done.stdout)["runs"]
    assert not heavy & set(done.stderr.split())


def test_not_a_number_of_a_loss_is_drawn_as_a_gap(tmp_path, capsys):
    """The page marks where there is no number, and draws what there is."""
    path = table(tmp_path / "t.csv", line=lambda n: f"{n},{math.nan if 20 <= n < 22 else 3 - n / 100},,0.01")

    run(capsys, path, "--html", tmp_path / "o.html")

    assert 2 == (tmp_path / "o.html").read_text().count("no number at step")
