"""The checks of the spool, the probe and the ranks."""

from __future__ import annotations

import os

import pytest
from tests.doctor.helpers import machine, only, outcomes, settings
from tests.helpers import HEALTHY, trainer

from trainvitals.doctor import spool as checks
from trainvitals.doctor.base import Outcome


def folder_of(tmp_path, path):
    """Return the result for one spool folder."""
    return only(checks.folders(machine(tmp_path, settings=settings(spool={"folders": [str(path)]}))))


def test_no_folder_yet_is_no_fault(tmp_path):
    """The first training of each user makes one."""
    assert folder_of(tmp_path, tmp_path / "trainvitals-*").outcome is Outcome.ABSENT
    assert folder_of(tmp_path, tmp_path / "spool").outcome is Outcome.ABSENT


def test_a_folder_that_no_training_can_make_is_a_problem(tmp_path):
    """A training makes the last part of a path only."""
    result = folder_of(tmp_path, tmp_path / "not there" / "spool")

    assert result.outcome is Outcome.PROBLEM
    assert result.action == f"install -d -m 1777 '{tmp_path}/not there/spool'"


@pytest.mark.parametrize(
    ("mode", "outcome", "words"),
    [
        (0o1777, Outcome.OK, "every user can write to it"),
        (0o755, Outcome.OK, f"only the user with id {os.getuid()} can write to it"),
        (0o777, Outcome.PROBLEM, "every user may remove the files of another"),
    ],
)
def test_who_may_write_is_said(spool, tmp_path, mode, outcome, words):
    """A folder for all needs the sticky bit."""
    spool.chmod(mode)

    result = folder_of(tmp_path, spool)

    assert result.outcome is outcome
    assert words in result.why
    assert result.subject == str(spool)


def test_a_file_in_the_place_of_the_folder_is_a_problem(tmp_path):
    """It would keep every training from recording."""
    (tmp_path / "spool").write_text("")

    assert folder_of(tmp_path, tmp_path / "spool").why == "it is no folder"


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every folder")
def test_a_folder_that_the_exporter_may_not_read_is_a_problem(spool, tmp_path):
    """Ranks would be missing without a word."""
    spool.chmod(0o300)

    assert folder_of(tmp_path, spool).action == f"chmod o+rx {spool}"


def test_a_folder_on_a_disk_works_and_could_be_better(tmp_path, monkeypatch):
    """A busy disk delays steps."""
    monkeypatch.setattr(checks, "filesystem", lambda _: "ext4")

    result = folder_of(tmp_path, tmp_path)

    assert result.outcome is Outcome.OK
    assert result.why.startswith("on ext4, not in memory")
    assert result.action.startswith("mount -t tmpfs")


@pytest.mark.parametrize(
    ("mebibytes", "outcome", "has_action"),
    [
        ((8192, 8000), Outcome.OK, False),
        ((64, 63), Outcome.OK, True),
        ((8192, 4), Outcome.PROBLEM, True),
    ],
)
def test_the_size_of_the_shared_memory_is_judged(tmp_path, monkeypatch, mebibytes, outcome, has_action):
    """16 rank files of 0.7 MiB must fit; what a container has by default is too little for data loaders."""
    size, free = mebibytes
    space = os.statvfs_result((2**20, 2**20, size, free, free, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: space)

    result = only(checks.shared_memory(machine(tmp_path)))

    assert result.outcome is outcome
    assert bool(result.action) is has_action


def test_no_shared_memory_at_all_is_a_problem(tmp_path):
    """The probe's default folder is there."""
    assert only(checks.shared_memory(machine(tmp_path))).outcome is Outcome.PROBLEM


def test_in_a_container_sharing_is_spoken_of(tmp_path):
    """Rank files in the shared memory of another container are never seen."""
    here = machine(tmp_path, {"/.dockerenv": "", "/dev/shm/": ""})

    assert "shared" in outcomes(checks.shared_memory(here))


def test_the_probe_is_tried(tmp_path):
    """A process of its own records a step and leaves nothing."""
    here = machine(tmp_path, {"/dev/shm/": ""}, environ=dict(os.environ))

    result = only(checks.probe(here))

    assert result.outcome is Outcome.OK
    assert os.listdir(tmp_path / "dev" / "shm") == []


def test_a_probe_that_cannot_record_is_a_problem(tmp_path):
    """The last line of its error is shown."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "trainvitals.py").write_text("raise ImportError('half installed')\n")
    here = machine(tmp_path, {"/dev/shm/": ""}, environ={**os.environ, "PYTHONPATH": str(tmp_path / "broken")})

    result = only(checks.probe(here))

    assert result.outcome is Outcome.PROBLEM
    assert result.why.endswith("does not record: ImportError: half installed")


def test_a_probe_that_is_switched_off_is_a_problem(tmp_path):
    """The variable explains why no run appears."""
    here = machine(tmp_path, {"/dev/shm/": ""}, environ={**os.environ, "TRAINVITALS_DISABLE": "1"})

    assert only(checks.probe(here)).action == "unset TRAINVITALS_DISABLE"


def test_ranks_that_run_are_counted(spool, tmp_path):
    """And those that are not there are no fault."""
    here = machine(tmp_path, settings=settings(spool={"folders": [str(spool)]}))

    assert only(checks.ranks(here)).outcome is Outcome.ABSENT
    with trainer(HEALTHY, spool):
        assert only(checks.ranks(here)).why == "1 running, of healthy"
    assert only(checks.ranks(here)).why.startswith("no rank is running on this node; 1 ended")


def test_files_that_cannot_be_used_are_counted_by_reason(spool, tmp_path):
    """Somebody writes there what no probe wrote."""
    (spool / "x.rank").write_bytes(b"no rank file" * 1000)
    here = machine(tmp_path, settings=settings(spool={"folders": [str(spool)]}))

    found = [result for result in checks.ranks(here) if result.outcome is Outcome.PROBLEM]

    assert only(found).why.startswith("1 files in the spool cannot be used")
    assert (spool / "x.rank").exists()
