"""What a watched loader costs the training per batch, beside the loader alone.

    python benchmarks/data.py [--rounds N]

Each case runs with and without ``trainvitals.data`` in turns of a few milliseconds; the least of many turns counts, in
the processor time of the training thread, so that other processes of a busy machine weigh little.
The unit beside it is one write of the counters of a rank file in the same process: about a microsecond on an idle
core of 2020.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import trainvitals
from trainvitals import probe

BATCHES = 500


class Plain:
    """Hands out one batch again and again."""

    def __init__(self, batch: object) -> None:
        self.batch = batch

    def __iter__(self) -> Any:
        return itertools.repeat(self.batch, BATCHES)


def once(loader: Iterable[object]) -> float:
    """Return microseconds of processor time per batch."""
    begun = time.thread_time()
    for _ in loader:
        pass
    return (time.thread_time() - begun) / BATCHES * 1e6


def least(calls: list[Callable[[], float]], rounds: int) -> list[float]:
    """Return the least of many turns of each."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for index, call in enumerate(calls):
            best[index] = min(best[index], call())
    return best


def cases() -> dict[str, Iterable[object]]:
    """Return the loaders."""
    found: dict[str, Iterable[object]] = {
        "nothing to name": Plain(([1.0] * 32, [0] * 32)),
        "32 indices in the batch": Plain({"x": [1.0] * 32, "idx": list(range(32))}),
        "256 indices in the batch": Plain({"x": [1.0] * 256, "idx": list(range(256))}),
        "32 paths in the batch": Plain({"x": [1.0] * 32, "path": [f"/data/train/n{i:05d}.jpg" for i in range(32)]}),
        "256 paths in the batch": Plain({"x": [1.0] * 256, "path": [f"/data/train/n{i:05d}.jpg" for i in range(256)]}),
    }
    try:
        import torch  # noqa: PLC0415  not everybody has it
        from torch.utils.data import DataLoader, Dataset  # noqa: PLC0415
    except ImportError:
        print("PyTorch is not installed: its cases are left out")
        return found
    batch = (torch.zeros(32, 8), torch.zeros(32))

    class Ready(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 32 * BATCHES

        def __getitems__(self, _: list[int]) -> list[int]:
            return []

    found["DataLoader of PyTorch, 32 samples"] = DataLoader(Ready(), batch_size=32, collate_fn=lambda _: batch)
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="turns of each case")
    rounds = parser.parse_args().rounds
    folder = tempfile.mkdtemp(prefix="bench-trainvitals-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    os.environ["TRAINVITALS_DIR"] = folder
    trainvitals.init(run="bench")
    recorder = probe.recorder()
    assert recorder is not None
    trainvitals.step(loss=1.0)
    write = recorder.writer.write_state

    def unit() -> float:
        begun = time.thread_time()
        for _ in range(BATCHES):
            write()
        return (time.thread_time() - begun) / BATCHES * 1e6

    def phases() -> float:
        begun = time.thread_time()
        for _ in range(BATCHES):
            recorder.begin_phase("data")
            recorder.end_phase()
        return (time.thread_time() - begun) / BATCHES * 1e6

    (one, two) = least([unit, phases], rounds)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {rounds} rounds")
    print(f"one write of the counters: {one:.2f} us; the two ends of a phase: {two:.2f} us\n")
    print(f"{'case':36} {'alone':>9} {'watched':>9} {'more':>9} {'writes':>8}")
    for name, loader in cases().items():
        watched = trainvitals.data(loader)
        alone, both = least([lambda it=loader: once(it), lambda it=watched: once(it)], rounds)  # type: ignore[misc]
        more = both - alone
        print(f"{name:36} {alone:6.2f} us {both:6.2f} us {more:6.2f} us {more / one:8.1f}")
    trainvitals.finish()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
