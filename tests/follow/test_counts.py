"""Steps that a log does not number: they are counted, over a restart of the exporter too."""

from __future__ import annotations

import math

import pytest

from trainvitals.follow.follower import SEARCH, Follower
from trainvitals.follow.sources import Source

pytestmark = pytest.mark.no_cover

#: A restart reads a MiB again; the logs are longer than two.
_SIZE = 2_400_000


class Clock:
    """A clock that goes on at each look."""

    now = 2e9

    def __call__(self):
        """Return the time."""
        self.now += SEARCH
        return self.now


def trainer(number):
    """Return dicts of the Hugging Face Trainer that stand in no bar."""
    return "".join(
        f"{{'loss': {2.0 + 1.0 / n:.4f}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': {n / 1000 + 0.0005:.4f}}}\n"
        for n in range(1, number + 1)
    )


def objects(number):
    """Return the same as JSON, which tells but a part of an epoch."""
    return "".join(
        f'{{"loss": {2.0 + 1.0 / n:.4f}, "grad_norm": 0.5, "learning_rate": 1e-05, "epoch": {n / 1000 + 0.0005:.4f}}}\n'
        for n in range(1, number + 1)
    )


def bars(number):
    """Return bars of Keras: epochs of 500 batches, drawn anew behind a carriage return."""
    parts = []
    for n in range(number):
        epoch, batch = divmod(n, 500)
        parts.append("" if batch else f"Epoch {epoch + 1}/90\n")
        left = "=" * 20 if batch == 499 else "=" * 9 + ">" + "." * 10
        parts.append(f"{batch + 1:>3}/500 [{left}] - ETA: 9s - loss: {2.0 + 1.0 / (n + 1):.4f}")
        parts.append("\n" if batch == 499 else "\r")
    return "".join(parts)


def epochs(number):
    """Return lines whose batch begins anew in each epoch, the length of which shows when it is over."""
    return "".join(
        f"epoch: {n // 700 + 1} step: {n % 700 + 1}, loss is {2.0 + 1.0 / (n + 1):.6f}\n" for n in range(number)
    )


def mmcv(number):
    """Return JSON lines of mmcv, whose iteration begins anew in each epoch."""
    lines = ['{"env_info": "x"}\n']
    lines += [
        f'{{"mode": "train", "epoch": {n // 600 + 1}, "iter": {n % 600 + 1}, "lr": 1, "loss": {2 + 1 / (n + 1):.5f}}}\n'
        for n in range(number)
    ]
    return "".join(lines)


def plain(number):
    """Return lines of a program that nobody knows: a heading for each epoch, and batches below it."""
    return "".join(
        ("" if n % 800 else f"Epoch {n // 800 + 1}\n") + f"batch {n % 800 + 1}/800 loss {2.0 + 1.0 / (n + 1):.5f}\n"
        for n in range(number)
    )


#: Each with the number of its steps.
LOGS = {
    "trainer": ("transformers", trainer, 33_000),
    "objects": ("jsonl", objects, 33_000),
    "bars": ("keras", bars, 45_000),
    "epochs": ("mindformers", epochs, 70_000),
    "mmcv": ("openmmlab-json", mmcv, 38_000),
    "plain": ("plain", plain, 90_000),
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_restart_in_the_middle_of_a_long_log_goes_on_counting(tmp_path, kind):
    """Steps are those of a log that was read in one go; so are those of the history that detectors are given."""
    name, write, number = LOGS[kind]
    content = write(number).encode()
    assert len(content) > _SIZE
    path, positions = tmp_path / "t.log", str(tmp_path / "positions.json")
    found = []
    for size in (100_000, 1_200_000, 2_200_001, 2_300_007, len(content)):
        # What was there before is not touched: the follower sees that it is the same file.
        with path.open("ab") as file:
            file.write(content[path.stat().st_size : size])
        follower = Follower([Source(str(path))], positions=positions, rate=math.inf, clock=Clock())
        (run,) = follower.poll()
        history = [(step.step, step.count) for step in run.history]
        assert history == [(step, step) for step in range(len(found) - len(history) + 1, len(found) + 1)]
        found += [step.step for step in run.steps]
        while follower.behind:
            (run,) = follower.poll()
            found += [step.step for step in run.steps]
        follower.save()
        follower.close()
        assert (name,) == run.formats

    assert list(range(1, number + 1)) == found
    assert 0 == run.attempt
