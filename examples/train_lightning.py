"""Lightning: nothing to add.  An installed trainvitals is asked for its callback by every Trainer.

Run it with ``python examples/train_lightning.py`` and look at ``trainvitals exporter``.
"""

from __future__ import annotations

import sys
import tempfile

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(pl.LightningModule):
    """Learns a straight line."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss, as Lightning wants it."""
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layers(inputs), targets)
        self.log("train_loss", loss)
        return loss

    def on_before_optimizer_step(self, _: torch.optim.Optimizer) -> None:
        """Log the norm of the gradients; nobody computes it for you."""
        norms = [parameter.grad.norm() for parameter in self.parameters() if parameter.grad is not None]
        self.log("grad_norm", torch.stack(norms).norm())

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        """Log the loss on other data."""
        inputs, targets = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.layers(inputs), targets))

    def configure_optimizers(self) -> dict[str, object]:
        """Return an optimizer whose learning rate falls."""
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5), "interval": "step"},
        }


def loader(seed: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Return 8 batches of made-up data."""
    inputs = torch.randn(8 * 16, 8, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=16)


def main(folder: str) -> None:
    """Train for two epochs; checkpoints and logs go to the folder."""
    pl.seed_everything(7)
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, default_root_dir=folder, logger=False, enable_progress_bar=False, max_epochs=2
    )
    trainer.fit(Regression(), loader(1), loader(2))
    trainer.save_checkpoint(f"{folder}/last.ckpt")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
