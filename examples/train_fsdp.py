"""FSDP (``fully_shard``) below ``torchrun``, with distributed checkpoints; nothing in it knows of Trainvitals.

trainvitals run -- torchrun --nproc-per-node 2 examples/train_fsdp.py
"""

from __future__ import annotations

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    """Train a network whose parameters are spread over all ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--output", default=tempfile.gettempdir())
    options = parser.parse_args()
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1)).to(kind)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    numbers = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(options.steps):
        inputs = torch.randn(32, 64, generator=numbers).to(kind)
        nn.functional.mse_loss(model(inputs), inputs.sin().sum(dim=1, keepdim=True)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=os.path.join(options.output, "checkpoint"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
