"""A small training that takes orders: every rank waits for the others in each step, as gradients make them do."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

import trainvitals


def main() -> None:
    """Train until told to stop, and write each step's learning rate to a file of the rank."""
    folder, pause = sys.argv[1], float(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainvitals.init(run="obedient", target_steps=1_000_000)
    settings = {"lr": 0.1}

    def set_rate(value: float) -> None:
        if value == 0.5 and rank == 2:
            raise RuntimeError("not on this rank")
        settings["lr"] = value

    def save(step: int) -> str:
        path = os.path.join(folder, f"saved-{step}-{rank}")
        with open(path, "w") as file:
            file.write(str(step))
        return path

    trainvitals.knob("lr", set_rate, least=0.0, most=1.0)
    trainvitals.on_checkpoint(save)
    gradient = torch.ones(1)
    with open(os.path.join(folder, f"rates.{rank}"), "w", buffering=1) as rates:
        for step in range(1, 1_000_001):
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
            time.sleep(pause)
            rates.write(f"{step} {settings['lr']}\n")
            trainvitals.step(step, loss=float(gradient))


if __name__ == "__main__":
    main()
