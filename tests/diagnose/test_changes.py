"""A finding of a check-up names what changed before it."""

from __future__ import annotations

import io
import json

from tests.diagnose.helpers import Said, report, table

from trainvitals.diagnose.document import as_json
from trainvitals.diagnose.page import as_html
from trainvitals.diagnose.terminal import show


def checked(path, since=30, **columns):
    """Return a report on a table of 100 steps with these columns, by step."""
    lines = ["step,loss," + ",".join(columns)]
    lines += [f"{step},2.5," + ",".join(str(column(step)) for column in columns.values()) for step in range(1, 101)]
    path.write_text("\n".join(lines) + "\n")
    return report(path, detectors=[lambda: Said("odd", since=since, until=99, severity="warning", gated="the warm-up")])


def test_changes_before_a_finding_are_in_each_form(tmp_path):
    """In the terminal, as JSON and in the page; beside what was left out."""
    made = checked(
        tmp_path / "a.csv",
        learning_rate=lambda step: 1e-4 if step < 20 else 3e-4 if step < 60 else 1e-5,
        global_batch_size=lambda step: 512 if step < 10 else 1024,
    )
    told = ["learning rate 0.0001 -> 0.0003 at step 20", "batch size 512 -> 1024 at step 10"]

    (odd,) = [row for row in json.loads(as_json(made))["runs"][0]["signals"] if row["signal"] == "odd"]
    assert (told, "the warm-up") == (odd["changes"], odd["gated"])
    out = io.StringIO()
    show(made, out)
    assert f"before it: {'; '.join(told)}" in " ".join(out.getvalue().split())
    assert "left out: the warm-up" in out.getvalue()
    assert "before it: learning rate 0.0001 -&gt; 0.0003 at step 20" in as_html(made)


def test_a_schedule_is_no_change_and_what_is_fine_names_none(tmp_path):
    """A decay with each step explains nothing."""
    made = checked(tmp_path / "a.csv", learning_rate=lambda step: 1e-3 * (1.0 - step / 200.0))

    rows = json.loads(as_json(made))["runs"][0]["signals"]
    assert [[], []] == [row["changes"] for row in rows]
    out = io.StringIO()
    show(made, out)
    assert "before it" not in out.getvalue()


def test_a_restart_is_a_change(tmp_path):
    """Which a log tells by a step that goes back."""
    path = table(tmp_path / "a.csv")
    lines = path.read_text().splitlines()
    again = [f"{number},{6.25 - 0.125 * number},,0.01" for number in range(20, 40)]
    path.write_text("\n".join([*lines, *again]) + "\n")
    made = report(path, detectors=[lambda: Said("odd", since=39, until=10**9, severity="warning")])

    (odd, _) = made.runs[0].signals
    assert ("restart (attempt 1) at step 20",) == odd.changes
