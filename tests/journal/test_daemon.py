"""The exporter and its journal, as they are put together."""

from __future__ import annotations

import sqlite3

import pytest
from tests.helpers import run_trainer

from trainvitals.config import load
from trainvitals.daemon import Exporter
from trainvitals.journal import Journal

_TRAINER = """
    import trainvitals as tv
    tv.init(run="llama")
    for step in range(30):
        tv.step(step, loss=2.0)
    with tv.checkpoint(30):
        pass
"""


@pytest.fixture
def one_round(spool, tmp_path):
    """Give a function that starts an exporter on a spool where a training ended, takes a snapshot, and ends it."""
    assert 0 == run_trainer(_TRAINER, spool).returncode
    others = ["devices", "host", "processes", "attribution", "storage", "network", "kernel"]

    def go(**more):
        flags = {
            "spool.folders": [str(spool)], "web.listen_address": "127.0.0.1:0", "collect.disable": others,
            "sources.state_folder": str(tmp_path), **{f"journal.{name}": value for name, value in more.items()},
        }  # fmt: skip
        exporter = Exporter(load(None, {}, flags))
        exporter.start()
        exporter.snapshot()
        exporter.stop()
        exporter.run()
        return exporter

    return go


def events(path):
    """Return what is in a journal."""
    journal = Journal(str(path))
    found = [(entry.kind, entry.step) for entry in journal.events("llama")]
    journal.close()
    return found


def test_the_journal_is_in_the_state_folder_and_outlasts_the_exporter(one_round, tmp_path):
    """What is read again after a restart is there once."""
    one_round()
    before = events(tmp_path / "journal.db")
    one_round()

    assert ("checkpoint", 30) in before
    assert before == events(tmp_path / "journal.db")


def test_it_can_be_elsewhere_or_nowhere(one_round, tmp_path):
    """By the settings."""
    one_round(path=str(tmp_path / "other" / "j.db"))
    assert ("checkpoint", 30) in events(tmp_path / "other" / "j.db")
    one_round(enabled=False)
    assert not (tmp_path / "journal.db").exists()


def test_an_exporter_goes_on_without_a_journal_that_is_newer(one_round, tmp_path, caplog):
    """One line, and the file is left as it is."""
    Journal(str(tmp_path / "journal.db")).close()
    base = sqlite3.connect(tmp_path / "journal.db")
    base.execute("PRAGMA user_version = 99")
    base.close()

    exporter = one_round()

    assert 1 == len(exporter.runs.ranks())
    told = [record.getMessage() for record in caplog.records if "journal" in record.getMessage()]
    assert [f"no journal: {tmp_path}/journal.db: written by a newer trainvitals (version 99, this one knows 1)"] == told
