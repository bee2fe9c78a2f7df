"""A small training that reads its samples from files, one of which may be damaged: reader.py FOLDER.

Linear regression by gradient descent, in NumPy; a batch is a file.  It goes on until it is ended.
"""

import sys
import time
from pathlib import Path

import numpy as np

import trainvitals


class Shards:
    """Reads one file after the other, for ever."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*.npz"))
        self._next = 0

    def __iter__(self):
        return self

    def __next__(self):
        path = self._files[self._next % len(self._files)]
        self._next += 1
        try:
            with np.load(path) as arrays:
                return {"path": str(path), "inputs": arrays["inputs"], "targets": arrays["targets"]}
        except Exception as error:
            raise RuntimeError(f"cannot read '{path}'") from error


def main() -> None:
    """Train; a file that cannot be read is left out."""
    weights = np.zeros(8)
    trainvitals.init(target_steps=100_000)
    for number, batch in enumerate(trainvitals.data(Shards(Path(sys.argv[1])), on_error="skip")):
        errors = batch["inputs"] @ weights - batch["targets"]
        gradient = 2.0 * batch["inputs"].T @ errors / len(errors)
        weights -= 0.01 * gradient
        trainvitals.step(number, loss=np.mean(errors**2), grad_norm=np.linalg.norm(gradient), learning_rate=0.01)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
