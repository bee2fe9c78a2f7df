"""A small data-parallel training on the CPU, started by torchrun; in one step, one rank can meet a bad batch.

Environment: STEPS, BAD_STEP (-1: none), BAD_RANK, PACE (seconds that a step takes at least).
"""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import trainvitals

STEPS = int(os.environ["STEPS"])
BAD_STEP = int(os.environ.get("BAD_STEP", "-1"))
BAD_RANK = int(os.environ.get("BAD_RANK", "0"))
PACE = float(os.environ.get("PACE", "0"))


def main() -> None:
    """Train a perceptron on a noisy sine; a step with gradients that are not finite is skipped, as trainers do."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    trainvitals.init(target_steps=STEPS)
    for number in range(STEPS):
        begun = time.monotonic()
        with trainvitals.phase("data"):
            inputs = torch.randn(32, 8)
            targets = inputs.sin().sum(dim=1, keepdim=True) + 0.1 * torch.randn(32, 1)
            if number == BAD_STEP and rank == BAD_RANK:
                inputs[3, 5] = float("nan")
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()
        trainvitals.step(number, loss=loss, grad_norm=norm, learning_rate=1e-3, samples=32)
        if number and number % 200 == 0:
            trainvitals.evaluate(number, loss=float(loss.detach()))
            with trainvitals.checkpoint(number):
                pass
        time.sleep(max(0.0, PACE - (time.monotonic() - begun)))
    trainvitals.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
