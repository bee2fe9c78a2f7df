"""DistributedDataParallel below ``torchrun``; nothing in it knows of Trainvitals.

    trainvitals run -- torchrun --nproc-per-node 2 examples/train_ddp.py

Each rank has its own series.  The share "communication" is the wait for the gradients of other ranks: the rank that
holds up all others is the one that waits least.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Sines(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Numbers that are made up; ``delay`` is how many seconds each takes to read."""

    def __init__(self, delay: float) -> None:
        self.delay = delay

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(self.delay)
        features = torch.randn(64, generator=torch.Generator().manual_seed(index))
        return features, features.sin().sum(dim=0, keepdim=True)


def main() -> None:
    """Train; one rank may be made slow, in reading or in computing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--output", default=tempfile.gettempdir())
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--slow-data", type=float, default=0.0, metavar="SECONDS", help="of a sample, on the slow rank")
    parser.add_argument("--slow-compute", type=float, default=0.0, metavar="SECONDS", help="of a step, on that rank")
    options = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, is_slow = dist.get_rank(), dist.get_rank() == options.slow_rank
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1))
    model = DistributedDataParallel(network.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Sines(options.slow_data if is_slow else 0.0)
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, seed=1))
    for step, (inputs, targets) in enumerate(loader, start=1):
        outputs = model(inputs.to(device))
        time.sleep(options.slow_compute if is_slow else 0.0)
        nn.functional.mse_loss(outputs, targets.to(device)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step == options.steps:
            break
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(options.output, "model.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
