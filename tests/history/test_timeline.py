"""``trainvitals timeline``: since which step, what came before, and one screen of what happened."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time

import pytest
from tests.history import story as stories
from tests.history.story import RUN, THEN

from trainvitals.history import command, line, timeline_show
from trainvitals.history.books import Books, HistoryError, Story
from trainvitals.history.when import lasting, parse
from trainvitals.journal import Attempt, Entry, Journal, Run


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Give a journal with a story, in a time zone that is always the same."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    found = tmp_path / "journal.db"
    stories.write(found)
    yield str(found)
    monkeypatch.undo()
    time.tzset()


def run(capsys, *arguments, later=0.0):
    """Run the command so many seconds after the story; return its status, output and complaints."""
    status = command.timeline([*arguments], clock=lambda: THEN + 9000.0 + later)
    told = capsys.readouterr()
    return status, told.out, told.err


def finding(step, moment, signal="s", kind="finding"):
    """Return a finding or its end."""
    return Entry(kind=kind, run=RUN, time=moment, step=step, text=signal, details={"signal": signal})


def test_it_says_since_when_and_what_changed_before(path, capsys):
    """The first finding that is still on, and the last three suspects before it; what came later is none."""
    status, out, err = run(capsys, RUN, "--journal", path)

    assert (0, "") == (status, err)
    lines = out.splitlines()
    assert "llama  running · step 3,900 of 10,000 · n1 · 12-01 01:53 to 04:23" == lines[0].rstrip()
    assert "Wrong since step 3,110, 03:50:00: diverged: 3.1 times its best [rank 2]" == lines[1].rstrip()
    assert [
        "What came before it, the nearest first:",
        "  step 2,710, 03:33:30: bad: shard-17.tar [ranks 0-7]",
        "  step 2,700, 03:33:20: learning rate 0.0003 -> 0.003 at step 2700",
        "  03:18:20: attempt 1 began on n1, 8 ranks seen",
    ] == [line.replace("step 2,301, ", "").rstrip() for line in lines[2:6]]


def test_a_run_that_nobody_sees_any_more_is_not_called_running(path, capsys):
    """The exporter is down, or the node: what was true then is told as that."""
    _, out, _ = run(capsys, RUN, "--journal", path, later=3600.0)

    assert out.startswith("llama  running when last seen · step 3,900")


def test_it_fits_one_screen_of_80_columns(path, capsys):
    """No line is longer, and there are no more than a screen has."""
    _, out, _ = run(capsys, RUN, "--journal", path)

    assert max(map(len, out.splitlines())) <= 80
    assert len(out.splitlines()) <= 40
    for words in ("XID 79 on device 3", "killed (resource) device 3 on n1; 90 steps", "dataset version v3 -> v4"):
        assert words in out
    assert "XID 13" not in out


def test_rows_can_be_had_from_a_step_or_a_time_on(path, capsys):
    """The answer stays; the rows begin there."""
    _, out, _ = run(capsys, RUN, "--since", "3100", "--all", "--json", "--journal", path)
    rows = json.loads(out)["rows"]
    assert ["finding", "change"] == [row["kind"] for row in rows if row["kind"] != "checkpoint"]
    assert min(row["step"] for row in rows) == 3100
    _, out, _ = run(capsys, RUN, "--since", "2026-12-01T04:06", "--json", "--journal", path)
    assert THEN + 7960.0 <= min(row["time"] for row in json.loads(out)["rows"])
    assert 3110 == json.loads(out)["wrong_since"]["step"]


@pytest.mark.parametrize("text", ["soon", "-5", "2026-13-01", "1e5", "9" * 30 + "x"])
def test_a_since_that_is_none_is_one_line(path, capsys, text):
    """It says what can be given."""
    status, out, err = run(capsys, RUN, f"--since={text}", "--journal", path)

    assert (2, "") == (status, out)
    assert err.startswith("trainvitals timeline: --since: expected a step such as 1200")
    assert 1 == err.count("\n")


def test_an_unknown_run_is_one_line_with_those_that_are_known(path, capsys):
    """Nobody has to guess."""
    status, out, err = run(capsys, "lama", "--journal", path)

    assert (2, "") == (status, out)
    assert "trainvitals timeline: no run 'lama' in the journal: known are 'llama'\n" == err


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda _: None, "No such file or directory"),
        (lambda path: path.write_text("x" * 5000), "no SQLite database"),
        (lambda path: sqlite3.connect(path).executescript("CREATE TABLE a (b);").close(), "no journal of trainvitals"),
    ],
)
def test_what_is_no_journal_is_one_line(tmp_path, capsys, make, expected):
    """A wrong path is told, and nothing is made there."""
    path = tmp_path / "other.db"
    make(path)
    status, out, err = run(capsys, RUN, "--journal", str(path))

    assert (2, "") == (status, out)
    assert f"trainvitals timeline: {path}: {expected}\n" == err


def test_an_exporter_that_is_down_or_writes_is_no_matter(path, capsys):
    """The file is read, with what is in its log only; nothing is left beside it."""
    journal = Journal(path, node="n1")
    journal.record("note", RUN, time=THEN + 8990, text="of this moment")
    _, out, _ = run(capsys, RUN, "--journal", path)
    assert "of this moment" in out
    journal.close()
    before = sorted(os.listdir(os.path.dirname(path)))
    _, out, _ = run(capsys, RUN, "--journal", path)
    assert "of this moment" in out
    assert before == sorted(os.listdir(os.path.dirname(path)))


def test_journals_of_several_nodes_are_one_time_line(path, tmp_path):
    """A fault of another node stands before the finding, with its node."""
    other = Journal(str(tmp_path / "journal-n2.db"), node="n2", clock=lambda: THEN)
    other.record("device", "", time=THEN + 6990, text="XID 94 on device 0: contained memory error")
    other.record_run(Run(run=RUN, began=THEN, seen=THEN + 8000, state="running"))
    other.close()

    story = Books([path, str(tmp_path / "journal-n2.db")]).story(RUN)
    answer = line.tell(story)

    assert ("n2", "XID 94 on device 0: contained memory error") == (answer.before[0].node, answer.before[0].text)
    assert {"n1", "n2"} == {one.node for one in story.runs}


def test_a_journal_that_cannot_be_read_costs_itself(path, tmp_path):
    """The others are told; without one there is an error."""
    bad = tmp_path / "journal-bad.db"
    bad.write_text("x")
    books = Books([str(bad), path])

    assert RUN == books.story(RUN).run
    assert [f"{bad}: no SQLite database"] == books.problems
    with pytest.raises(HistoryError, match="no SQLite database"):
        Books([str(bad)]).names()
    with pytest.raises(HistoryError, match="no journal yet"):
        Books([]).names()


def test_the_first_finding_that_is_on_counts_and_others_are_named():
    """What was over is no onset; the same signal again keeps its first step."""
    entries = [
        finding(5, 1.0, "spike"), finding(9, 2.0, "spike", "over"), finding(20, 3.0, "stall"),
        finding(25, 4.0, "spike"), finding(30, 5.0, "stall"),
    ]  # fmt: skip
    answer = line.tell(Story(RUN, entries=entries))

    assert (20, "stall") == (answer.onset.step, answer.onset.text)
    assert [25] == [row.step for row in answer.others]


def test_without_a_finding_that_is_on_the_last_ones_are_told():
    """Up to three, in the order in which they ended."""
    entries = [item for n in range(5) for item in (finding(n, n, f"s{n}"), finding(n + 1, n + 0.5, f"s{n}", "over"))]
    answer = line.tell(Story(RUN, entries=entries))

    assert answer.onset is None
    assert ["s2", "s3", "s4"] == [row.text for row in answer.over]


def test_an_interruption_that_is_over_is_told_as_what_was_wrong(tmp_path):
    """With what came before it: the fault of the device."""
    journal = Journal(str(tmp_path / "journal.db"), node="n1", clock=lambda: 100.0)
    journal.record_run(Run(run=RUN, began=1.0, seen=500.0, state="finished"))
    journal.record("device", "", time=95.0, text="XID 79 on device 3")
    journal.record("change", RUN, time=300.0, step=90, text="later")
    journal.record("restart", RUN, time=100.5, step=40, text="attempt 1")
    journal.record_incident(RUN, "killed", detected=100.0, last_step=50)
    journal.close()

    answer = line.tell(Books([str(tmp_path / "journal.db")]).story(RUN))

    assert (None, ["incident"]) == (answer.onset, [row.kind for row in answer.over])
    assert ["XID 79 on device 3"] == [row.text for row in answer.before]


def test_rows_that_come_again_and_again_are_one():
    """Of each kind, as long as nothing else is between; the last is shown."""
    kinds = ["checkpoint", "evaluation", "checkpoint", "change", "checkpoint", "evaluation", "evaluation"]
    rows = [line.Row(float(place), kind, str(place)) for place, kind in enumerate(kinds)]

    assert ["1", "2 times, the last: 2", "3", "4", "2 times, the last: 6"] == [
        row.text for row in timeline_show.gathered(rows)
    ]


def test_a_run_that_died_without_a_finding_went_wrong_at_its_end():
    """And the fault of the node before it is what came before."""
    dead = Attempt(run=RUN, node="n1", rank=0, attempt=0, began=0.0, seen=90.0, ended=90.0, state="died", last_step=7)
    runs = [Run(run=RUN, node="n1", began=0.0, seen=90.0, state="died")]
    nodes = [Entry(kind="kernel", run="", time=89.0, node="n1", text="oom kill (python)")]
    answer = line.tell(Story(RUN, runs=runs, attempts=[dead], nodes=nodes))

    assert 7 == answer.onset.step
    assert ["oom kill (python)"] == [row.text for row in answer.before]


def test_a_change_at_the_step_of_a_finding_came_before_it():
    """Times of steps are known to some seconds: the step decides where both have one."""
    change = Entry(kind="change", run=RUN, time=104.0, step=10, text="lr")
    later = Entry(kind="change", run=RUN, time=99.0, step=11, text="too late")
    answer = line.tell(Story(RUN, entries=[later, finding(10, 100.0), change]))

    assert ["lr"] == [row.text for row in answer.before]


def test_rows_of_ranks_are_one_and_rows_of_one_rank_are_not():
    """The same words at one step within a minute, by different ranks."""
    rows = [
        line.Row(0.0, "data_error", "bad", 5, (3,)), line.Row(1.0, "data_error", "bad", 5, (1,)),
        line.Row(2.0, "data_error", "bad", 5, (1,)), line.Row(90.0, "data_error", "bad", 5, (4,)),
    ]  # fmt: skip
    assert [(1, 3), (1,), (4,)] == [row.ranks for row in line.merged(rows)]


def test_the_rows_that_tell_least_give_way_first():
    """Checkpoints go before changes; what is near the onset stays."""
    rows = [line.Row(float(n), "checkpoint" if n % 2 else "change", str(n), n) for n in range(100)]
    onset = line.Row(80.0, "finding", "x", 80)
    chosen, left = timeline_show.choose(rows, 10, onset)

    assert 90 == left
    assert {"change"} == {row.kind for row in chosen[:-1]}
    assert min(abs(row.time - 80.0) for row in chosen) == 0.0


def test_hostile_text_steers_no_terminal(tmp_path, capsys):
    """Names, texts and kinds come from others; markup of the library is text too."""
    path = str(tmp_path / "journal.db")
    name = "a\x1b[2Jb"
    journal = Journal(path, node="n\x1b[31m")
    evil = "[bold red]x[/] \x1b]0;title\x07 \u202e \r\n next"
    journal.record_run(Run(run=name, began=1.0, seen=2.0, state="\x1b[5m"))
    journal.record("finding", name, time=1.5, step=1, text=evil, details={"signal": "\x1b[1m"})
    journal.record("finding", name, time=1.6, step=2, text=evil, details={"signal": evil})
    journal.record("change", name, time=1.2, step=1, text=evil)
    journal.close()

    status, out, _ = run(capsys, name, "--journal", path)

    assert 0 == status
    assert not set(out) & {"\x1b", "\x07", "\u202e", "\r"}
    assert "[bold red]x[/]" in out
    status, _, err = run(capsys, "other", "--journal", path)
    assert "\x1b" not in err


def test_the_command_needs_no_exporter(path):
    """As people call it."""
    done = subprocess.run(
        [sys.executable, "-m", "trainvitals", "timeline", RUN, "--journal", path],
        capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip

    assert (0, "") == (done.returncode, done.stderr)
    assert "Wrong since step 3,110" in done.stdout


def test_times_are_written_as_people_do():
    """A step, an age, a time."""
    assert (1200, None) == parse("1200", 0.0)
    assert (None, 1000.0 - 7200.0) == parse("2h", 1000.0)
    assert (None, 10.0 * 86400.0) == parse("1970-01-11T00:00:00+00:00", 0.0)
    assert ["", "3.5 s", "1 min 30 s", "2 h", "1 d 1 h", "4 d"] == [
        lasting(seconds) for seconds in (None, 3.5, 90.0, 7200.0, 90_000.0, 345_601.0)
    ]
