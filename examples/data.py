"""A training whose data is watched, with one file that cannot be read and one with wrong numbers in it.

    pip install trainvitals torch
    python examples/data.py

The exporter then names both: `damaged.txt` in a finding `data_error`, and what is in `poisoned.txt` with the loss.
"""

from __future__ import annotations

import os
import tempfile

import torch
from torch.utils.data import DataLoader, Dataset

import trainvitals

FILES = 64


class Numbers(Dataset):
    """One sample per text file: eight inputs and a target."""

    def __init__(self, folder: str) -> None:
        self.files = sorted(os.path.join(folder, name) for name in os.listdir(folder))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> dict[str, object]:
        with open(self.files[index], encoding="utf-8") as file:
            numbers = [float(word) for word in file.read().split()]
        return {"x": torch.tensor(numbers[:8]), "y": torch.tensor(numbers[8:]), "path": self.files[index]}


def write(folder: str) -> None:
    """Write the files; two of them are bad."""
    for index in range(FILES):
        numbers = torch.randn(8)
        with open(os.path.join(folder, f"{index:03d}.txt"), "w", encoding="utf-8") as file:
            print(*numbers.tolist(), float(numbers.sum()), file=file)
    with open(os.path.join(folder, "damaged.txt"), "w", encoding="utf-8") as file:
        print("no numbers", file=file)
    with open(os.path.join(folder, "poisoned.txt"), "w", encoding="utf-8") as file:
        print(*["nan"] * 9, file=file)


def main() -> None:
    """Train for three epochs."""
    torch.manual_seed(7)
    trainvitals.init(run="data-example")
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        dataset = trainvitals.guarded(Numbers(folder))
        loader = trainvitals.data(DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2))
        for _ in range(3):
            for batch in loader:
                loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
                if torch.isfinite(loss):
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                trainvitals.step(loss=loss)
    print(f"trained: {float(model.weight.detach().mean()):.3f}")


if __name__ == "__main__":
    main()
