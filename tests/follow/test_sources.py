"""Which logs there are, which are one run, and what runs are called."""

from __future__ import annotations

import os

import pytest

from trainvitals.follow.sources import MAX_FILES, Source, Sources


def find(root, *patterns, now=2e9):
    """Return what is found below a folder: run, rank and path from there."""
    sources = Sources([Source(str(root / pattern)) for pattern in patterns], ())
    return [(log.run, log.rank, os.path.relpath(log.path, root)) for log in sources.find(now)]


@pytest.fixture
def tree(tmp_path):
    """Return a function that makes empty files."""

    def make(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("name", "run", "rank"),
    [
        ("job/worker_3.log", "job", 3),
        ("job/workerlog.2", "job", 2),
        ("job/rank_1/stdout.log", "job", 1),
        ("job/train_rank1.log", "job/train", 1),
        ("job/log_rank-0.txt", "job", 0),
        ("job/none_ab/attempt_1/3/stderr.log", "job/none_ab", 3),
        ("job/train.log", "job/train", None),
        ("job/frank2.log", "job/frank2", None),
        ("job/out.log.gz", "job/out", None),
    ],
)
def test_names_and_ranks(tree, name, run, rank):
    """A run is called by its path below the folder that is named, without the part that names a rank."""
    assert find(tree(name), "") == [(run, rank, name)]


def test_a_file_is_called_after_its_folder(tree):
    """Two files of one name are told apart by more of their paths."""
    root = tree("a/x/train.log", "b/x/train.log")

    assert [run for run, _, _ in find(root, "a/x/train.log", "b/x/train.log")] == ["x/train", "b/x/train"]


def test_what_lies_beside_logs_is_left_out(tree):
    """Weights, code, hidden files, caches, and what a log was rotated to."""
    root = tree("a.log", "a.log.1", "a.log-20250301", "model.safetensors", "train.py", ".b.log", ".git/c.log")
    tree("__pycache__/d.log", "e.db", "e.db-wal", "old.log.3")

    assert [path for _, _, path in find(root, "")] == ["a.log", "e.db", "old.log.3"]


def test_the_newest_checkpoint_stands_for_all(tree):
    """Each checkpoint holds the history up to it: the last one is read, and all are one log."""
    root = tree("out/checkpoint-900/trainer_state.json", "out/checkpoint-1000/trainer_state.json")

    assert [path for _, _, path in find(root, "")] == ["out/checkpoint-1000/trainer_state.json"]


def test_a_folder_of_too_many_files(tree):
    """The newest are followed, the rest is counted."""
    root = tree(*(f"{number}.log" for number in range(MAX_FILES + 2)))
    os.utime(root / "7.log", (1e9, 1e9))
    os.utime(root / "8.log", (1e9, 1e9))
    sources = Sources([Source(str(root))], ())

    found = {os.path.basename(log.path) for log in sources.find(2e9)}

    assert len(found) == MAX_FILES
    assert not {"7.log", "8.log"} & found
    assert sources.rejected["too_many"] == 2


def test_what_is_missing_is_counted(tree):
    """A path that is not there may come later."""
    sources = Sources([Source(str(tree() / "nothing"))], ())

    assert sources.find(2e9) == []
    assert sources.rejected["missing"] == 1
