"""The demo's language model in NumPy, with its gradients written out by hand.

Bengio et al., "A Neural Probabilistic Language Model" (2003), on characters: the embeddings of the last characters are
laid side by side, go through one hidden layer, and give the scores of the next character.

::

    x = embedding[inputs]                (batch, context * width)
    h = max(x @ hidden + hidden_bias, 0) (batch, units)
    s = h @ output + output_bias         (batch, vocabulary)
    loss = mean over the batch of -log softmax(s)[target]
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from trainvitals.bundle.demo.corpus import ALPHABET, CONTEXT, Batch

Array = NDArray[Any]


class Model:
    """``loss`` looks at a batch, ``backward`` finds the gradients of that loss, ``update`` goes a step against them."""

    framework = "NumPy"

    def __init__(
        self, *, width: int = 24, units: int = 256, momentum: float = 0.9, seed: int = 0, dtype: DTypeLike = np.float32
    ) -> None:
        random = np.random.default_rng(seed)
        fan_in = CONTEXT * width
        shapes = {
            "embedding": (len(ALPHABET), width),
            "hidden": (fan_in, units),
            "hidden_bias": (units,),
            "output": (units, len(ALPHABET)),
            "output_bias": (len(ALPHABET),),
        }
        # Biases start at 0, and the output is small, so that the first loss is that of a uniform guess.
        scales = {"embedding": 1.0, "hidden": (2 / fan_in) ** 0.5, "output": 0.1 * units**-0.5}
        self.parameters: dict[str, Array] = {
            name: (random.standard_normal(shape) * scales.get(name, 0.0)).astype(dtype)
            for name, shape in shapes.items()
        }
        self.gradients: dict[str, Array] = {}
        self._momentum = momentum
        self._velocity = {name: np.zeros_like(value) for name, value in self.parameters.items()}
        self._activations: tuple[Array, ...] = ()
        # A loss that breaks runs through infinity on its way to NaN, and that is what the demo is for.
        np.seterr(over="ignore", invalid="ignore")

    @property
    def size(self) -> int:
        """Return the number of parameters."""
        return sum(value.size for value in self.parameters.values())

    def loss(self, batch: Batch) -> float:
        """Return the mean cross entropy in nats."""
        p = self.parameters
        inputs = np.frombuffer(batch.inputs, np.uint8).reshape(-1, CONTEXT)
        targets = np.frombuffer(batch.targets, np.uint8)
        x = p["embedding"][inputs].reshape(len(inputs), -1)
        h = np.maximum(x @ p["hidden"] + p["hidden_bias"], 0)
        scores = h @ p["output"] + p["output_bias"]
        scores -= scores.max(axis=1, keepdims=True)
        log_probabilities = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        self._activations = (inputs, targets, x, h, log_probabilities)
        return float(-log_probabilities[np.arange(len(targets)), targets].mean())

    def backward(self) -> float:
        """Compute the gradients of the last loss; return their norm over all parameters."""
        p = self.parameters
        inputs, targets, x, h, log_probabilities = self._activations
        d_scores = np.exp(log_probabilities)
        d_scores[np.arange(len(targets)), targets] -= 1
        d_scores /= len(targets)
        d_h = (d_scores @ p["output"].T) * (h > 0)
        d_x = d_h @ p["hidden"].T
        d_embedding = np.zeros_like(p["embedding"])
        np.add.at(d_embedding, inputs, d_x.reshape(*inputs.shape, -1))
        self.gradients = {
            "embedding": d_embedding,
            "hidden": x.T @ d_h,
            "hidden_bias": d_h.sum(axis=0),
            "output": h.T @ d_scores,
            "output_bias": d_scores.sum(axis=0),
        }
        return float(np.sqrt(sum(np.vdot(gradient, gradient) for gradient in self.gradients.values())))

    def update(self, learning_rate: float) -> None:
        """Take one step of gradient descent with momentum."""
        for name, gradient in self.gradients.items():
            velocity = self._velocity[name]
            velocity *= self._momentum
            velocity += gradient
            self.parameters[name] -= gradient.dtype.type(learning_rate) * velocity

    def evaluate(self, batch: Batch) -> float:
        """Return the loss without a thought of gradients."""
        return self.loss(batch)

    def save(self, path: str) -> None:
        """Write parameters and momentum; under another name first, so that nobody ever reads half a file."""
        velocity = {f"velocity.{name}": value for name, value in self._velocity.items()}
        with open(path + ".new", "wb") as file:
            np.savez(file, **self.parameters, **velocity)  # type: ignore[arg-type]
        os.replace(path + ".new", path)

    def load(self, path: str) -> None:
        """Go back to what :meth:`save` wrote."""
        with np.load(path) as state:
            for name in self.parameters:
                self.parameters[name] = state[name]
                self._velocity[name] = state[f"velocity.{name}"]
