"""The journal as those who write it see it."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

import pytest

from trainvitals.journal import Attempt, Journal, Run, journal_path, journals_in, node_name


@pytest.fixture
def told():
    """Collect the lines that a journal tells."""
    return []


@pytest.fixture
def journal(tmp_path, told):
    """Give a journal whose clock stands at 1000."""
    found = Journal(str(tmp_path / "state" / "journal.db"), clock=lambda: 1000.0, node="n1", tell=told.append)
    yield found
    found.close()


def test_an_incident_is_there_once_however_often_it_is_told(journal):
    """The id comes from the run and the key, and what is known of it already stays."""
    first = journal.record_incident("llama", "killed", attempt=2, key="2", last_step=40, rank=3)
    journal.update_incident(first, resume_step=30, steps_lost=10, seconds_lost=5.5, decision="restart")

    again = journal.record_incident("llama", "hang", attempt=2, key="2")

    (incident,) = journal.incidents("llama")
    assert first == again == incident.id
    assert ("killed", 40, 30, 10, 5.5, 3, "n1", "restart") == (
        *(incident.cause, incident.last_step, incident.resume_step, incident.steps_lost, incident.seconds_lost),
        *(incident.rank, incident.node, incident.decision),
    )


def test_two_deaths_of_an_attempt_are_two_incidents_without_a_key(journal):
    """By default an incident is known by its attempt and when it was detected."""
    journal.record_incident("llama", "killed", attempt=0, detected=10.0)
    journal.record_incident("llama", "killed", attempt=0, detected=20.0)
    journal.record_incident("llama", "killed", attempt=0, detected=20.0)

    assert [10.0, 20.0] == [incident.detected for incident in journal.incidents()]


def test_a_column_that_there_is_not_is_an_error(journal):
    """Whoever writes a wrong name learns it at once."""
    with pytest.raises(TypeError):
        journal.record_incident("llama", "killed", steps_list=3)
    with pytest.raises(TypeError, match=r"expected some of .*, found run"):
        journal.update_incident(1, run="other")
    with pytest.raises(ValueError, match=r"expected one of phase, .*, found 'party'"):
        journal.record("party", "llama")


def test_what_is_told_twice_is_written_once(journal):
    """The natural key is all that is told, or the key that is given."""
    for _ in range(2):
        journal.record("checkpoint", "llama", time=5.0, step=10, rank=0, text="saved")
        journal.record("log", "llama", time=journal._clock(), text="oops", key="line 7")
    journal.record("checkpoint", "llama", time=5.0, step=10, rank=1, text="saved")

    assert [(0, "checkpoint"), (1, "checkpoint"), (None, "log")] == [
        (entry.rank, entry.kind) for entry in journal.events("llama")
    ]


def test_a_command_is_acknowledged_in_its_own_row(journal):
    """With ``renew`` the answer takes the place of the question, and keeps its time."""
    journal.record("command", "llama", time=1.0, text="set lr=1e-4", details={"by": "ada"}, key="c1")
    journal.record("command", "llama", time=9.0, step=70, text="set lr", details={"ok": True}, key="c1", renew=True)

    (entry,) = journal.events("llama")
    assert (1.0, 70, {"ok": True}) == (entry.time, entry.step, entry.details)


def test_a_run_and_an_attempt_go_on_in_their_rows(journal):
    """What is not known any more stays as it was; the first start and the last sight count."""
    run = Run(run="llama", began=5.0, seen=10.0, state="running", step=7, target=100, framework="torch", world_size=8)
    journal.record_run(run)
    journal.record_run(replace(run, began=6.0, seen=20.0, state="died", step=9, target=None, framework=""))
    attempt = Attempt(run="llama", node="", rank=1, attempt=0, began=5.0, seen=10.0, state="running", first_step=0)
    journal.record_attempt(attempt)
    journal.record_attempt(replace(attempt, seen=20.0, ended=19.0, state="died", last_step=9, phases={"train": 3.25}))

    (known,) = journal.runs()
    assert replace(run, node="n1", began=5.0, seen=20.0, state="died", step=9) == known
    (seen,) = journal.attempts("llama")
    assert (0, 9, 19.0, "died", {"train": 3.25}, "n1") == (
        *(seen.first_step, seen.last_step, seen.ended, seen.state, seen.phases, seen.node),
    )


def test_questions_choose_by_run_kind_time_and_step(journal):
    """The newest come last; a limit keeps the newest."""
    for step in range(10):
        journal.record("checkpoint", "llama", time=100.0 + step, step=step)
    journal.record("device", "", time=104.5, text="XID 79")

    assert [3, 4] == [e.step for e in journal.events("llama", since=103.0, until=104.0)]
    assert [8, 9] == [e.step for e in journal.events("llama", last=2)]
    assert [7, 8, 9] == [e.step for e in journal.events("llama", since_step=7)]
    assert ["XID 79"] == [e.text for e in journal.events(None, kinds=["device", "note"])]
    assert [] == journal.events("llama", kinds=["device"])


def test_hostile_text_is_cut_and_cleaned(journal):
    """Surrogates, zeros, endless texts and numbers beyond SQLite's cost themselves."""
    journal.record(
        "note", "r\udcff\0" + "x" * 999, step=2**70, rank=-(2**70), text="a\0\ud800" + "y" * 9999,
        details={"nan": float("nan"), "object": object(), "deep": "z" * 99_999, 5: 1, "big": 2**80},
    )  # fmt: skip

    (entry,) = journal.events(None)
    assert (256, None, None, 600) == (len(entry.run), entry.step, entry.rank, len(entry.text))
    assert entry.details["cut"] is True
    assert journal.errors == {}


def test_nobody_else_can_read_the_file(journal):
    """The folder and the files are the owner's alone: names of runs and settings are nobody's business."""
    journal.record("note", "llama", text="x")

    folder = os.path.dirname(journal.path)
    assert 0o700 == stat.S_IMODE(os.stat(folder).st_mode)
    for name in os.listdir(folder):
        assert 0o600 == stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode), name


def test_the_place_is_the_machines_or_the_users():
    """A folder that nodes may share has a journal for each of them."""
    assert "/x/journal.db" == journal_path("/x", {})
    assert "/var/lib/tv/journal.db" == journal_path("", {"STATE_DIRECTORY": "/var/lib/tv:/other"})
    home = {"XDG_STATE_HOME": "/home/ada/.state"}
    assert f"/home/ada/.state/trainvitals/journal-{node_name()}.db" == journal_path("", home)


def test_the_journals_of_a_folder_are_found(tmp_path):
    """Those of other nodes count, what was set aside does not."""
    for name in ("journal.db", "journal-n2.db", "journal.db-wal", "journal-n2.db.damaged-1", "other.db"):
        (tmp_path / name).touch()

    assert ["journal-n2.db", "journal.db"] == [os.path.basename(path) for path in journals_in(str(tmp_path))]


def test_rows_that_somebody_else_wrote_cost_themselves(journal):
    """SQLite takes any value in any column: texts for times, numbers for texts, broken JSON."""
    journal.record("note", "llama", time=5.0, text="good")
    base = journal._base.connection()
    bad = [("soon", 1, "{}"), (9e999, 1, "{}"), (1.0, "first", "{}"), (b"x", 1, "{}")]
    for number, (time, rank, details) in enumerate([*bad, (2.0, 1, "[" * 5000), (3.0, 1, "7")]):
        base.execute(
            "INSERT INTO events (key, run, kind, time, node, rank, step, text, details)"
            " VALUES (?, 'llama', 'note', ?, 'n1', ?, NULL, 7, ?)",
            (b"%d" % number, time, rank, details),
        )
    base.execute(
        "INSERT INTO attempts VALUES (x'00', 'llama', 'n1', 0, 0, 1, 2, NULL, 'died', NULL, NULL, NULL, ?)",
        ('{"train": 5.5, "data": "long", "init": NaN, "other": 1e999, "forward": true}',),
    )

    found = [(entry.time, entry.text, entry.details) for entry in journal.events("llama")]
    assert [(2.0, "7", {}), (3.0, "7", {}), (5.0, "good", {})] == found
    assert [{"train": 5.5}] == [one.phases for one in journal.attempts("llama")]
