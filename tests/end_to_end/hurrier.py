"""A small training whose learning rate becomes too high: hurrier.py FOLDER.

The demo's language model in NumPy.  From step 100 on, its learning rate is 500 times what it trains well with, and it
says at which step the loss stopped being a number.  It trains on, as a run would that nobody watches.  A file named
"back" in the folder is somebody who does what the message says: back to the checkpoint, with half the learning rate.
"""

import math
import random
import sys
import time
from pathlib import Path

import trainvitals
from trainvitals.bundle.demo import corpus
from trainvitals.bundle.demo.numpy_model import Model

GOOD, TOO_HIGH, LAST_GOOD = 0.1, 50.0, 100


def main() -> None:
    """Train until it is ended."""
    folder = Path(sys.argv[1])
    text, _ = corpus.load()
    model, draw, checkpoint = Model(), random.Random(0), str(folder / "checkpoint.npz")
    learning_rate, step, was_finite = GOOD, 0, True
    trainvitals.init(target_steps=100_000)
    while True:
        step += 1
        loss = model.loss(text.batch(64, draw))
        norm = model.backward()
        model.update(learning_rate)
        trainvitals.step(step, loss=loss, grad_norm=norm, learning_rate=learning_rate, tokens=64)
        if was_finite and not math.isfinite(loss):
            was_finite = False
            print(step, flush=True)
        if step == LAST_GOOD and learning_rate == GOOD:
            with trainvitals.checkpoint(step, checkpoint):
                model.save(checkpoint)
            learning_rate = TOO_HIGH
        if learning_rate == TOO_HIGH and (folder / "back").exists():
            with trainvitals.checkpoint(LAST_GOOD, checkpoint, kind="load"):
                model.load(checkpoint)
            step, learning_rate = LAST_GOOD, GOOD / 2
        time.sleep(0.02)


if __name__ == "__main__":
    main()
