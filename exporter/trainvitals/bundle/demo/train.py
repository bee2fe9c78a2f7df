"""The training run of ``trainvitals up --demo``, and an example of a loop that reports to trainvitals.

It is a real training: a character-level language model on Python sources, real gradients, a real loss.
After a while its learning rate is raised, step by step, until the loss breaks; see :mod:`.plan`.

Run it alone with ``python -m trainvitals.bundle.demo.train``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import trainvitals
from trainvitals.bundle.demo import corpus
from trainvitals.bundle.demo.plan import Plan

CHECKPOINT_EVERY = 200
EVALUATION_BATCH = 2000


def train(options: argparse.Namespace, folder: str) -> None:
    """Train until ``options.steps``; checkpoints go to ``folder``."""
    training, validation = corpus.load()
    draw = random.Random(0)
    model = make_model(options.backend)
    size = options.batch or fit_batch_size(model, training)
    plan = Plan(healthy_seconds=options.healthy_seconds, broken_seconds=options.broken_seconds, tell=tell)
    path = os.path.join(folder, "demo.checkpoint")

    trainvitals.init(run="demo", target_steps=options.steps)
    tell(0, f"training {model.size:,} parameters in {model.framework}, {size} windows of Python source a step")
    step = saved = 0
    while step < options.steps:
        step += 1
        with trainvitals.phase("data"):
            batch = training.batch(size, draw)
        with trainvitals.phase("forward"):
            loss = model.loss(batch)
        with trainvitals.phase("backward"):
            grad_norm = model.backward()
        with trainvitals.phase("optimizer"):
            learning_rate = plan.learning_rate(step)
            model.update(learning_rate)
        trainvitals.step(step, loss=loss, learning_rate=learning_rate, grad_norm=grad_norm, tokens=size)
        plan.observe(step, float(loss))

        if step % CHECKPOINT_EVERY == 0 and plan.sound:
            with trainvitals.phase("evaluation"):
                held_out = model.evaluate(validation.batch(EVALUATION_BATCH, draw))
            trainvitals.evaluate(step, loss=held_out)
            with trainvitals.checkpoint(step, path):
                model.save(path)
            saved = step
            tell(step, f"loss {float(loss):.2f}, on text it has not seen {held_out:.2f}; checkpoint saved")
            plan.saved(step)

        if plan.wants_rollback:
            with trainvitals.checkpoint(saved, path, kind="load"):
                model.load(path)
            step = saved
            plan.rolled_back(step)

    trainvitals.finish()
    tell(step, "the training is complete")


def make_model(backend: str | None) -> Any:
    """Return a model in PyTorch when that is installed, else in NumPy; ``backend`` decides for itself."""
    if backend is None:
        backend = "torch" if importlib.util.find_spec("torch") else "numpy"
    return importlib.import_module(f"trainvitals.bundle.demo.{backend}_model").Model()


def fit_batch_size(model: Any, text: corpus.Split, seconds: float = 0.025) -> int:
    """Return the batch size with which a step takes so long on this machine: quick to watch, and never idle."""
    size, source = 256, random.Random(0)
    times = []
    for _ in range(10):
        begun = time.perf_counter()
        model.loss(text.batch(size, source))
        model.backward()  # no update: the model stays as it was
        times.append(time.perf_counter() - begun)
    return max(64, min(4096, round(size * seconds / min(times) / 64) * 64))


def tell(step: int, message: str) -> None:
    """Print a line for the person who watches, and leave it with the run."""
    print(f"step {step}: {message}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, train, and leave quietly when asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m trainvitals.bundle.demo.train", description="Train the demo's model."
    )
    parser.add_argument(
        "--steps", type=int, default=20_000, help="optimizer steps in all (default 20000, about 9 minutes)"
    )
    parser.add_argument("--healthy-seconds", type=float, default=45.0, help="before the harm begins (default 45)")
    parser.add_argument("--broken-seconds", type=float, default=30.0, help="before the way back (default 30)")
    parser.add_argument("--backend", choices=["torch", "numpy"], help="default: torch when it is installed")
    parser.add_argument("--batch", type=int, help="windows in a step (default: what takes 25 ms)")
    parser.add_argument("--folder", help="where checkpoints go (default: a folder that is removed at the end)")
    options = parser.parse_args(arguments)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))  # being stopped is no failure of the run
    os.nice(10)  # a guest on the machine
    with tempfile.TemporaryDirectory() as temporary:
        train(options, options.folder or temporary)


if __name__ == "__main__":
    main()
