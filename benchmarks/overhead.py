"""What being watched costs a step of a training: in its place, and in a loop of nothing else.

    python benchmarks/overhead.py [--starts N] [--seconds S] [--json]

A loop with a loader, a loss, clipped gradients and AdamW.  Where a process has its memory makes it several percent
faster or slower for all of its life, so two processes do not tell what we add.  Here each process trains and has our
calls switched on and off in turns, with the same model in the same memory:

same    nothing is switched: what this measurement shows where there is nothing to be seen
step    the loop calls ``trainvitals.step(loss=loss)``
run     the plain loop as ``trainvitals run`` watches it: steps, learning rate, norm, waits for data

A turn is a few steps; a pair is a turn with and one without, in an order that changes.  What is shown is the median
over all pairs of the difference of their median steps, its standard error and the same in processor time of the
training thread, which other programs on the machine disturb less.

"alone" is the median of the same calls one after the other, with nothing in between.  The difference of the two is
what the caches of the processor make of it.  Everything runs on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

#: Width and depth of the network and size of a batch: about 1.5 and 35 ms a step on a core of 2.8 GHz.
MODELS = {"small": (32, 2, 8), "large": (512, 4, 128)}
#: Steps of a turn.
TURNS = {"small": 20, "large": 4}
WAYS = ("same", "step", "run")
WARM_UP = 20
CALLS = 3000


class Training:
    """The loop, one step at a time, and what of ours is in it."""

    def __init__(self, name: str, way: str) -> None:
        import torch  # noqa: PLC0415
        from torch import nn  # noqa: PLC0415
        from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

        torch.set_num_threads(1)
        torch.manual_seed(1)
        width, depth, batch = MODELS[name]
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.model = nn.Sequential(*layers, nn.Linear(width, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.loader = DataLoader(TensorDataset(torch.randn(8 * batch, width)), batch_size=batch)
        self.batches = iter(self.loader)
        self.torch, self.way = torch, way
        self.is_on = True
        self.hooks = _Hooks(torch) if way == "run" else None

    def batch(self) -> Any:
        """Return the next batch; the loader begins anew when it is through."""
        try:
            return next(self.batches)[0]
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)[0]

    def train(self) -> Any:
        """Train one step; return its loss."""
        loss = self.model(self.batch()).square().mean()
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def step(self) -> None:
        """Train one step, with what is ours in it."""
        loss = self.train()
        if self.is_on and self.way == "step":
            import trainvitals  # noqa: PLC0415

            trainvitals.step(loss=loss)

    def switch(self, is_on: bool) -> None:
        """Switch what is ours on or off."""
        self.is_on = is_on
        if self.hooks is not None:
            self.hooks.switch(is_on)

    def calls_of_ours(self) -> Callable[[], object]:
        """Return what is called of ours in one step, without the step."""
        if self.way == "same":
            return lambda: None
        if self.way == "step":
            import trainvitals  # noqa: PLC0415

            loss = self.torch.tensor(0.5, requires_grad=True) * 1.0
            return lambda: trainvitals.step(loss=loss)
        from trainvitals.frameworks.pytorch import Watch  # noqa: PLC0415

        watch, norm = Watch(self.torch), self.torch.tensor(0.5)

        def calls() -> None:
            watch.end_loading(watch.begin_loading())
            watch.take_norm(norm)
            watch.step(self.optimizer)

        return calls


class _Hooks:
    """What ``trainvitals run`` has hung into PyTorch, to be taken out and put in again."""

    def __init__(self, torch: Any) -> None:
        from torch.optim import optimizer  # noqa: PLC0415
        from torch.utils.data import dataloader  # noqa: PLC0415

        self._registered = optimizer._global_optimizer_post_hooks  # noqa: SLF001
        self._steps = dict(self._registered)
        places = ((dataloader._BaseDataLoaderIter, "__next__"), (torch.nn.utils, "clip_grad_norm_"))  # noqa: SLF001
        self._wrapped = [(owner, name, getattr(owner, name)) for owner, name in places]
        assert self._steps, "nobody watches"

    def switch(self, is_on: bool) -> None:
        """Put them in, or take them out."""
        self._registered.clear()
        if is_on:
            self._registered.update(self._steps)
        for owner, name, wrapper in self._wrapped:
            setattr(owner, name, wrapper if is_on else wrapper.__wrapped__)


def work(way: str, name: str, seconds: float) -> dict[str, Any]:
    """In a process of its own: train with and without, and return the differences in seconds."""
    if way == "step":
        import trainvitals  # noqa: PLC0415

        trainvitals.init(run="benchmark")
    training = Training(name, way)
    for _ in range(WARM_UP):
        training.step()
    found: dict[str, list[float]] = {"wall": [], "cpu": [], "plain": []}
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(found["wall"]) < 4:
        turns = {}
        for is_on in (True, False) if len(found["wall"]) % 2 else (False, True):
            training.switch(is_on)
            turns[is_on] = _turn(training, TURNS[name])
        for number, clock in enumerate(("wall", "cpu")):
            found[clock].append(turns[True][number] - turns[False][number])
        found["plain"].append(turns[False][0])
    training.switch(True)
    if way != "same":
        from trainvitals import probe  # noqa: PLC0415

        assert probe.steps_recorded() > WARM_UP, "nothing was recorded"
    return {**found, "alone": _alone(training.calls_of_ours())}


def _turn(training: Training, steps: int) -> tuple[float, float]:
    training.step()  # The first one finds other things in the caches.
    wall, cpu = [], []
    for _ in range(steps):
        begun, began = time.perf_counter(), time.thread_time()
        training.step()
        cpu.append(time.thread_time() - began)
        wall.append(time.perf_counter() - begun)
    return statistics.median(wall), statistics.median(cpu)


def _alone(calls: Callable[[], object]) -> float:
    singles = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        calls()
        singles.append(time.perf_counter() - begun)
    return statistics.median(singles)


def start(way: str, name: str, seconds: float) -> dict[str, Any]:
    """Run one process and return what it found."""
    spool = tempfile.mkdtemp(prefix="trainvitals-bench-", dir="/dev/shm")
    command = [sys.executable, os.path.abspath(__file__), "--work", way, name, "--seconds", str(seconds)]
    if way == "run":
        command = [sys.executable, "-m", "trainvitals", "run", "--name", "benchmark", "--", *command]
    environment = {**os.environ, "TRAINVITALS_DIR": spool, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        shutil.rmtree(spool)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(name: str, way: str, starts: int, seconds: float) -> dict[str, Any]:
    """Return one row of the table, in microseconds."""
    found = [start(way, name, seconds) for _ in range(starts)]
    wall, cpu, plain = ([value for one in found for value in one[key]] for key in ("wall", "cpu", "plain"))
    low, middle, high = statistics.quantiles(wall, n=4)
    step = statistics.median(plain)
    return {
        "model": name,
        "way": way,
        "pairs": len(wall),
        "step": step * 1e6,
        "added": middle * 1e6,
        # Of a median, from the quartiles: a few interrupted turns do not count.
        "error": 1.2533 * (high - low) / 1.349 / len(wall) ** 0.5 * 1e6,
        "quartiles": (low * 1e6, high * 1e6),
        "processes": sorted(statistics.median(one["wall"]) * 1e6 for one in found),
        "cpu": statistics.median(cpu) * 1e6,
        "alone": statistics.median(one["alone"] for one in found) * 1e6,
        "share": middle / step,
    }


def main() -> None:
    """Measure and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--starts", type=int, default=3, help="processes for each row")
    parser.add_argument("--seconds", type=float, default=7.0, help="of each process")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(*options.work, options.seconds)))
        return
    rows = [row(name, way, options.starts, options.seconds) for name in MODELS for way in WAYS]
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{platform.machine()}, Python {platform.python_version()}, {options.starts} processes a row\n")
    print(
        "| model | way | pairs | step, ms | added, µs | ± | quartiles | by process | CPU, µs | alone, µs | of a step |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for one in rows:
        low, high = one["quartiles"]
        processes = ", ".join(f"{value:.0f}" for value in one["processes"])
        print(
            f"| {one['model']} | {one['way']} | {one['pairs']} | {one['step'] / 1e3:.2f} | {one['added']:.1f} "
            f"| {one['error']:.1f} | {low:.0f} to {high:.0f} | {processes} | {one['cpu']:.1f} | {one['alone']:.1f} "
            f"| {one['share']:.2%} |"
        )


if __name__ == "__main__":
    main()
