"""What a call costs in its place, right behind a step, and how little it could be.

    python benchmarks/in_place.py [--seconds S]

Clocks around one call behind each step of the small model of ``overhead.py``, another call in each turn of eight
steps, in an order that changes.  The first step of a turn is left out: the step before called something else.

empty      a function that does nothing, called as ``step(loss=loss)`` is
least      the least that keeps a loss: a look at its type, the tensor read, one clock, one append to a list
number     ``trainvitals.step(loss=0.5)``
tensor     ``trainvitals.step(loss=loss)``

What is shown are the lowest decile, the lowest quarter and the median, in microseconds: other programs on the machine
make the rest.  The clock itself is in each.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

from overhead import Training

#: Steps of a turn, and such before the first.
TURN, WARM_UP = 8, 50


def ways(torch: Any) -> dict[str, Callable[[Any], float]]:
    """Return what is called with the loss of each step, by name."""
    import trainvitals  # noqa: PLC0415

    kept: list[tuple[float, float]] = []
    clock = time.monotonic

    def empty(step: int | None = None, values: Any = None, /, **named: Any) -> None:
        pass

    def least(step: int | None = None, values: Any = None, /, **named: Any) -> None:  # noqa: ARG001
        try:
            value = named["loss"]
            if value.__class__ is torch.Tensor and value.is_cpu:
                value = value.item()
            if value - value == 0.0:
                kept.append((clock(), value))
        except Exception:  # As in a call that must not fail.
            pass

    return {
        "empty": lambda loss: _timed(empty, loss),
        "least": lambda loss: _timed(least, loss),
        "number": lambda _: _timed(trainvitals.step, 0.5),
        "tensor": lambda loss: _timed(trainvitals.step, loss),
    }


def _timed(call: Callable[..., object], loss: Any) -> float:
    begun = time.perf_counter()
    call(loss=loss)
    return time.perf_counter() - begun


def measure(seconds: float) -> dict[str, list[float]]:
    """Return how long each call took, in seconds, sorted."""
    import trainvitals  # noqa: PLC0415

    trainvitals.init(run="benchmark")
    training = Training("small", "same")
    calls = ways(training.torch)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(WARM_UP):
        for call in calls.values():
            call(training.train())
    end, order = time.monotonic() + seconds, list(calls)
    while time.monotonic() < end:
        random.shuffle(order)
        for name in order:
            calls[name](training.train())
            found[name] += [calls[name](training.train()) for _ in range(TURN)]
    trainvitals.finish()
    return {name: sorted(times) for name, times in found.items()}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    spool = tempfile.mkdtemp(prefix="trainvitals-bench-", dir="/dev/shm")
    os.environ.update(TRAINVITALS_DIR=spool, OMP_NUM_THREADS="1")
    try:
        found = measure(options.seconds)
    finally:
        shutil.rmtree(spool)
    print("| call | calls | lowest decile, µs | lowest quarter, µs | median, µs |\n|---|--:|--:|--:|--:|")
    for name, times in found.items():
        values = [times[int(len(times) * share)] * 1e6 for share in (0.1, 0.25, 0.5)]
        print(f"| {name} | {len(times)} | " + " | ".join(f"{value:.1f}" for value in values) + " |")


if __name__ == "__main__":
    main()
