"""A training that saves by policy, so that it can be stopped, released, set back and scaled by order."""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist

import trainvitals


def main() -> None:
    """Train from the beginning, or from the newest checkpoint; write down each step with the number of ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    settings = {"gain": 1}
    trainvitals.init(target_steps=options.steps)
    trainvitals.knob("gain", lambda value: settings.update(gain=value), least=1, most=9)
    checkpoints = trainvitals.checkpoints(options.output, every_steps=20, keep=100, barrier=dist.barrier)
    saved = checkpoints.newest()
    first = 1 if saved is None else saved.step + 1
    weight = torch.zeros(1) if saved is None else torch.load(f"{saved.path}/model.pt")
    os.makedirs(options.output, exist_ok=True)
    log = open(os.path.join(options.output, "log"), "a", buffering=1)  # noqa: SIM115  To the end.
    for step in range(first, options.steps + 1):
        one = torch.ones(1) / size
        dist.all_reduce(one)
        weight += one * settings["gain"]
        time.sleep(0.02)
        if rank == 0:
            log.write(f"{step} {size} {weight.item():.0f}\n")
        trainvitals.step(step, loss=1.0)
        if checkpoints.due(step):
            with checkpoints.saving(step, loss=1.0) as folder:
                if rank == 0:
                    torch.save(weight, f"{folder}/model.pt")


if __name__ == "__main__":
    main()
