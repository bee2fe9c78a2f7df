"""A loop around Accelerate: one line to add, ``trainvitals.auto()``.

Run it with ``python examples/train_accelerate.py`` or ``accelerate launch examples/train_accelerate.py`` and look at
``trainvitals exporter``.
"""

from __future__ import annotations

import os
import sys
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

import trainvitals


def main(folder: str) -> None:
    """Learn a sum of numbers for two epochs; checkpoints go to the folder."""
    set_seed(7)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
    inputs = torch.randn(80, 8)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=4, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(2):
        for numbers, sums in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(numbers), sums)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        with trainvitals.phase("evaluation"), torch.no_grad():
            error = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        accelerator.log({"eval_loss": error.item(), "epoch": epoch})
        accelerator.save_state(os.path.join(folder, f"epoch-{epoch}"))
    accelerator.save_model(model, os.path.join(folder, "last"))


if __name__ == "__main__":
    trainvitals.auto()
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
