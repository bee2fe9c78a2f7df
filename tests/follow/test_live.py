"""A program writes a log that is followed: whatever becomes of the file, nothing is lost and nothing comes twice."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.follow.writers import APPENDED, WRITERS, loss_of

from trainvitals.follow.follower import Follower
from trainvitals.follow.formats import FORMATS
from trainvitals.follow.sources import Source
from trainvitals.telemetry import Step

STEPS = 420
#: What the files are called; the format is found by content, but folders of MLflow's file store are known by theirs.
NAMES = {"tensorboard": "events.out.tfevents.1772000000.node.1.0", "mlflow-files": "0123456789abcdef0123456789abcdef"}


def test_every_format_has_a_writer():
    """There is a program for each row of the table."""
    assert {name.split()[0] for name in WRITERS} == {known.name for known in FORMATS}


@pytest.mark.parametrize("variant", WRITERS)
def test_nothing_is_lost_and_nothing_comes_twice(variant, tmp_path):
    """While it is written, cut, rotated, truncated or written again, and the exporter restarted or killed."""
    path = tmp_path / NAMES.get(variant, "live.log")
    if variant in APPENDED:
        # Folders are searched for new logs every ten seconds; this one is there from the start.
        path.touch()
    chance = random.Random(variant)
    follower = follow(path, tmp_path)
    found: list[Step] = []
    loss = "actor/pg_loss" if variant == "verl" else "loss"
    history = polls = 0
    with subprocess.Popen(
        [sys.executable, "-m", "tests.follow.writers", variant, str(path), str(STEPS), "3"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
    ) as writer:
        assert writer.stdin is not None
        deadline = time.monotonic() + 60.0
        after = 0
        while after < 3 and time.monotonic() < deadline:
            after += writer.poll() is not None
            polls += 1
            runs = follower.poll()
            new = [step for run in runs for step in run.steps]
            history += sum(len(run.history) for run in runs)
            assert all(run.attempt == 0 for run in runs)
            if polls % 7 == 6 and not after:
                # Killed before it could remember: nobody saw what this poll found.
                follower.close()
                follower = follow(path, tmp_path)
                continue
            found += new
            follower.save()
            with contextlib.suppress(BrokenPipeError):
                os.write(writer.stdin.fileno(), b".")
            if polls % 7 == 3 or chance.random() < 0.05:
                follower.close()
                follower = follow(path, tmp_path)
        assert writer.wait() == 0
    found += [step for run in follower.poll(final=True) for step in run.steps]
    follower.close()

    # A second one of the same count has values that stood in a later line.
    assert [step.step for step in {step.count: step for step in found}.values()] == list(range(1, STEPS + 1))
    losses = [(step.step, step.count, step.values[loss]) for step in found if loss in step.values]
    assert losses == [(step, step, pytest.approx(loss_of(step), abs=1e-4)) for step in range(1, STEPS + 1)]
    assert history


def follow(path, tmp_path):
    """Return a follower that goes on where the one before it ended."""
    return Follower([Source(str(path))], positions=str(tmp_path / "state" / "logs.json"), rate=float("inf"))
