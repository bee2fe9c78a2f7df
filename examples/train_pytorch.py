"""A plain loop of PyTorch; nothing in it knows of Trainvitals.

    trainvitals run -- python examples/train_pytorch.py

Steps, learning rate, gradient norm, the wait for data, evaluations and checkpoints are seen without a line.  The loss
is known to nobody but the loop, hence the one call of ``trainvitals.log``: leave it out where the program logs the
loss to a tracker anyway.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainvitals


def main() -> None:
    """Train a small network on numbers that are made up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--output", default=tempfile.gettempdir())
    options = parser.parse_args()
    torch.manual_seed(1)
    features = torch.randn(640, 32)
    data = TensorDataset(features, features.sin().sum(dim=1, keepdim=True))
    model = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, options.steps)
    loader, step = DataLoader(data, batch_size=32, shuffle=True), 0
    while step < options.steps:
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            step += 1
            trainvitals.log(loss=loss)
        with torch.no_grad():
            losses = [nn.functional.mse_loss(model(inputs), targets) for inputs, targets in DataLoader(data, 64)]
            print(f"step {step}: {torch.stack(losses).mean():.4f}", flush=True)
    torch.save({"model": model.state_dict(), "step": step}, os.path.join(options.output, "model.pt"))


if __name__ == "__main__":
    main()
