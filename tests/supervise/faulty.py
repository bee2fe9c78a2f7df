"""Runs examples/train_resume.py and does to it what ``FAULTS`` says: ``kind@rank@step``, parted by commas.

Each fault comes once: a file in the folder ``FAULTS_DONE`` remembers it over attempts.  "again" comes every time.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

import torch

import trainvitals

DONE = Path(os.environ["FAULTS_DONE"])
RANK = int(os.environ["RANK"])
FAULTS = [fault.split("@") for fault in os.environ.get("FAULTS", "").split(",") if fault]
last = 0


def newest() -> Path:
    """Return the checkpoint that was written last."""
    return max(Path(sys.argv[sys.argv.index("--output") + 1]).glob("*.pt"), key=lambda path: path.stat().st_mtime)


def fill() -> None:
    """Leave no room where the checkpoints are."""
    with open(newest().parent / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def happen(kind: str, step: int) -> None:
    """Let a fault happen."""
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "truncate":
        with open(newest(), "r+b") as file:
            file.truncate(newest().stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "fill":
        fill()
    elif kind in {"raise", "again"}:
        raise ValueError(f"there is no head {step}")


def once(kind: str, step: int) -> bool:
    """Whether this fault has not been yet."""
    if kind == "again":
        return True
    mark = DONE / f"{kind}-{step}"
    new = not mark.exists()
    mark.touch()
    return new


report = trainvitals.step
loss_of = torch.nn.functional.mse_loss


def step_and_fail(step: int, **values: object) -> None:
    """Report a step, and let happen what is due after it."""
    global last
    report(step, **values)
    last = step
    for kind, rank, place in FAULTS:
        if int(rank) == RANK and int(place) == step and kind != "nan" and once(kind, step):
            happen(kind, step)


def nan_loss(*arguments: object, **more: object) -> torch.Tensor:
    """Return a loss that is no number, in the step that a fault names."""
    loss = loss_of(*arguments, **more)
    for kind, rank, place in FAULTS:
        if kind == "nan" and int(rank) == RANK and int(place) == last + 1 and once(kind, last + 1):
            loss = loss * float("nan")
    return loss


if __name__ == "__main__":
    resumed = trainvitals.resume_path()
    if resumed is not None:
        last = torch.load(resumed)["step"]
    trainvitals.step = step_and_fail
    torch.nn.functional.mse_loss = nan_loss
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
