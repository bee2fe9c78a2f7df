"""The demo's language model in PyTorch: the same network and optimizer as in :mod:`.numpy_model`."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from trainvitals.bundle.demo.corpus import ALPHABET, CONTEXT, Batch


class Model:
    """``loss`` looks at a batch, ``backward`` finds the gradients of that loss, ``update`` goes a step against them."""

    framework = "PyTorch"

    def __init__(self, *, width: int = 24, units: int = 256, momentum: float = 0.9, seed: int = 0) -> None:
        torch.manual_seed(seed)
        # A network of this size gains nothing from a second core, and the demo is a guest on the machine.
        torch.set_num_threads(1)
        self._network = nn.Sequential(
            nn.Embedding(len(ALPHABET), width),
            nn.Flatten(),
            nn.Linear(CONTEXT * width, units),
            nn.ReLU(),
            nn.Linear(units, len(ALPHABET)),
        )
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=0.0, momentum=momentum)
        self._loss = torch.zeros(())

    @property
    def size(self) -> int:
        """Return the number of parameters."""
        return sum(parameter.numel() for parameter in self._network.parameters())

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross entropy in nats, a tensor of one element."""
        inputs = torch.frombuffer(bytearray(batch.inputs), dtype=torch.uint8).long().view(-1, CONTEXT)
        targets = torch.frombuffer(bytearray(batch.targets), dtype=torch.uint8).long()
        self._loss = nn.functional.cross_entropy(self._network(inputs), targets)
        return self._loss.detach()

    def backward(self) -> Tensor:
        """Compute the gradients of the last loss; return their norm over all parameters."""
        self._optimizer.zero_grad()
        self._loss.backward()  # type: ignore[no-untyped-call]
        norms = [parameter.grad.norm() for parameter in self._network.parameters() if parameter.grad is not None]
        norm: Tensor = torch.stack(norms).norm()
        return norm

    def update(self, learning_rate: float) -> None:
        """Take one step of gradient descent with momentum."""
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._optimizer.step()

    def evaluate(self, batch: Batch) -> float:
        """Return the loss without a thought of gradients."""
        with torch.no_grad():
            return float(self.loss(batch))

    def save(self, path: str) -> None:
        """Write parameters and momentum; under another name first, so that nobody ever reads half a file."""
        torch.save({"network": self._network.state_dict(), "optimizer": self._optimizer.state_dict()}, path + ".new")
        os.replace(path + ".new", path)

    def load(self, path: str) -> None:
        """Go back to what :meth:`save` wrote."""
        state = torch.load(path, weights_only=True)
        self._network.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])
