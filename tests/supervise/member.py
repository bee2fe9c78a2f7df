"""A training that goes on with as many ranks as there are: what it takes up is the newest checkpoint in its folder.

It says of each step how many ranks there were, in the file ``steps``, and ends at the step in the file ``last``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import trainvitals

FOLDER = Path(sys.argv[1])
EVERY = int(sys.argv[2])

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    trainvitals.init()
    checkpoints = trainvitals.checkpoints(FOLDER / "checkpoints", every_steps=EVERY, keep=3)
    total, step = torch.zeros(1), 0
    saved = checkpoints.newest()
    if saved is not None:
        total, step = torch.load(f"{saved.path}/total.pt"), saved.step
    last = torch.tensor([10**6])
    while step < last.item():
        step += 1
        part = torch.ones(1)
        dist.all_reduce(part)
        total += part / world
        time.sleep(0.05)
        trainvitals.step(step, loss=1.0 / step)
        if rank == 0:
            with open(FOLDER / "steps", "a") as file:
                file.write(f"{step} {world} {total.item()}\n")
            if (FOLDER / "last").exists():
                last[0] = int((FOLDER / "last").read_text())
            if checkpoints.due(step):
                with checkpoints.saving(step) as folder:
                    torch.save(total, f"{folder}/total.pt")
        dist.broadcast(last, 0)
    dist.destroy_process_group()
