"""A training that survives: it saves a checkpoint every few steps and goes on from the one that it is told.

    trainvitals run --max-restarts 3 --checkpoint-dir /tmp/checkpoints -- \
        torchrun --nproc-per-node 2 examples/train_resume.py --output /tmp/checkpoints

Three things make it so: the checkpoint holds all that the next step depends on, it gets its name once it is whole,
and ``trainvitals.resume_path()`` says where to go on.  The data of a step depend on its number alone, so that a run
that was interrupted ends with the same weights, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import trainvitals


def save(path: str, state: dict[str, Any]) -> None:
    """Write a checkpoint under another name first: who is killed meanwhile leaves no half one behind."""
    with trainvitals.checkpoint(state["step"], path):
        torch.save(state, f"{path}.tmp")
        os.replace(f"{path}.tmp", path)


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the batch of a step, the same in every attempt."""
    features = torch.randn(8, 64, generator=torch.Generator().manual_seed(1000 * step + rank))
    return features, features.sin().sum(dim=1, keepdim=True)


def main() -> None:
    """Train from the beginning, or from a checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True, help="folder of the checkpoints")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="of each step, to look at it")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    # Else DDP lays out the gradients anew after the first step of an attempt.  Among more than two ranks they are then
    # added up in another order than before, and a run that was interrupted differs in the last bits.
    model = DistributedDataParallel(layers, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 1
    checkpoint = trainvitals.resume_path()
    if checkpoint is not None:
        state = torch.load(checkpoint)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    trainvitals.init(target_steps=options.steps)
    for step in range(first, options.steps + 1):
        inputs, targets = batch(step, rank)
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trainvitals.step(step, loss=loss)
        time.sleep(options.pause)
        if step % options.every == 0 or step == options.steps:
            if rank == 0:
                state = {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                save(os.path.join(options.output, f"step_{step}.pt"), state)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
